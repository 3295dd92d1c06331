package beneath

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// dig makes a chain of directories, with a file in the deepest.
func dig(tb testing.TB, top, name string, depth int) {
	tb.Helper()
	fd, err := unix.Open(top, unix.O_PATH|unix.O_DIRECTORY, 0)
	must(tb, err)
	for range depth {
		must(tb, unix.Mkdirat(fd, name, 0o700))
		next, err := unix.Openat(fd, name, unix.O_PATH|unix.O_DIRECTORY, 0)
		must(tb, err)
		must(tb, unix.Close(fd))
		fd = next
	}
	file, err := unix.Openat(fd, "file", unix.O_CREAT|unix.O_WRONLY, 0o600)
	must(tb, err)
	must(tb, unix.Close(file))
	must(tb, unix.Close(fd))
}

// descriptors counts the open files of this process.
func descriptors(tb testing.TB) int {
	tb.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	must(tb, err)
	return len(entries)
}

// TestDeepTree removes a tree far deeper than PATH_MAX and than the window, with few descriptors.
func TestDeepTree(t *testing.T) {
	d, path := open1(t)
	const depth = 1500 // with a name of 50 bytes that is 18 times PATH_MAX
	must(t, d.Mkdir("tree", 0o700))
	dig(t, path+"/tree", strings.Repeat("x", 50), depth)
	before, most, calls := descriptors(t), 0, 0
	err := d.RemoveTree(t.Context(), "tree", func(context.Context) error {
		if calls++; calls%100 == 0 {
			most = max(most, descriptors(t))
		}
		return nil
	})
	must(t, err)
	if calls != depth+2 {
		t.Errorf("%d removals, want %d", calls, depth+2)
	}
	if most-before > window+8 {
		t.Errorf("%d descriptors were open, want no more than %d", most-before, window+8)
	}
	if now := descriptors(t); now != before {
		t.Errorf("%d descriptors are left open", now-before)
	}
	gone(t, d, "tree")
}

func gone(tb testing.TB, d *Dir, name string) {
	tb.Helper()
	if _, err := d.Stat(name); !errors.Is(err, fs.ErrNotExist) {
		tb.Errorf("%s: %v, want it gone", name, err)
	}
}

// TestDeepTreeInterrupted stops in the depth, and takes the work up again.
func TestDeepTreeInterrupted(t *testing.T) {
	d, path := open1(t)
	must(t, d.Mkdir("tree", 0o700))
	dig(t, path+"/tree", "x", 500)
	before := descriptors(t)
	tired := errors.New("tired")
	for rounds := 0; ; rounds++ {
		calls := 0
		err := d.RemoveTree(t.Context(), "tree", func(context.Context) error {
			if calls++; calls > 200 {
				return tired
			}
			return nil
		})
		if err == nil {
			if rounds != 2 {
				t.Errorf("done after %d interruptions, want 2", rounds)
			}
			break
		}
		wants(t, err, tired)
	}
	gone(t, d, "tree")
	if now := descriptors(t); now != before {
		t.Errorf("%d descriptors are left open", now-before)
	}
}

// TestMovedUnderway moves a directory that is being emptied from under one that fell out of the window: whoever has the
// tree open can do that. The work must end, and not go on in the place that the directory was moved to.
func TestMovedUnderway(t *testing.T) {
	d, path := open1(t)
	must(t, d.Mkdir("tree", 0o700))
	must(t, d.Mkdir("other", 0o700))
	must(t, d.WriteFile("other/kept", nil, 0o600))
	dig(t, path+"/tree", "x", 3*window)
	moved := path + "/tree" + strings.Repeat("/x", window) // its parent is not open when the bottom is reached
	once := true
	err := d.RemoveTree(t.Context(), "tree", func(context.Context) error {
		if once {
			once = false
			return os.Rename(moved, path+"/other/x")
		}
		return nil
	})
	wants(t, err, unix.EAGAIN)
	if _, err := d.Stat("other/kept"); err != nil {
		t.Errorf("something beside the tree was removed: %v", err)
	}
	must(t, d.RemoveTree(t.Context(), "tree", nil))
}

// TestWideTree removes more entries than one buffer holds, files and directories mixed.
func TestWideTree(t *testing.T) {
	d, path := open1(t)
	const entries = 3000
	must(t, d.Mkdir("tree", 0o700))
	for i := range entries {
		name := fmt.Sprintf("%s/tree/%d", path, i)
		if i%2 == 0 {
			must(t, os.Mkdir(name, 0))
			must(t, os.WriteFile(name+"/file", nil, 0))
		} else {
			must(t, os.WriteFile(name, nil, 0))
		}
	}
	must(t, d.RemoveTree(t.Context(), "tree", nil))
	gone(t, d, "tree")
}

// TestAnyName removes names of every byte, each as a file, a link and a directory.
func TestAnyName(t *testing.T) {
	d, path := open1(t)
	must(t, d.Mkdir("tree", 0o700))
	for b := range 256 {
		if b == 0 || b == '/' {
			continue
		}
		name := path + "/tree/" + string([]byte{byte(b)})
		must(t, os.WriteFile(name+"f", nil, 0o600))
		must(t, os.Symlink("/etc", name+"l"))
		must(t, os.Mkdir(name+"d", 0))
	}
	must(t, d.RemoveTree(t.Context(), "tree", nil))
	gone(t, d, "tree")
	if _, err := os.Stat("/etc/passwd"); err != nil {
		t.Fatal("a link was followed: ", err)
	}
}

// TestWhatStays checks that one thing which cannot be removed is named, keeps only what is above it, and can be
// removed when it is set free.
func TestWhatStays(t *testing.T) {
	tests := []struct {
		name   string
		hold   func(t *testing.T, path string) (release func())
		want   error
		naming string
	}{
		{"mount", func(t *testing.T, path string) func() {
			must(t, unix.Mount("hpp-test", path+"/tree/a/held", "tmpfs", 0, ""))
			must(t, os.WriteFile(path+"/tree/a/held/file", nil, 0o600))
			return func() { must(t, unix.Unmount(path+"/tree/a/held", 0)) }
		}, syscall.EXDEV, "/tree/a/held"},
		{"mounted file", func(t *testing.T, path string) func() {
			must(t, os.WriteFile(path+"/tree/a/held/file", nil, 0o600))
			must(t, unix.Mount("/etc/hostname", path+"/tree/a/held/file", "", unix.MS_BIND, ""))
			return func() { must(t, unix.Unmount(path+"/tree/a/held/file", 0)) }
		}, syscall.EBUSY, "/tree/a/held/file"},
		{"immutable file", func(t *testing.T, path string) func() {
			must(t, os.WriteFile(path+"/tree/a/held/file", nil, 0o600))
			run(t, "chattr", "+i", path+"/tree/a/held/file")
			return func() { run(t, "chattr", "-i", path+"/tree/a/held/file") }
		}, syscall.EPERM, "/tree/a/held/file"},
		{"append-only directory", func(t *testing.T, path string) func() {
			must(t, os.WriteFile(path+"/tree/a/held/file", nil, 0o600))
			run(t, "chattr", "+a", path+"/tree/a/held")
			return func() { run(t, "chattr", "-a", path+"/tree/a/held") }
		}, syscall.EPERM, "/tree/a/held/file"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			d, path := open1(t)
			for _, name := range []string{"tree", "tree/a", "tree/a/held", "tree/a/x", "tree/b", "tree/b/x"} {
				must(t, d.Mkdir(name, 0o700))
			}
			release := test.hold(t, path)
			err := d.RemoveTree(t.Context(), "tree", nil)
			wants(t, err, test.want)
			var named *fs.PathError
			if !errors.As(err, &named) || named.Path != path+test.naming {
				t.Errorf("error %v does not name %s", err, test.naming)
			}
			if errors.Is(test.want, syscall.EPERM) && !strings.Contains(err.Error(), "chattr") {
				t.Errorf("error %v does not say why", err)
			}
			gone(t, d, "tree/b")
			gone(t, d, "tree/a/x")
			release()
			must(t, d.RemoveTree(t.Context(), "tree", nil))
			gone(t, d, "tree")
		})
	}
}

// TestManyStay counts what stays, and comes to an end although directories that were left are listed again.
func TestManyStay(t *testing.T) {
	d, path := open1(t)
	must(t, d.Mkdir("tree", 0o700))
	for _, branch := range []string{"a", "b", "c"} {
		must(t, os.Mkdir(path+"/tree/"+branch, 0o700))
		dig(t, path+"/tree/"+branch, "x", 2*window)
		file := path + "/tree/" + branch + strings.Repeat("/x", 2*window) + "/file"
		run(t, "chattr", "+i", file)
		t.Cleanup(func() { run(t, "chattr", "-i", file) })
	}
	err := d.RemoveTree(t.Context(), "tree", nil)
	wants(t, err, syscall.EPERM)
	if err == nil || !strings.Contains(err.Error(), "2 more") {
		t.Errorf("error %v does not tell of the other 2", err)
	}
}

// TestSubvolumes removes nested btrfs subvolumes, which are other devices but no mounts, and checks that a read-only
// snapshot stays and is named.
func TestSubvolumes(t *testing.T) {
	path := loop(t, "mkfs.btrfs")
	if _, err := exec.LookPath("btrfs"); err != nil {
		t.Fatalf("%v: install the package btrfs-progs", err)
	}
	d, err := Open(path)
	must(t, err)
	defer d.Close()
	run(t, "btrfs", "subvolume", "create", path+"/tree")
	must(t, d.Mkdir("tree/dir", 0o755))
	run(t, "btrfs", "subvolume", "create", path+"/tree/dir/nested")
	dig(t, path+"/tree/dir/nested", "x", 2*window)
	run(t, "btrfs", "subvolume", "create", path+"/tree/dir/nested/x/deeper")
	if _, err := d.Stat("tree/dir/nested/x/deeper"); err != nil {
		t.Errorf("a subvolume is taken for another filesystem: %v", err)
	}
	must(t, d.Rename("tree", "moved"))
	run(t, "btrfs", "subvolume", "snapshot", "-r", path+"/moved", path+"/moved/snapshot")

	err = d.RemoveTree(t.Context(), "moved", nil)
	wants(t, err, syscall.EROFS)
	gone(t, d, "moved/dir")
	run(t, "btrfs", "property", "set", path+"/moved/snapshot", "ro", "false")
	must(t, d.RemoveTree(t.Context(), "moved", nil))
	gone(t, d, "moved")
}
