package volume_test

import (
	"context"
	"fmt"
	"path"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/disk"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/store"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/volume"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/waittest"
)

// slots is how many copies are made at once.
const slots = 16

// crowd is a host that counts how many copies are being made: each from when its directory is first opened until that
// is moved into place. Those called held-… wait before their first batch, those called left-… are not counted.
type crowd struct {
	disk.Host
	mu     sync.Mutex
	making map[string]bool
	most   int
	passed chan struct{}
}

func (c *crowd) Open(p string) (disk.FS, error) {
	d, err := c.Host.Open(p)
	if err != nil {
		return nil, err
	}
	return crowdFS{d, c}, nil
}

// peak gives how many copies were made at once at most.
func (c *crowd) peak() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.most
}

type crowdFS struct {
	disk.FS
	crowd *crowd
}

func (d crowdFS) Open(name string) (disk.Handle, error) {
	id, staged := strings.CutPrefix(name, disk.StagingDir+"/")
	if staged && !strings.HasPrefix(id, "left-") {
		d.crowd.mu.Lock()
		d.crowd.making[id] = true
		d.crowd.most = max(d.crowd.most, len(d.crowd.making))
		d.crowd.mu.Unlock()
	}
	if staged && strings.HasPrefix(id, "held-") {
		<-d.crowd.passed
	}
	return d.FS.Open(name)
}

func (d crowdFS) Rename(from, to string) error {
	err := d.FS.Rename(from, to)
	if err == nil && path.Dir(from) == disk.StagingDir {
		d.crowd.mu.Lock()
		delete(d.crowd.making, path.Base(from))
		d.crowd.mu.Unlock()
	}
	return err
}

// untilFree tries again while another operation on the same volume or source is under way.
func untilFree(do func() error) (err error) {
	for range attempts {
		if err = do(); err == nil || !strings.Contains(err.Error(), "an earlier operation on ") {
			return err
		}
		time.Sleep(10 * time.Millisecond)
	}
	return err
}

// requests are volumes that are asked for until they are whole.
type requests struct {
	node    *node
	answers map[string]chan error
}

func (r *requests) ask(ctx context.Context, id string, from *store.Source) {
	s, answer := spec(id), make(chan error, 1)
	s.Source, r.answers[id] = from, answer
	go func() {
		answer <- untilFree(func() error {
			_, err := r.node.createWhole(ctx, s)
			return err
		})
	}()
}

// TestMoreCopiesThanSlots: so many are made at once, and the others wait. A pod, a deletion or the end of the driver
// ends one that waits without waiting for those that are made.
func TestMoreCopiesThanSlots(t *testing.T) {
	root := t.TempDir()
	n := startAt(t, root)
	must(t, sized(t, n, "pvc-1", 1, nil))
	n.fill(t, "pvc-1")
	must(t, snapshot(t, n, snap1, "pvc-1"))
	c := &crowd{Host: disk.NewHost("/"), making: map[string]bool{}, passed: make(chan struct{})}
	n = startAt(t, root, withHost(c))
	must(t, openPool(t.Context(), n))
	r := requests{n, map[string]chan error{}}
	for i := range slots {
		r.ask(t.Context(), fmt.Sprint("held-", i), fromSnapshot(snap1))
	}
	waittest.Until(t, "all slots are taken", func() bool { return c.peak() == slots })
	r.ask(t.Context(), "left-1", fromVolume("pvc-1"))
	r.ask(t.Context(), "left-2", fromSnapshot(snap1))
	for i := range 4 {
		r.ask(t.Context(), fmt.Sprint("late-", i), fromSnapshot(snap1))
	}
	waittest.Until(t, "the others wait", func() bool {
		count, _, _ := n.Copying()
		return count == slots+6 || c.peak() > slots
	})
	must(t, untilFree(func() error { return n.Publish(t.Context(), publish("pvc-1", target)) }))
	wants(t, <-r.answers["left-1"], volume.ErrPublished)
	must(t, untilFree(func() error { return n.Delete(t.Context(), "left-2") }))
	wants(t, <-r.answers["left-2"], volume.ErrBusy)
	close(c.passed)
	for id, answer := range r.answers {
		if strings.HasPrefix(id, "left-") {
			continue
		}
		if err := <-answer; err != nil {
			t.Errorf("%s: %v", id, err)
		}
		n.kept(t, id, "whole")
	}
	if most := c.peak(); most != slots {
		t.Errorf("%d copies were made at once", most)
	}
	n.consistent(t, "all are whole")
}
