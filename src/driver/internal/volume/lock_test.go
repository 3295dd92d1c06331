package volume_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/volume"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/kernel/bindmount"
)

// slowMounts blocks an inspection until it is let go.
type slowMounts struct {
	*mounts
	begun, goOn chan struct{}
}

func (s *slowMounts) Inspect(target string) (bindmount.Mount, error) {
	close(s.begun)
	<-s.goOn
	return s.mounts.Inspect(target)
}

func TestWorkOutlivesItsCaller(t *testing.T) {
	n := start(t, newDisk())
	mustCreate(t, n, "pvc-1")
	slow := &slowMounts{mounts: n.mounts, begun: make(chan struct{}), goOn: make(chan struct{})}
	n.Mounter = slow
	q := publish("pvc-1", target)

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
	wants(t, n.Enforce(t.Context(), "pvc-1", nil, func(int64) {}), volume.ErrBusy, "pvc-1")
	if _, _, err := n.Get(t.Context(), "pvc-1"); err != nil {
		t.Errorf("get does not wait: %v", err)
	}

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

type panickingMounts struct{ *mounts }

func (panickingMounts) Inspect(string) (bindmount.Mount, error) { panic("boom") }

func TestPanicBecomesAnError(t *testing.T) {
	n := start(t, newDisk())
	mustCreate(t, n, "pvc-1")
	n.Mounter = panickingMounts{n.mounts}
	err := n.Publish(t.Context(), publish("pvc-1", target))
	if err == nil || !strings.Contains(err.Error(), "boom") {
		t.Errorf("error %v, want the panic", err)
	}
	n.Mounter = n.mounts
	if err := n.Publish(t.Context(), publish("pvc-1", target)); err != nil {
		t.Errorf("the id stayed locked: %v", err)
	}
}
