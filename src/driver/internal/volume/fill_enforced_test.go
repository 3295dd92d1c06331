package volume_test

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/pool"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/quota"
)

// twoPools are pools local and other, on one filesystem.
func twoPools(root string) option {
	return withPools(retained("local", filepath.Join(root, "pool")), retained("other", filepath.Join(root, "other")))
}

// TestCopyIntoAnotherPool: what is copied file by file counts to the copy, which is held to its size from then on.
func TestCopyIntoAnotherPool(t *testing.T) {
	onEnforcedDisks(t, func(t *testing.T, d enforcedDisk, root string) {
		n := startAt(t, root, twoPools(root), required)
		must(t, n.openPool(t.Context(), "local"), n.openPool(t.Context(), "other"))
		must(t, sized(t, n, "pvc-1", 64, nil), n.overwrite("pvc-1", 'a', 40), snapshot(t, n, snap1, "pvc-1"))
		must(t, n.overwrite("pvc-1", 'b', 40))
		n.has(t, snap1, 'a', 40)
		s := spec("pvc-2")
		s.Pool, s.Bytes, s.Source = "other", 64*mebibyte, fromSnapshot(snap1)
		v, err := n.createWhole(t.Context(), s)
		must(t, err)
		if v.Enforcement != d.enforcement || v.Held != 0 || v.Source.From != nil {
			t.Errorf("%+v, %+v", v, v.Source)
		}
		n.consistent(t, "with a copy")
		dir := filepath.Join(n.specs[1].Path, "csi", "pvc-2")
		must(t, syncDirectory(dir))
		used := n.usage(t, v.QuotaID)
		if used < 40*mebibyte || used > 41*mebibyte {
			t.Errorf("40 MiB were copied, and %d bytes count to the copy", used)
		}
		if err := withoutResource(func() error { return write(filepath.Join(dir, "more"), 30) }); !full(err) {
			t.Errorf("64 MiB take 40 and 30 more: %v", err)
		}
		must(t, n.Delete(t.Context(), "pvc-1"), n.DeleteSnapshot(t.Context(), snap1), n.Delete(t.Context(), "pvc-2"))
		n.purgeAll(t)
		n.unlimited(t)
	})
}

// TestFullVolumeIsCopied: a copy has room for all of a source that is full.
func TestFullVolumeIsCopied(t *testing.T) {
	onEnforcedDisks(t, func(t *testing.T, _ enforcedDisk, root string) {
		n := startAt(t, root, twoPools(root), required)
		must(t, n.openPool(t.Context(), "local"), n.openPool(t.Context(), "other"))
		must(t, sized(t, n, "pvc-1", 32, nil))
		err := withoutResource(func() error { return write(n.path("pvc-1", "data"), 40) })
		if !full(err) {
			t.Fatalf("32 MiB take 40: %v", err)
		}
		size := func(dir string) int64 {
			info, err := os.Stat(filepath.Join(dir, "data"))
			must(t, err)
			return info.Size()
		}
		must(t, snapshot(t, n, snap1, "pvc-1"))
		s := spec("pvc-2")
		s.Pool, s.Bytes, s.Source = "other", 32*mebibyte, fromSnapshot(snap1)
		_, err = n.createWhole(t.Context(), s)
		must(t, err)
		n.consistent(t, "with a copy")
		source, there := size(n.path("pvc-1")), size(filepath.Join(n.specs[1].Path, "csi", "pvc-2"))
		if source < 31*mebibyte || there != source || size(n.path(snap1)) != source {
			t.Errorf("%d bytes of %d", there, source)
		}
		if r := n.records(t)[snap1]; r.Source.ByFile && (r.Held < source || r.Held > source+2*mebibyte) {
			t.Errorf("a snapshot of %d bytes is promised %d", source, r.Held)
		}
		must(t, n.Delete(t.Context(), "pvc-1"), n.DeleteSnapshot(t.Context(), snap1), n.Delete(t.Context(), "pvc-2"))
		n.purgeAll(t)
		n.unlimited(t)
	})
}

// usage is what counts to an ID, on the filesystem of the first pool.
func (n *node) usage(t *testing.T, id quota.ID) (bytes int64) {
	t.Helper()
	must(t, n.set.Use(t.Context(), "local", func(o *pool.Open) error {
		usage, err := o.Limits.Usage([]quota.ID{id})
		bytes = usage[id].Bytes
		return err
	}))
	return bytes
}

func syncDirectory(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = dir.Close() }()
	return unix.Syncfs(int(dir.Fd()))
}
