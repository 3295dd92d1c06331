package disk_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/disk"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/kernel/mounttest"
)

// What only the real disk can show: mounts and filesystems.

// TestMountedLater mounts a disk over a pool between two operations, and takes it away again: each operation sees what
// is there, and none keeps the disk busy.
func TestMountedLater(t *testing.T) {
	for _, over := range []string{"/pool", "/pool/csi"} {
		t.Run(over, func(t *testing.T) {
			requireRoot(t)
			root := t.TempDir()
			h := disk.NewHost(root)
			if err := h.Create("/pool"); err != nil {
				t.Fatal(err)
			}
			before, err := h.Inspect("/pool")
			if err != nil {
				t.Fatal(err)
			}
			mounttest.Tmpfs(t, root+over, "")
			if err := h.Create("/pool"); err != nil {
				t.Fatal(err)
			}
			mounted, err := h.Inspect("/pool")
			if err != nil || mounted.Dev == before.Dev || mounted.FSType != "tmpfs" ||
				mounted.MountPoint != (over == "/pool") || mounted.CSIMountPoint != (over == "/pool/csi") {
				t.Errorf("mounted: %+v, %v", mounted, err)
			}
			f, err := h.Open("/pool")
			if err != nil {
				t.Fatal(err)
			}
			if err := f.Mkdir("volume", 0o777); err != nil {
				t.Error(err)
			}
			if space, err := f.Space(); err != nil || space.Inodes == 0 {
				t.Errorf("space of the tmpfs: %+v, %v", space, err)
			}
			if err := unix.Unmount(root+over, 0); !errors.Is(err, syscall.EBUSY) {
				t.Errorf("umount while it is open: %v, want %v", err, syscall.EBUSY)
			}
			if err := f.Close(); err != nil {
				t.Error(err)
			}
			if err := unix.Unmount(root+over, 0); err != nil {
				t.Errorf("umount after Close: %v", err)
			}
			if after, err := h.Inspect("/pool"); err != nil || after != before {
				t.Errorf("unmounted: %+v, %v, want %+v", after, err, before)
			}
		})
	}
}

// TestMountBelowCSI checks that a filesystem further down is not entered.
func TestMountBelowCSI(t *testing.T) {
	requireRoot(t)
	root := t.TempDir()
	h := disk.NewHost(root)
	if err := h.Create("/pool"); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(root+"/pool/csi/volume", 0o700); err != nil {
		t.Fatal(err)
	}
	mounttest.Tmpfs(t, root+"/pool/csi/volume", "")
	f, err := h.Open("/pool")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	_, err = f.Open("volume")
	checkError(t, err, syscall.EXDEV)
	if err := f.RemoveTree(t.Context(), "volume", nil); !errors.Is(err, syscall.EXDEV) {
		t.Errorf("RemoveTree: %v, want %v", err, syscall.EXDEV)
	}
}

// TestStoppedFilesystem: an ext4 that takes no more writes after an error is read-only, whatever statfs(2) says.
func TestStoppedFilesystem(t *testing.T) {
	root := mounttest.Disk(t, "ext4", 64<<20, "errors=remount-ro")
	h := disk.NewHost(root)
	if err := h.Create("/pool"); err != nil {
		t.Fatal(err)
	}
	d, err := h.Open("/pool")
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	device := mounttest.Run(t, "findmnt", "--noheadings", "--output", "SOURCE", root)
	trigger := filepath.Join("/sys/fs/ext4", filepath.Base(device), "trigger_fs_error")
	if space, err := d.Space(); err != nil || space.ReadOnly {
		t.Fatalf("before the error: %+v, %v", space, err)
	}
	if err := os.WriteFile(trigger, []byte("1"), 0o200); err != nil {
		t.Fatal(err)
	}
	if space, err := d.Space(); err != nil || !space.ReadOnly {
		t.Errorf("its space is %+v, %v", space, err)
	}
	if facts, err := h.Inspect("/pool"); err != nil || !facts.ReadOnly {
		t.Errorf("it is seen as %+v, %v", facts, err)
	}
}

func TestReadOnlyFilesystem(t *testing.T) {
	requireRoot(t)
	root := t.TempDir()
	h := disk.NewHost(root)
	mounttest.Tmpfs(t, root, "")
	if err := h.Create("/pool"); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("", root, "", unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
	if facts, err := h.Inspect("/pool"); err != nil || !facts.ReadOnly {
		t.Errorf("%+v, %v", facts, err)
	}
	checkError(t, h.Create("/pool/deeper"), syscall.EROFS)
	if err := h.Create("/pool"); err != nil {
		t.Errorf("Create of what is there: %v", err)
	}
}

// TestFilesystems checks the names and sizes of the real ones.
func TestFilesystems(t *testing.T) {
	for _, kind := range []string{"ext4", "xfs", "btrfs"} {
		t.Run(kind, func(t *testing.T) {
			requireRoot(t)
			const size = 512 << 20
			root := mounttest.Disk(t, kind, size)
			h := disk.NewHost(root)
			if err := h.Create("/pool"); err != nil {
				t.Fatal(err)
			}
			facts, err := h.Inspect("/pool")
			if err != nil || facts.FSType != kind || strings.Trim(facts.FSID, "0") == "" {
				t.Errorf("%+v, %v", facts, err)
			}
			f, err := h.Open("/pool")
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			space, err := f.Space()
			if err != nil || space.Size > size || space.Size < size/2 || space.Used >= space.Size/2 ||
				space.Free > space.Size-space.Used || (space.Inodes == 0) != (kind == "btrfs") {
				t.Errorf("%+v, %v", space, err)
			}
			for _, err := range []error{
				f.Mkdir("v", 0o777), f.WriteFile("v/f", nil, 0o600), f.Rename("v", "w"), f.Sync("."),
				f.RemoveTree(t.Context(), "w", nil),
			} {
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// TestClusterFilesystems by the numbers that statfs(2) has for them.
func TestClusterFilesystems(t *testing.T) {
	for magic, want := range map[int64]string{
		0x0BD00BD0: "lustre", 0x47504653: "gpfs", 0x19830326: "beegfs", 0x7461636f: "ocfs2", 0x01161970: "gfs2",
		0x6969: "nfs", 0x12345678: "0x12345678",
	} {
		if got := disk.FSType(magic); got != want {
			t.Errorf("%#x is %q, want %q", magic, got, want)
		}
	}
}
