//go:build !vm

package volume_test

import (
	"os"
	"testing"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/disk"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/store"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/volume"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/kernel/mounttest"
)

// TestCopiesOfALockedVolume: a privileged pod may set flags on its volume's root that forbid to move and to remove it,
// and so those of a copy, or make it read-only.
func TestCopiesOfALockedVolume(t *testing.T) {
	for name, lock := range map[string]string{
		"immutable": "chattr +i $0", "append only": "chattr +a $0", "read-only": "btrfs property set -ts $0 ro true",
	} {
		t.Run(name, func(t *testing.T) {
			n := startAt(t, quickBtrfs(t), required)
			mustCreate(t, n, "pvc-1")
			n.fill(t, "pvc-1")
			mounttest.Run(t, "sh", "-c", lock, n.path("pvc-1"))
			must(t, snapshot(t, n, snap1, "pvc-1"), sized(t, n, "pvc-2", 1, fromVolume("pvc-1")),
				sized(t, n, "pvc-3", 1, fromSnapshot(snap1)))
			n.consistent(t, "copied")
			for _, id := range []string{snap1, "pvc-2", "pvc-3"} {
				n.kept(t, id, name)
			}
			if err := write(n.path("pvc-3", "more"), 0); err != nil {
				t.Errorf("a restored volume takes no file: %v", err)
			}
			n.deleteAll(t)
			n.purgeAll(t)
			n.unlimited(t)
		})
	}
}

// TestSnapshotWithABrokenRecord: what it keeps of its source is not known any more, and not given away either. Nothing
// is promised to it, so that volumes can be made.
func TestSnapshotWithABrokenRecord(t *testing.T) {
	root := quickBtrfs(t)
	n := startAt(t, root, required)
	must(t, sized(t, n, "pvc-1", 64, nil), n.overwrite("pvc-1", 'a', 40), snapshot(t, n, snap1, "pvc-1"))
	must(t, os.WriteFile(n.path(store.Path(snap1)), []byte("{"), 0o600))
	n = startAt(t, root, required)
	must(t, openPool(t.Context(), n))
	if err := sized(t, n, "pvc-2", 1, nil); err != nil {
		t.Errorf("the pool makes no volumes: %v", err)
	}
	must(t, n.ReleaseHeld(t.Context()))
	if err := n.overwrite("pvc-1", 'b', 60); err != nil {
		t.Errorf("a volume of 64 MiB does not take 60: %v", err)
	}
}

// TestHoldIsNotInTheRecord: an admin has put an older record of the source back.
func TestHoldIsNotInTheRecord(t *testing.T) {
	root := quickBtrfs(t)
	n := startAt(t, root, required)
	must(t, sized(t, n, "pvc-1", 64, nil), n.overwrite("pvc-1", 'a', 40))
	older, err := os.ReadFile(n.path(store.Path("pvc-1")))
	must(t, err, snapshot(t, n, snap1, "pvc-1"), os.WriteFile(n.path(store.Path("pvc-1")), older, 0o600))
	n = startAt(t, root, required)
	must(t, openPool(t.Context(), n))
	if _, err := n.Expand(t.Context(), "pvc-1", 72*mebibyte, 0); err != nil {
		t.Error(err)
	}
	n.consistent(t, "expanded")
	if err := n.overwrite("pvc-1", 'b', 68); err != nil {
		t.Errorf("a volume of 72 MiB does not take 68: %v", err)
	}
}

// TestSnapshotThatIsNotThere, though its record is, is not answered as made.
func TestSnapshotThatIsNotThere(t *testing.T) {
	n := startAt(t, quickBtrfs(t), required)
	mustCreate(t, n, "pvc-1")
	n.fill(t, "pvc-1")
	must(t, snapshot(t, n, snap1, "pvc-1"), os.Rename(n.path(snap1), n.path(disk.StagingDir, snap1)))
	if err := snapshot(t, n, snap1, "pvc-1"); err != nil {
		t.Errorf("one that could not be moved into place, and not undone: %v", err)
	}
	n.kept(t, snap1, "made again")
	n.consistent(t, "made again")
	mounttest.Run(t, "btrfs", "-q", "subvolume", "delete", n.path(snap1))
	wants(t, snapshot(t, n, snap1, "pvc-1"), volume.ErrLost, snap1)
}
