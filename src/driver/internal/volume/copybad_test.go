package volume_test

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/disk"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/disk/disktest"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/pool"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/store"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/transfer"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/volume"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/kernel/mounttest"
)

// TestBadCopiesByFile are refused, and nothing of them is left.
func TestBadCopiesByFile(t *testing.T) {
	n := withFiles(t, t.TempDir())
	wants(t, sized(t, n, "pvc-2", 15, fromSnapshot(snap1)), volume.ErrOutOfRange, "16Mi", "15Mi")
	wants(t, sized(t, n, "pvc-2", 15, fromVolume("pvc-1")), volume.ErrOutOfRange)
	wants(t, sized(t, n, "pvc-2", 16, fromSnapshot(snap2)), store.ErrNotFound, snap2)
	wants(t, sized(t, n, "pvc-2", 16, fromSnapshot("0001-0009-rook-ceph-7a5c")), store.ErrNotFound)
	n.consistent(t, "refused")
	if all := n.records(t); len(all) != 2 {
		t.Errorf("records of %v", all)
	}
}

// TestPoolIsAwayWhileACopyIsMade: it is promised as much when the pool is back, and goes on. Meanwhile its name is
// taken, and nobody uses it.
func TestPoolIsAwayWhileACopyIsMade(t *testing.T) {
	c := newCloned(t)
	must(t, c.bring(t.Context(), func(batch int) error {
		if batch != 8 {
			return nil
		}
		n, before := c.to, c.to.status()
		away := n.specs[0].Path + ".away"
		must(t, os.Rename(n.specs[0].Path, away))
		wants(t, openPool(t.Context(), n), pool.ErrAbsent)
		must(t, os.Rename(away, n.specs[0].Path), openPool(t.Context(), n))
		if now := n.status(); now.Promised != before.Promised || now.Volumes != before.Volumes || now.Promised == 0 {
			t.Errorf("%d volumes with %d bytes, and before %+v", now.Volumes, now.Promised, before)
		}
		wants(t, sized(t, n, "pvc-2", 16, fromVolume("pvc-3")), volume.ErrExists, "pvc-1", "pvc-3")
		wants(t, sized(t, n, "pvc-2", 16, nil), volume.ErrExists, "nothing")
		wants(t, n.Publish(t.Context(), publish("pvc-2", target)), volume.ErrFilling)
		return nil
	}))
	must(t, c.create(t.Context()))
	hasFiles(t, c.to.path("pvc-2"), 'a')
	c.to.consistent(t, "whole")
}

// TestSourceInAnAbsentPool: nobody knows that it is gone.
func TestSourceInAnAbsentPool(t *testing.T) {
	root := t.TempDir()
	n := withFiles(t, root, twoPools(root))
	away := n.specs[0].Path + ".away"
	must(t, os.Rename(n.specs[0].Path, away))
	n = startAt(t, root, twoPools(root))
	must(t, n.openPool(t.Context(), "other"))
	for _, from := range []*store.Source{fromSnapshot(snap1), fromVolume("pvc-1")} {
		s := spec("pvc-2")
		s.Pool, s.Bytes, s.Source = "other", 16*mebibyte, from
		_, err := n.Create(t.Context(), s)
		wants(t, err, pool.ErrAbsent, from.ID)
	}
	wants(t, snapshot(t, n, snap2, "pvc-1"), pool.ErrAbsent, "pvc-1")
	wants(t, n.DeleteSnapshot(t.Context(), snap1), pool.ErrAbsent, snap1)
	n.tidy(t, n.specs[1], "refused")
	must(t, os.Rename(away, n.specs[0].Path), n.openPool(t.Context(), "local"))
	hasFiles(t, n.path(snap1), 'a')
	must(t, n.DeleteSnapshot(t.Context(), snap1))
	n.consistent(t, "back")
}

// stepping starts a node with a volume and its snapshot, on a host whose steps can be counted.
func stepping(t *testing.T, root string) (*node, *disktest.Faulty) {
	t.Helper()
	n := startAt(t, root)
	must(t, openPool(t.Context(), n))
	withVolumeAndSnapshot(t, n)
	host := disktest.NewFaulty(disk.NewHost("/"), 0, nil)
	n = startAt(t, root, withHost(host))
	must(t, openPool(t.Context(), n))
	return n, host
}

// TestSourceIsBeingDeleted: no copy is made of it at any step of that, and none after it.
func TestSourceIsBeingDeleted(t *testing.T) {
	root := memoryDisk(t, "xfs", 1<<30)
	for step := 1; ; step++ {
		n, host := stepping(t, filepath.Join(root, strconv.Itoa(step)))
		begun, meanwhile := host.Steps(), error(nil)
		host.Before(begun+step, func() { meanwhile = sized(t, n, "pvc-2", 1, fromSnapshot(snap1)) })
		must(t, n.DeleteSnapshot(t.Context(), snap1))
		if host.Steps() < begun+step {
			atLeast(t, step-1, 5)
			return
		}
		wants(t, meanwhile, volume.ErrBusy, snap1)
		wants(t, sized(t, n, "pvc-2", 1, fromSnapshot(snap1)), store.ErrNotFound, snap1)
		n.consistent(t, "deleted")
		n.kept(t, "pvc-1", "deleted")
	}
}

// TestSourceIsToBeDeleted: at no step of the making of a copy its source goes.
func TestSourceIsToBeDeleted(t *testing.T) {
	root := memoryDisk(t, "xfs", 1<<30)
	for step := 1; ; step++ {
		n, host := stepping(t, filepath.Join(root, strconv.Itoa(step)))
		begun, meanwhile := host.Steps(), error(nil)
		host.Before(begun+step, func() {
			meanwhile = n.DeleteSnapshot(t.Context(), snap1)
			if r, there := n.records(t)["pvc-2"]; meanwhile == nil && (!there || r.Filling()) {
				t.Errorf("step %d: the source is gone, and its copy is not whole", step)
			}
		})
		must(t, sized(t, n, "pvc-2", 1, fromSnapshot(snap1)))
		if host.Steps() < begun+step {
			atLeast(t, step-1, 20)
			return
		}
		if meanwhile != nil && !errors.Is(meanwhile, volume.ErrBusy) && !errors.Is(meanwhile, volume.ErrCopied) {
			t.Errorf("step %d: %v", step, meanwhile)
		}
		n.kept(t, "pvc-2", "made")
	}
}

// TestCopyOfSharedData is refused where it would be larger than its size: to the source what files share counts once.
func TestCopyOfSharedData(t *testing.T) {
	root := memoryDisk(t, "xfs", 1<<30)
	n := startAt(t, root, twoPools(root))
	must(t, n.openPool(t.Context(), "local"), n.openPool(t.Context(), "other"))
	must(t, sized(t, n, "pvc-1", 16, nil), n.overwrite("pvc-1", 'a', 8))
	for _, name := range []string{"1", "2", "3"} {
		mounttest.Run(t, "cp", "--reflink=always", n.path("pvc-1", "data"), n.path("pvc-1", name))
	}
	for _, in := range []string{"local", "other"} {
		s := spec("pvc-2")
		s.Pool, s.Bytes, s.Source = in, 16*mebibyte, fromVolume("pvc-1")
		_, err := n.createWhole(t.Context(), s)
		wants(t, err, transfer.ErrTooLarge, "pvc-1")
	}
	n.consistent(t, "too large")
	n.has(t, "pvc-1", 'a', 8)
	n.purgeAll(t)
	must(t, sized(t, n, "pvc-3", 40, fromVolume("pvc-1")))
	n.has(t, "pvc-3", 'a', 8)
}
