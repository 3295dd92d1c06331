package disk_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/disk"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/kernel/ioctl"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/kernel/mounttest"
)

var errTired = errors.New("tired")

func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

func run(tb testing.TB, name string, arguments ...string) {
	tb.Helper()
	if out, err := exec.Command(name, arguments...).CombinedOutput(); err != nil {
		tb.Fatalf("%s %s: %v\n%s", name, strings.Join(arguments, " "), err, out)
	}
}

// openTemp opens an empty directory of the machine.
func openTemp(tb testing.TB) (disk.FS, string) {
	tb.Helper()
	if os.Geteuid() != 0 {
		tb.Fatal("this test must run as root: it mounts, and changes owners and attributes")
	}
	path := tb.TempDir()
	return openAt(tb, path), path
}

func openAt(tb testing.TB, path string) disk.FS {
	tb.Helper()
	d, err := disk.OpenDir(path)
	must(tb, err)
	tb.Cleanup(func() { must(tb, d.Close()) })
	return d
}

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

// empty wants that nothing is left in a directory.
func empty(tb testing.TB, d disk.FS, name string) {
	tb.Helper()
	if entries, err := d.ReadDir(name); err != nil || len(entries) != 0 {
		tb.Errorf("left: %v, %v", entries, err)
	}
}

// removeInSlices removes a tree in slices of some steps and returns how many it took. No slice may leave a descriptor
// open.
func removeInSlices(tb testing.TB, d disk.FS, name string, steps int) int {
	tb.Helper()
	before := descriptors(tb)
	for n := 1; ; n++ {
		left := steps
		err := d.RemoveTree(tb.Context(), name, func(context.Context) error {
			if left--; left < 0 {
				return errTired
			}
			return nil
		})
		if now := descriptors(tb); now != before {
			tb.Fatalf("%d descriptors are left open", now-before)
		}
		if err == nil {
			return n
		}
		if !errors.Is(err, errTired) {
			tb.Fatal(err)
		}
	}
}

// TestNested removes 200,000 nested directories in slices, as a pod can make them.
func TestNested(t *testing.T) {
	tests := []struct {
		kind         string
		depth, steps int
	}{{"tmpfs", 200_000, 200}, {"tmpfs", 50_000, 2000}, {"ext4", 5000, 200}, {"xfs", 5000, 200}, {"btrfs", 5000, 200}}
	for _, test := range tests {
		t.Run(fmt.Sprint(test), func(t *testing.T) {
			path := filesystem(t, test.kind)
			d := openAt(t, path)
			must(t, d.Mkdir("dir", 0o700))
			must(t, d.Mkdir("dir/tree", 0o700))
			dig(t, path+"/dir/tree", "x", test.depth)
			n := removeInSlices(t, d, "dir/tree", test.steps)
			// One way of 64 directories down and up again takes some 130 steps. No more than that is lost of a slice.
			if most := test.depth/62*130/(test.steps-130) + 2; n > most {
				t.Errorf("%d slices, want no more than %d", n, most)
			}
			t.Logf("%d slices", n)
			empty(t, d, "dir")
		})
	}
}

// filesystem mounts an empty one.
func filesystem(t *testing.T, kind string) string {
	t.Helper()
	if kind != "tmpfs" {
		return mounttest.Disk(t, kind, 512<<20)
	}
	path := t.TempDir()
	mounttest.Tmpfs(t, path, "")
	return path
}

// TestWide removes many files and directories of one directory in small slices.
func TestWide(t *testing.T) {
	const steps = 1000
	for kind, entries := range map[string]int{"tmpfs": 100_000, "ext4": 20_000, "xfs": 20_000, "btrfs": 20_000} {
		t.Run(kind, func(t *testing.T) {
			path := filesystem(t, kind)
			d := openAt(t, path)
			must(t, d.Mkdir("dir", 0o700))
			must(t, d.Mkdir("dir/tree", 0o700))
			for i := range entries {
				name := fmt.Sprintf("%s/dir/tree/%d", path, i)
				if i%10 == 0 {
					must(t, os.Mkdir(name, 0))
				} else {
					must(t, os.WriteFile(name, nil, 0))
				}
			}
			if n, most := removeInSlices(t, d, "dir/tree", steps), entries*12/10/steps+1; n > most {
				t.Errorf("%d slices, want no more than %d", n, most)
			}
			empty(t, d, "dir")
		})
	}
}

// TestBushy removes a tree that is deep in many places, so that many directories are moved up.
func TestBushy(t *testing.T) {
	path := filesystem(t, "tmpfs")
	d := openAt(t, path)
	must(t, d.Mkdir("tree", 0o700))
	dig(t, path+"/tree", "x", 60)
	deep := path + "/tree" + strings.Repeat("/x", 60)
	for i := range 300 {
		name := fmt.Sprintf("%s/%d", deep, i)
		must(t, os.Mkdir(name, 0o700))
		dig(t, name, "y", 100)
	}
	if n := removeInSlices(t, d, "tree", 200); n > 300*100*4/100 {
		t.Errorf("%d slices", n)
	}
	empty(t, d, ".")
}

// TestDescriptors counts what is open in the depth of a tree, far below PATH_MAX.
func TestDescriptors(t *testing.T) {
	d, path := openTemp(t)
	must(t, d.Mkdir("tree", 0o700))
	dig(t, path+"/tree", strings.Repeat("x", 200), 1500)
	before, most := descriptors(t), 0
	must(t, d.RemoveTree(t.Context(), "tree", func(context.Context) error {
		most = max(most, descriptors(t))
		return nil
	}))
	if most-before > 70 {
		t.Errorf("%d descriptors were open", most-before)
	}
	empty(t, d, ".")
}

// TestMovedIntoTheTop lets a project that the directory hands on refuse what is moved beside the name. (XFS checks it
// without quota too.)
func TestMovedIntoTheTop(t *testing.T) {
	path := mounttest.Disk(t, "xfs", 512<<20)
	d := openAt(t, path)
	must(t, d.Mkdir("entry", 0o700))
	must(t, d.Mkdir("entry/tree", 0o700))
	dig(t, path+"/entry/tree", "x", 1000)
	project(t, path+"/entry", 77)
	must(t, os.Mkdir(path+"/probe", 0o700))
	if err := os.Rename(path+"/probe", path+"/entry/probe"); !errors.Is(err, unix.EXDEV) {
		t.Fatalf("a rename into the project: %v, want %v", err, unix.EXDEV)
	}
	if n := removeInSlices(t, d, "entry/tree", 200); n > 1000/62*130/70+1 {
		t.Errorf("%d slices", n)
	}
	empty(t, d, "entry")
}

// project gives a directory a project that new files inherit (struct fsxattr of include/uapi/linux/fs.h).
func project(t *testing.T, path string, id uint32) {
	t.Helper()
	f, err := os.Open(path)
	must(t, err)
	defer f.Close()
	const getxattr, setxattr, inherit = 0x801c581f, 0x401c5820, 0x200
	var attributes struct {
		xflags, extsize, nextents, projid, cowextsize uint32
		_                                             [8]byte
	}
	must(t, ioctl.Do(f, "get", ioctl.Request(getxattr), &attributes))
	attributes.xflags |= inherit
	attributes.projid = id
	must(t, ioctl.Do(f, "set", ioctl.Request(setxattr), &attributes))
}

// TestFlags removes what is immutable or append-only: the tree itself, a directory and a file in it.
func TestFlags(t *testing.T) {
	for _, kind := range []string{"ext4", "xfs", "btrfs"} {
		for _, flag := range []string{"+i", "+a"} {
			for _, at := range []string{"tree", "tree/a", "tree/a/file", "tree" + strings.Repeat("/x", 100)} {
				name := at[:min(len(at), 11)]
				t.Run(kind+" "+flag+" "+name, func(t *testing.T) {
					path := mounttest.Disk(t, kind, 512<<20)
					d := openAt(t, path)
					must(t, os.MkdirAll(path+"/top/tree/a/b", 0o700))
					must(t, os.WriteFile(path+"/top/tree/a/file", nil, 0o600))
					dig(t, path+"/top/tree", "x", 130)
					run(t, "chattr", flag, path+"/top/"+at)
					must(t, d.RemoveTree(t.Context(), "top/tree", nil))
					must(t, d.Remove("top"))
				})
			}
		}
	}
}

func TestUnlock(t *testing.T) {
	d, path := openTemp(t)
	must(t, d.Mkdir("dir", 0o700))
	run(t, "chattr", "+i", "+a", path+"/dir")
	if err := d.Rename("dir", "moved"); !errors.Is(err, syscall.EPERM) {
		t.Errorf("rename of an immutable directory: %v, want %v", err, syscall.EPERM)
	}
	for range 2 {
		must(t, d.Unlock("dir"))
	}
	must(t, d.Rename("dir", "moved"))
}

// TestSubvolumes removes subvolumes and read-only snapshots of a plain directory on btrfs without quota.
func TestSubvolumes(t *testing.T) {
	path := mounttest.Disk(t, "btrfs", 512<<20)
	d := openAt(t, path)
	must(t, os.MkdirAll(path+"/tree/dir", 0o700))
	run(t, "btrfs", "subvolume", "create", path+"/tree/dir/nested")
	dig(t, path+"/tree/dir/nested", "x", 300)
	run(t, "btrfs", "subvolume", "create", path+"/tree/dir/nested/x/deeper")
	run(t, "btrfs", "subvolume", "snapshot", "-r", path+"/tree/dir/nested", path+"/tree/snapshot")
	run(t, "btrfs", "subvolume", "snapshot", "-r", path+"/tree/dir/nested", path+"/tree/dir/nested/x/x/snapshot")
	must(t, d.RemoveTree(t.Context(), "tree", nil))
	empty(t, d, ".")
	run(t, "btrfs", "subvolume", "create", path+"/tree")
	run(t, "btrfs", "subvolume", "snapshot", "-r", path+"/tree", path+"/tree/snapshot")
	run(t, "chattr", "+i", path+"/tree")
	must(t, d.RemoveTree(t.Context(), "tree", nil))
	empty(t, d, ".")
}

// TestWhatStays checks that mounts are named and counted, that the rest goes, and that they go once they are unmounted.
func TestWhatStays(t *testing.T) {
	d, path := openTemp(t)
	must(t, os.MkdirAll(path+"/tree/a/mounted", 0o700))
	must(t, os.MkdirAll(path+"/tree/b/c", 0o700))
	dig(t, path+"/tree", "x", 200)
	deep := path + "/tree" + strings.Repeat("/x", 150)
	mounttest.Tmpfs(t, path+"/tree/a/mounted", "")
	must(t, os.WriteFile(path+"/tree/a/mounted/file", nil, 0o600))
	mounttest.Tmpfs(t, deep, "")
	err := d.RemoveTree(t.Context(), "tree", nil)
	var named *fs.PathError
	if !errors.As(err, &named) || !errors.Is(err, syscall.EXDEV) || !strings.Contains(err.Error(), "and 1 more") {
		t.Errorf("error %v, want that of one mount and a word of the other", err)
	}
	if _, err := os.Stat(path + "/tree/a/mounted/file"); err != nil {
		t.Error(err)
	}
	if entries, err := d.ReadDir("tree"); err != nil || len(entries) != 1 {
		t.Errorf("left: %v, %v, want a", entries, err)
	}
	table, err := os.ReadFile("/proc/self/mounts")
	must(t, err)
	for line := range strings.Lines(string(table)) {
		if at := strings.Fields(line)[1]; strings.HasPrefix(at, path+"/") {
			must(t, unix.Unmount(at, 0))
		}
	}
	must(t, d.RemoveTree(t.Context(), "tree", nil))
	empty(t, d, ".")
}

// TestTwoAtOnce lets two remove one tree: each passes over what the other one removed or moved.
func TestTwoAtOnce(t *testing.T) {
	path := filesystem(t, "tmpfs")
	d := openAt(t, path)
	must(t, d.Mkdir("tree", 0o700))
	for i := range 20 {
		name := fmt.Sprintf("%s/tree/%d", path, i)
		must(t, os.Mkdir(name, 0o700))
		dig(t, name, "x", 300)
	}
	var both sync.WaitGroup
	for range 2 {
		both.Go(func() { _ = d.RemoveTree(t.Context(), "tree", nil) }) // what one has moved can stay for the other
	}
	both.Wait()
	must(t, d.RemoveTree(t.Context(), "tree", nil))
	empty(t, d, ".")
}

// TestAnyName removes names of every byte, each as a file, a link and a directory.
func TestAnyName(t *testing.T) {
	d, path := openTemp(t)
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
	must(t, unix.Mkfifo(path+"/tree/fifo", 0o600))
	must(t, d.RemoveTree(t.Context(), "tree", nil))
	empty(t, d, ".")
	if _, err := os.Stat("/etc/passwd"); err != nil {
		t.Fatal("a link was followed: ", err)
	}
}
