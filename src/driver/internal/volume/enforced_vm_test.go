//go:build vm

package volume_test

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/quota"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/volume"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/kernel/mounttest"
)

// enforcedDisks are /dev/disk/{xfs,ext4} of a VM of tests/vm, whose kernel has project quota.
func enforcedDisks() map[string]enforcedDisk {
	disks := map[string]enforcedDisk{}
	for _, kind := range []string{"xfs", "ext4"} {
		mount := func(tb testing.TB) string { tb.Helper(); return mountKind(tb, kind) }
		disks[kind] = enforcedDisk{
			mount: mount, enforcement: quota.Cooperative, place: directory, more: checkProject,
			copies: copyOperations(),
		}
	}
	return disks
}

// mountKind mounts the VM's disk of that name, which begins with the filesystem's.
func mountKind(tb testing.TB, kind string) (root string) {
	tb.Helper()
	root = tb.TempDir()
	filesystem, _, _ := strings.Cut(kind, "-")
	mounttest.Mount(tb, "/dev/disk/"+kind, root, filesystem, "prjquota")
	return root
}

// directory makes a directory, as an admin does who restores a volume.
func directory(tb testing.TB, path string) {
	tb.Helper()
	must(tb, os.Mkdir(path, 0o777))
}

// checkProject looks at what df shows inside the volume, at its stats, and at an inode limit.
func checkProject(t *testing.T, n *node, dir string, v volume.Volume) {
	t.Helper()
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil || int64(st.Blocks)*st.Bsize != 96*mebibyte {
		t.Errorf("df shows %d bytes, %v; want 96 MiB", int64(st.Blocks)*st.Bsize, err)
	}
	must(t, n.Publish(t.Context(), publish(v.ID, target)))
	stats, err := n.Stats(t.Context(), v.ID, target)
	if err != nil || stats.Bytes != 96*mebibyte || stats.BytesUsed < 79*mebibyte ||
		stats.BytesUsed+stats.BytesAvailable != stats.Bytes || stats.InodesUsed != 3 {
		t.Errorf("stats: %+v, %v", stats, err)
	}
	must(t, n.Unpublish(t.Context(), v.ID, target))
	s := spec("pvc-few")
	s.Inodes = 5
	few, err := n.Create(t.Context(), s)
	must(t, err)
	made := 0
	err = withoutResource(func() error {
		for ; made < 10; made++ {
			name := filepath.Join(filepath.Dir(dir), few.ID, strconv.Itoa(made))
			if err := os.WriteFile(name, nil, 0o600); err != nil {
				return err
			}
		}
		return nil
	})
	if !full(err) || made != 4 {
		t.Errorf("a volume of 5 inodes takes %d files besides its directory: %v", made, err)
	}
	must(t, n.Delete(t.Context(), few.ID))
}
