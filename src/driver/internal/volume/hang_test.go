package volume_test

import (
	"context"
	"testing"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/disk"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/volume"
)

// hanging is a host whose pools hang until it is resumed.
type hanging struct {
	disk.Host
	arrived, resumed chan struct{}
}

func (h hanging) Open(path string) (disk.FS, error) {
	select {
	case h.arrived <- struct{}{}:
	default:
	}
	<-h.resumed
	return h.Host.Open(path)
}

// TestUnpublishOfAnUnknownVolume, as after a restart, does not wait for a pool that hangs.
func TestUnpublishOfAnUnknownVolume(t *testing.T) {
	d := newDisk()
	n := warm(t, d)
	mustCreate(t, n, "pvc-1")
	must(t, n.Publish(t.Context(), publish("pvc-1", target)))
	h := hanging{Host: d, arrived: make(chan struct{}, 1), resumed: make(chan struct{})}
	again := start(t, d, withMounts(n.mounts), withHost(h), withPools(retained("local", poolPath)))
	must(t, again.Unpublish(t.Context(), "pvc-1", target))
	close(h.resumed)
}

// TestAHangingPoolKeepsOneCaller: each further question about a volume is answered at once.
func TestAHangingPoolKeepsOneCaller(t *testing.T) {
	d := newDisk()
	h := hanging{Host: d, arrived: make(chan struct{}, 1), resumed: make(chan struct{})}
	n := start(t, d, withHost(h))
	first := make(chan struct{})
	go func() { defer close(first); _, _ = n.Stats(context.WithoutCancel(t.Context()), "pvc-1", target) }()
	<-h.arrived
	_, err := n.Stats(t.Context(), "pvc-1", target)
	wants(t, err, volume.ErrBusy)
	answers := make(chan error)
	for range 2 {
		go func() { _, _, err := n.Has(context.WithoutCancel(t.Context()), "pvc-1"); answers <- err }()
	}
	wants(t, <-answers, volume.ErrBusy)
	close(h.resumed)
	must(t, <-answers)
	<-first
}
