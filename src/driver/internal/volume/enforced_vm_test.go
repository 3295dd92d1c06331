//go:build vm

package volume_test

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/volume"
)

// enforcingDisks are /dev/disk/{xfs,ext4} of a VM of tests/vm, whose kernel has project quota.
func enforcingDisks() map[string]enforcingDisk {
	mounted := func(kind string) func(tb testing.TB) string {
		return func(tb testing.TB) string {
			tb.Helper()
			root := tb.TempDir()
			if err := unix.Mount("/dev/disk/"+kind, root, kind, 0, "prjquota"); err != nil {
				tb.Fatalf("mount %s: %v", kind, err)
			}
			tb.Cleanup(func() {
				if err := unix.Unmount(root, 0); err != nil {
					tb.Errorf("unmount %s: %v", kind, err)
				}
			})
			return root
		}
	}
	return map[string]enforcingDisk{
		"xfs":  {mount: mounted("xfs"), enforcement: volume.Cooperative, more: checkProject},
		"ext4": {mount: mounted("ext4"), enforcement: volume.Cooperative, more: checkProject},
	}
}

// checkProject looks at what df shows inside the volume, at its stats, and at an inode limit.
func checkProject(t *testing.T, m *volume.Locked, root, dir string, v volume.Volume) {
	t.Helper()
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil || int64(st.Blocks)*st.Bsize != 96<<20 {
		t.Errorf("df shows %d bytes, %v; want 96 MiB", int64(st.Blocks)*st.Bsize, err)
	}
	if err := m.Publish(t.Context(), volume.PublishRequest{ID: v.ID, Target: target}); err != nil {
		t.Fatal(err)
	}
	stats, _, err := m.Stats(t.Context(), v.ID, target)
	if err != nil || !stats.Own || stats.Bytes != 96<<20 || stats.BytesUsed < 79<<20 || stats.BytesUsed+stats.BytesAvailable != stats.Bytes || stats.InodesUsed != 3 {
		t.Errorf("stats: %+v, %v", stats, err)
	}
	if err := m.Unpublish(t.Context(), v.ID, target); err != nil {
		t.Fatal(err)
	}
	s := spec("pvc-few")
	s.Inodes = 5
	few, err := m.Create(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	if got := accounts(t, root)[few.ProjectID]; got.Limit.Inodes != 5 || got.Limit.Bytes != few.Bytes {
		t.Errorf("limits of a volume of 5 inodes: %+v", got)
	}
	made := 0
	err = withoutResource(func() error {
		for ; made < 10; made++ {
			if err := os.WriteFile(filepath.Join(root, "pool", "csi", few.ID, strconv.Itoa(made)), nil, 0o600); err != nil {
				return err
			}
		}
		return nil
	})
	if got := accounts(t, root)[few.ProjectID]; !full(err) || made != 4 || got.InodesUsed != 5 {
		t.Errorf("a volume of 5 inodes takes %d files besides its directory and uses %d: %v", made, got.InodesUsed, err)
	}
	if err := m.Delete(t.Context(), few.ID); err != nil {
		t.Error(err)
	}
}
