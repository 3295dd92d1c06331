package disk_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/disk"
)

// What only the real disk can show: mounts and filesystems.

func mustMount(t *testing.T, source, target, kind string, flags uintptr) {
	t.Helper()
	if err := unix.Mount(source, target, kind, flags, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(target, unix.MNT_DETACH) })
}

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
			mustMount(t, "hpp-test", root+over, "tmpfs", 0)
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
	mustMount(t, "hpp-test", root+"/pool/csi/volume", "tmpfs", 0)
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

func TestReadOnlyFilesystem(t *testing.T) {
	requireRoot(t)
	root := t.TempDir()
	h := disk.NewHost(root)
	mustMount(t, "hpp-test", root, "tmpfs", 0)
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
			root := loop(t, kind, size)
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

// loop makes a filesystem in a file and mounts it.
func loop(t *testing.T, kind string, size int64) string {
	t.Helper()
	mkfs := "mkfs." + kind
	if _, err := exec.LookPath(mkfs); err != nil {
		t.Fatalf("%v: install the package e2fsprogs, xfsprogs or btrfs-progs that has it", err)
	}
	image, dir := filepath.Join(t.TempDir(), "image"), t.TempDir()
	if err := os.WriteFile(image, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(image, size); err != nil {
		t.Fatal(err)
	}
	for _, command := range [][]string{{mkfs, "-q", image}, {"mount", "-o", "loop", image, dir}} {
		if out, err := exec.CommandContext(t.Context(), command[0], command[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", command, err, out)
		}
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, 0); err != nil {
			t.Errorf("umount %s: %v", dir, err)
		}
	})
	return dir
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
