package volume_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/poolfs"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/volume"
)

// slowMounts blocks a bind until it is let go.
type slowMounts struct {
	*mounts
	begun, goOn chan struct{}
}

func (s *slowMounts) Inspect(target string) (volume.Mount, error) {
	close(s.begun)
	<-s.goOn
	return s.mounts.Inspect(target)
}

func TestWorkOutlivesItsCaller(t *testing.T) {
	n := start(t, newDisk(t))
	mustCreate(t, n, "pvc-1")
	slow := &slowMounts{mounts: n.mounts, begun: make(chan struct{}), goOn: make(chan struct{})}
	n.Mounter = slow
	q := volume.PublishRequest{ID: "pvc-1", Target: target}

	ctx, cancel := context.WithCancel(t.Context())
	result := make(chan error)
	go func() { result <- n.Publish(ctx, q) }()
	<-slow.begun
	cancel()
	if err := <-result; !errors.Is(err, context.Canceled) {
		t.Errorf("the caller that left gets %v, want canceled", err)
	}
	wants(t, n.Publish(t.Context(), q), volume.ErrBusy, "pvc-1")
	wants(t, n.Delete(t.Context(), "pvc-1"), volume.ErrBusy, "pvc-1")

	close(slow.goOn)
	n.Wait()
	if mount, _ := n.mounts.Inspect(target); !mount.Mounted {
		t.Error("the work did not go on after its caller had left")
	}
	n.Mounter = n.mounts
	if err := n.Publish(t.Context(), q); err != nil {
		t.Errorf("the repeated request: %v", err)
	}
}

// slowRecords blocks a read until it is let go.
type slowRecords struct {
	volume.Records
	begun, goOn chan struct{}
}

func (s *slowRecords) Read(disk poolfs.FS, id string) (volume.Record, error) {
	close(s.begun)
	<-s.goOn
	return s.Records.Read(disk, id)
}

// TestUnpublishEndsALongCount of a volume that was put back: a pod that is to end does not wait for it, and the next one can start.
func TestUnpublishEndsALongCount(t *testing.T) {
	disk := quotaDisk(t, poolfs.QuotaProject)
	putBack(t, disk)
	n := warm(t, disk)
	records := n.Records
	slow := &slowRecords{Records: records, begun: make(chan struct{}), goOn: make(chan struct{})}
	n.Records = slow
	result := make(chan error)
	go func() { result <- n.Publish(t.Context(), volume.PublishRequest{ID: "pvc-1", Target: target}) }()
	<-slow.begun
	wants(t, n.Unpublish(t.Context(), "pvc-1", target), volume.ErrBusy, "pvc-1")
	n.Records = records
	close(slow.goOn)
	if err := <-result; !errors.Is(err, context.Canceled) {
		t.Errorf("the count: %v, want canceled", err)
	}
	if err := n.Unpublish(t.Context(), "pvc-1", target); err != nil {
		t.Errorf("asked again: %v", err)
	}
	publishing().check(t, n, true, "the next pod")
}

type panickingMounts struct{ *mounts }

func (panickingMounts) Inspect(string) (volume.Mount, error) { panic("boom") }

func TestPanicBecomesAnError(t *testing.T) {
	n := start(t, newDisk(t))
	mustCreate(t, n, "pvc-1")
	n.Mounter = panickingMounts{n.mounts}
	err := n.Publish(t.Context(), volume.PublishRequest{ID: "pvc-1", Target: target})
	if err == nil || !strings.Contains(err.Error(), "boom") {
		t.Errorf("error %v, want the panic", err)
	}
	n.Mounter = n.mounts
	if err := n.Publish(t.Context(), volume.PublishRequest{ID: "pvc-1", Target: target}); err != nil {
		t.Errorf("the id stayed locked: %v", err)
	}
}
