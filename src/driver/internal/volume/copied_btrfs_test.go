//go:build !vm

package volume_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/disk"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/quota"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/store"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/volume"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/kernel/mounttest"
)

// copied has a volume in pool local, and a copy of it with its record in pool other. It gives a node that has only the
// latter: on one with both the id is that of the first pool.
func copied(t *testing.T) (root string, n *node) {
	t.Helper()
	root = btrfsDisk(t)
	both := startAt(t, root, twoPools(root), required)
	must(t, both.openPool(t.Context(), "local"), both.openPool(t.Context(), "other"))
	mustCreate(t, both, "pvc-1")
	both.fill(t, "pvc-1")
	from, to := filepath.Join(root, "pool/csi"), filepath.Join(root, "other/csi")
	mounttest.Run(t, "cp", "-a", from+"/pvc-1", to+"/pvc-1")
	mounttest.Run(t, "cp", "-a", from+"/"+store.Path("pvc-1"), to+"/"+store.Path("pvc-1"))
	return root, startOther(t, root)
}

// startOther starts a node whose only pool is that of the copy.
func startOther(t *testing.T, root string) *node {
	t.Helper()
	other := retained("local", filepath.Join(root, "other"))
	n := startAt(t, filepath.Join(root, "apart"), withPools(other), required)
	must(t, openPool(t.Context(), n))
	return n
}

// original gives the limit of the volume that was copied.
func original(t *testing.T, root string) (r store.Record, limit int64) {
	t.Helper()
	n := startAt(t, root, required)
	must(t, openPool(t.Context(), n))
	v, health, err := n.Get(t.Context(), "pvc-1")
	if err != nil || v.Enforcement != quota.Strict || health.Condition != volume.Healthy {
		t.Errorf("the original: %+v, %+v, %v", v, health, err)
	}
	n.kept(t, "pvc-1", "the original")
	return v.Record, n.limits(t)[v.QuotaID]
}

// TestPoolCopiedIntoAnother: two pools on one filesystem, and a volume that somebody copied from one into the other.
func TestPoolCopiedIntoAnother(t *testing.T) {
	root, n := copied(t)
	if s := n.status(); s.Uncounted != 1 || s.Volumes != 1 || !n.warned("VolumeNotEnforced", "pvc-1") {
		t.Errorf("%+v", s)
	}
	must(t, n.Publish(t.Context(), publish("pvc-1", target)))
	_, err := n.Expand(t.Context(), "pvc-1", 2*mebibyte, 0)
	wants(t, err, volume.ErrNotEnforced, "kubectl hpp enforce pvc-1")
	must(t, n.Unpublish(t.Context(), "pvc-1", target), n.Delete(t.Context(), "pvc-1"), n.purge(t.Context()))
	if _, limit := original(t, root); limit != mebibyte {
		t.Errorf("the delete of the copy has left the original a limit of %d", limit)
	}
	n.clock.advance(2 * time.Hour)
	must(t, n.purge(t.Context()))
	if _, places := n.find(t, "pvc-1"); len(places) != 0 {
		t.Errorf("the copy's data is at %v", places)
	}
	if _, limit := original(t, root); limit != mebibyte {
		t.Errorf("the purge of the copy has left the original a limit of %d", limit)
	}
}

// TestCopyIsEnforced: a copy gets an ID of its own; a plain directory is refused with the command that makes it a
// subvolume.
func TestCopyIsEnforced(t *testing.T) {
	root, _ := copied(t)
	both := startAt(t, root, required, twoPools(root))
	must(t, both.openPool(t.Context(), "local"), both.openPool(t.Context(), "other"))
	for _, s := range both.set.Status() {
		if want := map[string]int{"local": 0, "other": 1}[s.Name]; s.Uncounted != want {
			t.Errorf("pool %s has %d volumes that nothing is enforced on, want %d", s.Name, s.Uncounted, want)
		}
	}
	// An id is that of one pool. What an admin does then: give the copy another.
	csi := filepath.Join(root, "other/csi")
	r, _ := original(t, root)
	data, err := os.ReadFile(filepath.Join(csi, store.Path("pvc-1")))
	must(t, err)
	renamed := strings.ReplaceAll(string(data), `"pvc-1"`, `"pvc-2"`)
	must(t, os.WriteFile(filepath.Join(csi, store.Path("pvc-2")), []byte(renamed), 0o600),
		os.Remove(filepath.Join(csi, store.Path("pvc-1"))), os.Rename(csi+"/pvc-1", csi+"/pvc-2"))
	both = startAt(t, root, required, twoPools(root))
	must(t, both.openPool(t.Context(), "local"), both.openPool(t.Context(), "other"))
	err = both.Enforce(t.Context(), "pvc-2", nil, func(int64) {})
	wants(t, err, quota.ErrUnsupported, "btrfs subvolume create pvc-2.new", "mv pvc-2.new pvc-2")
	mounttest.Run(t, "sh", "-ec", "cd "+csi+"; btrfs -q subvolume create pvc-2.new; "+
		"cp -a --reflink=never pvc-2/. pvc-2.new/; "+
		"mv pvc-2 old; mv pvc-2.new pvc-2; rm -r old")
	must(t, both.Enforce(t.Context(), "pvc-2", nil, func(int64) {}))
	v, _, err := both.Get(t.Context(), "pvc-2")
	if err != nil || v.Enforcement != quota.Strict || v.QuotaID == r.QuotaID || v.QuotaID == 0 {
		t.Errorf("the copy: %+v, %v; the original has %d", v, err, r.QuotaID)
	}
	both.consistent(t, "enforced")
	must(t, both.Delete(t.Context(), "pvc-2"))
	both.consistent(t, "deleted")
	if _, limit := original(t, root); limit != mebibyte {
		t.Errorf("the original has a limit of %d", limit)
	}
}

// TestFlagsOnAVolume: a privileged pod may set flags on a volume's root that forbid to move and to remove it.
func TestFlagsOnAVolume(t *testing.T) {
	for _, flags := range []string{"+i", "+a", "+ia"} {
		t.Run(flags, func(t *testing.T) {
			n := startAt(t, btrfsDisk(t), required)
			mustCreate(t, n, "pvc-1")
			n.fill(t, "pvc-1")
			must(t, os.Mkdir(n.path("pvc-1", "below"), 0o700))
			mounttest.Run(t, "chattr", flags, n.path("pvc-1", "below"), n.path("pvc-1"))
			must(t, n.Delete(t.Context(), "pvc-1"))
			n.consistent(t, "deleted")
			n.purgeAll(t)
			n.unlimited(t)
		})
	}
}

// TestReadOnlySnapshotIsPurged: a pod with the rights for it made one inside its volume.
func TestReadOnlySnapshotIsPurged(t *testing.T) {
	for name, options := range map[string][]option{"no quota": nil, "simple quota": {required}} {
		t.Run(name, func(t *testing.T) {
			n := startAt(t, btrfsDisk(t), options...)
			mustCreate(t, n, "pvc-1")
			n.fill(t, "pvc-1")
			subvolume(t, n.path("pvc-1", "inner"))
			must(t, os.WriteFile(n.path("pvc-1", "inner", "file"), []byte("x"), 0o600))
			mounttest.Run(t, "btrfs", "-q", "subvolume", "snapshot", "-r", n.path("pvc-1", "inner"),
				n.path("pvc-1", "snapshot"))
			must(t, n.Delete(t.Context(), "pvc-1"))
			n.purgeAll(t)
			n.unlimited(t)
			if left := n.ls(t, disk.TrashDir); len(left) != 1 {
				t.Errorf("the trash has %v", left)
			}
		})
	}
}
