//go:build vm

package sanity_test

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// filesystems are the disks /dev/disk/{xfs,ext4} of a VM of tests/vm, whose kernel has project quota, or NFS, if the
// last argument says so.
func filesystems() []string {
	if os.Args[len(os.Args)-1] == nfs {
		return []string{nfs}
	}
	return []string{"xfs", "ext4"}
}

func requires(filesystem string) bool { return filesystem != nfs }

func shared(filesystem string) bool { return filesystem == nfs }

func enforcement(filesystem string) string {
	if filesystem == nfs {
		return "none"
	}
	return "cooperative"
}

// mountPool mounts a disk.
func mountPool(t *testing.T, filesystem, pool, _ string) {
	t.Helper()
	if err := os.Mkdir(pool, 0o700); err != nil {
		t.Fatal(err)
	}
	if filesystem == nfs {
		mountNFS(t, pool)
	} else if err := unix.Mount("/dev/disk/"+filesystem, pool, filesystem, 0, "prjquota"); err != nil {
		t.Fatalf("mount the disk %s: %v", filesystem, err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(pool, 0); err != nil {
			t.Errorf("unmount the pool on %s: something holds it open: %v", filesystem, err)
		}
	})
}

// buildDriver is the binary that the test on the host has put into the VM.
func buildDriver(*testing.T) string { return "/driver" }

// keepLog shows the log: no file leaves the VM.
func (d *instance) keepLog(t *testing.T) {
	t.Helper()
	t.Logf("log of the driver on %s:\n%s", d.filesystem, d.Log())
}
