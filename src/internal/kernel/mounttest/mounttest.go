// Package mounttest gives tests disks that are gone when they are over. They need root, and those on a loop device the
// programs that make them.
package mounttest

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Image makes a file of a size in bytes, of which only what is written takes room, and a filesystem in it unless kind
// is "".
func Image(tb testing.TB, path, kind string, bytes int64) {
	tb.Helper()
	if err := errors.Join(os.WriteFile(path, nil, 0o600), os.Truncate(path, bytes)); err != nil {
		tb.Fatal(err)
	}
	if kind != "" {
		Run(tb, "mkfs."+kind, "-q", path)
	}
}

// Device makes a loop device of an image, with options of losetup.
func Device(tb testing.TB, image string, options ...string) string {
	tb.Helper()
	device := Run(tb, "losetup", append(options, "--find", "--show", image)...)
	tb.Cleanup(func() { Run(tb, "losetup", "--detach", device) })
	return device
}

// Disk mounts a new filesystem of a size in bytes at a new directory, which every user can reach.
func Disk(tb testing.TB, kind string, bytes int64, options ...string) (root string) {
	tb.Helper()
	image, root := filepath.Join(tb.TempDir(), "image"), tb.TempDir()
	if err := os.Chmod(filepath.Dir(root), 0o755); err != nil { //nolint:gosec // see above
		tb.Fatal(err)
	}
	Image(tb, image, kind, bytes)
	Loop(tb, image, root, options...)
	return root
}

// Loop mounts an image, with options of mount.
func Loop(tb testing.TB, image, path string, options ...string) {
	tb.Helper()
	Run(tb, "mount", "-o", strings.Join(append(options, "loop"), ","), image, path)
	unmount(tb, path)
}

// Mount mounts a device until the test is over, and fails it if something still holds it open then.
func Mount(tb testing.TB, device, path, kind, options string) {
	tb.Helper()
	if err := unix.Mount(device, path, kind, 0, options); err != nil {
		tb.Fatalf("mount %s at %s with %q (this needs root): %v", device, path, options, err)
	}
	unmount(tb, path)
}

// Tmpfs mounts a new disk in memory until the test is over, whatever is mounted on it then.
func Tmpfs(tb testing.TB, path, options string) {
	tb.Helper()
	if err := unix.Mount("none", path, "tmpfs", 0, options); err != nil {
		tb.Fatalf("mount a tmpfs at %s (this needs root): %v", path, err)
	}
	tb.Cleanup(func() { _ = unix.Unmount(path, unix.MNT_DETACH) })
}

func unmount(tb testing.TB, path string) {
	tb.Helper()
	tb.Cleanup(func() {
		err := unix.Unmount(path, 0)
		// A program that another test starts has all open files of this process until its exec.
		for tries := 0; errors.Is(err, unix.EBUSY) && tries < 50; tries++ {
			time.Sleep(100 * time.Millisecond)
			err = unix.Unmount(path, 0)
		}
		if err != nil && !errors.Is(err, unix.EINVAL) { // EINVAL: the test has done it
			tb.Errorf("something holds %s open: %v", path, errors.Join(err, unix.Unmount(path, unix.MNT_DETACH)))
		}
	})
}

// Run runs a program and returns what it prints. It also works in a clean-up, when the test's context is over.
func Run(tb testing.TB, program string, args ...string) string {
	tb.Helper()
	out, err := exec.Command(program, args...).CombinedOutput() //nolint:gosec,noctx // a test's own
	if err != nil {
		tb.Fatalf("%s %v (this needs root, util-linux, e2fsprogs, xfsprogs and btrfs-progs): %v\n%s", program, args,
			err, out)
	}
	return strings.TrimSpace(string(out))
}
