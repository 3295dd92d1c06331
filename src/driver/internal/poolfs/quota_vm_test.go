//go:build vm

package poolfs_test

import (
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/poolfs"
)

// realQuotas are those of the disks /dev/disk/{xfs,ext4} of a VM of tests/vm, whose kernel has project quota.
func realQuotas() map[string]func(t *testing.T) poolfs.FS {
	mounted := func(kind string) func(t *testing.T) poolfs.FS {
		return func(t *testing.T) poolfs.FS {
			t.Helper()
			root := t.TempDir()
			if err := unix.Mount("/dev/disk/"+kind, root, kind, 0, "prjquota"); err != nil {
				t.Fatalf("mount %s: %v", kind, err)
			}
			t.Cleanup(func() {
				if err := unix.Unmount(root, 0); err != nil {
					t.Errorf("unmount %s: %v", kind, err)
				}
			})
			return opened(t, poolfs.NewHost("/"), root+"/pool")
		}
	}
	return map[string]func(t *testing.T) poolfs.FS{"xfs": mounted("xfs"), "ext4": mounted("ext4")}
}
