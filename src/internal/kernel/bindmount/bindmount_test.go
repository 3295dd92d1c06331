package bindmount

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/kernel/mounttest"
)

// bench is a kubelet's directory and a volume, each on a mount of its own that goes with the test.
type bench struct {
	*Tree
	volume string
}

func newBench(tb testing.TB) bench {
	tb.Helper()
	root := tb.TempDir()
	mounttest.Tmpfs(tb, root, "")
	must(tb, unix.Mount("", root, "", unix.MS_SHARED, ""))
	kubelet := filepath.Join(root, "kubelet")
	volume := filepath.Join(root, "pool", "pvc-1")
	must(tb, os.MkdirAll(filepath.Join(kubelet, "pods"), 0o755))
	must(tb, os.MkdirAll(volume, 0o755))
	must(tb, os.WriteFile(filepath.Join(volume, "data"), []byte("kept"), 0o600))
	return bench{Tree: New(kubelet), volume: volume}
}

func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

func (b bench) target() string { return b.path + "/pods/mount" }

// source opens a directory as package disk does.
func source(tb testing.TB, dir string) *os.File {
	tb.Helper()
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	must(tb, err)
	f := os.NewFile(uintptr(fd), dir)
	tb.Cleanup(func() { f.Close() })
	return f
}

func TestBindAndUnmount(t *testing.T) {
	for _, o := range []Options{
		{},
		{ReadOnly: true},
		{NoSUID: true},
		{NoDev: true, NoExec: true},
		{Atime: "noatime"},
		{Atime: "relatime"},
		{Atime: "strictatime"},
		{Atime: "nodiratime"},
		{ReadOnly: true, NoSUID: true, NoDev: true, NoExec: true, Atime: "noatime"},
	} {
		t.Run(fmt.Sprintf("%+v", o), func(t *testing.T) {
			newBench(t).bindAndUnmount(t, o)
		})
	}
}

func (b bench) bindAndUnmount(t *testing.T, o Options) {
	t.Helper()
	must(t, b.Bind(source(t, b.volume), b.target(), o))
	is, err := b.Inspect(b.target())
	must(t, err)
	var want syscall.Stat_t
	must(t, syscall.Stat(b.volume, &want))
	expected := Mount{Mounted: true, Dev: want.Dev, Ino: want.Ino, Options: o}
	if o.Atime == "" {
		expected.Atime = "relatime" // the default of mount(2), which the source has
	}
	if diff := cmp.Diff(expected, is); diff != "" {
		t.Error(diff)
	}
	data, err := os.ReadFile(b.target() + "/data")
	if err != nil || string(data) != "kept" {
		t.Errorf("%q, %v", data, err)
	}
	if err := os.WriteFile(b.target()+"/new", nil, 0o600); o.ReadOnly != errors.Is(err, syscall.EROFS) {
		t.Errorf("write with %+v: %v", o, err)
	}
	for range 2 {
		must(t, b.Unmount(b.target()))
	}
	if _, err := os.Lstat(b.target()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the target is left: %v", err)
	}
	if _, err := os.Stat(b.volume + "/data"); err != nil {
		t.Errorf("the volume's data: %v", err)
	}
}

// TestFlagsAreInherited checks that options add to those of the source's mount and never take any away.
func TestFlagsAreInherited(t *testing.T) {
	tests := []struct {
		has   uintptr
		asked Options
		want  Options
	}{
		{
			unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOATIME,
			Options{NoExec: true},
			Options{NoSUID: true, NoDev: true, NoExec: true, Atime: "noatime"},
		},
		{unix.MS_NOATIME, Options{Atime: "nodiratime"}, Options{Atime: "nodiratime"}},
		{unix.MS_NODIRATIME, Options{Atime: "relatime"}, Options{Atime: "relatime"}},
		{unix.MS_NODIRATIME, Options{Atime: "strictatime"}, Options{Atime: "strictatime"}},
		{unix.MS_RDONLY, Options{ReadOnly: true}, Options{ReadOnly: true, Atime: "relatime"}},
	}
	for _, test := range tests {
		t.Run(fmt.Sprintf("%#x %+v", test.has, test.asked), func(t *testing.T) {
			b := newBench(t)
			must(t, unix.Mount(b.volume, b.volume, "", unix.MS_BIND, ""))
			must(t, unix.Mount("", b.volume, "", unix.MS_REMOUNT|unix.MS_BIND|test.has, ""))
			must(t, b.Bind(source(t, b.volume), b.target(), test.asked))
			is, err := b.Inspect(b.target())
			must(t, err)
			if diff := cmp.Diff(test.want, is.Options); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestNothingIsLeft lets Bind fail in every way, and looks for remains.
func TestNothingIsLeft(t *testing.T) {
	tests := []struct {
		name    string
		arrange func(*testing.T, bench) (target string, o Options)
		want    error
	}{
		{"no parent", func(_ *testing.T, b bench) (string, Options) {
			return b.path + "/missing/mount", Options{}
		}, fs.ErrNotExist},
		{"unknown option", func(_ *testing.T, b bench) (string, Options) {
			return b.target(), Options{Atime: "sometimes"}
		}, syscall.EINVAL},
		{"read-only source", func(t *testing.T, b bench) (string, Options) {
			must(t, unix.Mount(b.volume, b.volume, "", unix.MS_BIND, ""))
			must(t, unix.Mount("", b.volume, "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY, ""))
			return b.target(), Options{}
		}, syscall.EROFS},
		{"source that was removed", func(t *testing.T, b bench) (string, Options) {
			must(t, os.RemoveAll(b.volume))
			return b.target(), Options{}
		}, syscall.ENOENT},
		{"link as target", func(t *testing.T, b bench) (string, Options) {
			must(t, os.Symlink("/etc", b.target()))
			return b.target(), Options{}
		}, syscall.ELOOP},
		{"link on the way", func(t *testing.T, b bench) (string, Options) {
			must(t, os.Symlink(b.volume, b.path+"/pods/link"))
			return b.path + "/pods/link/mount", Options{}
		}, syscall.ELOOP},
		{"file as target", func(t *testing.T, b bench) (string, Options) {
			must(t, os.WriteFile(b.target(), nil, 0o600))
			return b.target(), Options{}
		}, syscall.ENOTDIR},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			b := newBench(t)
			early := source(t, b.volume)
			target, o := test.arrange(t, b)
			from := early
			if _, err := os.Stat(b.volume); err == nil {
				from = source(t, b.volume) // as it is now
			}
			before := tree(t, b.path)
			if err := b.Bind(from, target, o); !errors.Is(err, test.want) {
				t.Errorf("error %v, want %v", err, test.want)
			}
			if diff := cmp.Diff(before, tree(t, b.path)); diff != "" {
				t.Error(diff)
			}
			published, err := b.Published()
			if err != nil || len(published) != 0 {
				t.Errorf("mounted: %v, %v", published, err)
			}
		})
	}
}

func tree(t *testing.T, dir string) []string {
	t.Helper()
	var names []string
	must(t, filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		names = append(names, path)
		return err
	}))
	return names
}

func TestBindRefusesAMountedTarget(t *testing.T) {
	b := newBench(t)
	must(t, b.Bind(source(t, b.volume), b.target(), Options{}))
	if err := b.Bind(source(t, b.volume), b.target(), Options{}); !errors.Is(err, syscall.EBUSY) {
		t.Errorf("error %v, want %v", err, syscall.EBUSY)
	}
	must(t, b.Unmount(b.target()))
}

// TestTargets tries paths that are not below the directory.
func TestTargets(t *testing.T) {
	b := newBench(t)
	for _, target := range []string{
		"", ".", "/", "relative", b.path, b.path + "/", b.path + "/.", b.path + "x/mount", b.path + "/../pool/pvc-1",
		b.path + "/pods/../../pool", b.path + "/pods//mount", b.path + "/pods/mount/", b.path + "/pods/a\x00b", "/etc",
	} {
		if _, err := b.Inspect(target); !errors.Is(err, ErrTarget) {
			t.Errorf("Inspect(%q): %v, want %v", target, err, ErrTarget)
		}
		if err := b.Bind(source(t, b.volume), target, Options{}); !errors.Is(err, ErrTarget) {
			t.Errorf("Bind(%q): %v, want %v", target, err, ErrTarget)
		}
		if err := b.Unmount(target); !errors.Is(err, ErrTarget) {
			t.Errorf("Unmount(%q): %v, want %v", target, err, ErrTarget)
		}
	}
}

// TestKubeletDirIsALink checks that the directory itself may be reached through one.
func TestKubeletDirIsALink(t *testing.T) {
	b := newBench(t)
	link := b.path + "-link"
	must(t, os.Symlink(b.path, link))
	tree := New(link)
	target := link + "/pods/mount"
	must(t, tree.Bind(source(t, b.volume), target, Options{}))
	published, err := tree.Published()
	if diff := cmp.Diff(map[string][]string{"pvc-1": {target}}, published); diff != "" || err != nil {
		t.Error(diff, err)
	}
	must(t, tree.Unmount(target))
}

func TestUnmountTakesAllOff(t *testing.T) {
	b := newBench(t)
	must(t, b.Bind(source(t, b.volume), b.target(), Options{}))
	for range 3 {
		must(t, unix.Mount(b.volume, b.target(), "", unix.MS_BIND, ""))
	}
	published, err := b.Published()
	if diff := cmp.Diff(map[string][]string{"pvc-1": {b.target()}}, published); diff != "" || err != nil {
		t.Error(diff, err)
	}
	must(t, b.Unmount(b.target()))
	if published, err := b.Published(); err != nil || len(published) != 0 {
		t.Errorf("still mounted: %v, %v", published, err)
	}
}

// TestUnmountLeavesWhatIsNotOurs checks that Unmount never removes anything but an empty directory.
func TestUnmountLeavesWhatIsNotOurs(t *testing.T) {
	tests := []struct {
		name    string
		arrange func(target, volume string) error
		want    error
	}{
		{"files", func(target, _ string) error {
			return errors.Join(os.Mkdir(target, 0o755), os.WriteFile(target+"/file", nil, 0o600))
		}, syscall.ENOTEMPTY},
		{"link", func(target, volume string) error { return os.Symlink(volume, target) }, syscall.ENOTDIR},
		{"file", func(target, _ string) error { return os.WriteFile(target, nil, 0o600) }, syscall.ENOTDIR},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			b := newBench(t)
			must(t, test.arrange(b.target(), b.volume))
			before := tree(t, b.path)
			err := b.Unmount(b.target())
			if !errors.Is(err, test.want) || !strings.Contains(err.Error(), b.target()) {
				t.Errorf("error %v, want %v of %s", err, test.want, b.target())
			}
			if diff := cmp.Diff(before, tree(t, b.path)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestUnmountOfABusyTarget(t *testing.T) {
	b := newBench(t)
	must(t, b.Bind(source(t, b.volume), b.target(), Options{}))
	f, err := os.Open(b.target() + "/data")
	must(t, err)
	if err := b.Unmount(b.target()); !errors.Is(err, syscall.EBUSY) {
		t.Errorf("error %v, want %v", err, syscall.EBUSY)
	}
	if is, err := b.Inspect(b.target()); err != nil || !is.Mounted {
		t.Errorf("%+v, %v; want it still mounted", is, err)
	}
	must(t, f.Close())
	must(t, b.Unmount(b.target()))
}

// TestPropagation checks that a mount reaches a peer of the kubelet's directory, as the host is for a container, and so
// does its end; with the source on a slave mount, as the driver's view of the host is (HostToContainer).
func TestPropagation(t *testing.T) {
	b := newBench(t)
	host := filepath.Dir(b.path) + "/host"
	must(t, os.Mkdir(host, 0o755))
	must(t, unix.Mount(b.path, host, "", unix.MS_BIND, "")) // a bind mount of a shared mount is its peer
	o := Options{ReadOnly: true, NoSUID: true, NoDev: true, NoExec: true, Atime: "noatime"}
	view := filepath.Dir(b.path) + "/view"
	must(t, os.Mkdir(view, 0o755))
	must(t, unix.Mount(filepath.Dir(b.volume), view, "", unix.MS_BIND, ""))
	must(t, unix.Mount("", view, "", unix.MS_SLAVE, ""))
	must(t, b.Bind(source(t, view+"/pvc-1"), b.target(), o))
	there, err := New(host).Inspect(host + "/pods/mount")
	if err != nil || !there.Mounted || there.Options != o {
		t.Errorf("the host sees %+v, %v, want %+v", there, err, o)
	}
	must(t, b.Unmount(b.target()))
	there, err = New(host).Inspect(host + "/pods/mount")
	if err != nil || there.Mounted {
		t.Errorf("after the unmount the host sees %+v, %v", there, err)
	}
}

func BenchmarkBindUnmount(b *testing.B) {
	bench := newBench(b)
	from := source(b, bench.volume)
	for b.Loop() {
		must(b, bench.Bind(from, bench.target(), Options{}))
		must(b, bench.Unmount(bench.target()))
	}
}

func BenchmarkInspect(b *testing.B) {
	bench := newBench(b)
	must(b, bench.Bind(source(b, bench.volume), bench.target(), Options{}))
	for b.Loop() {
		_, err := bench.Inspect(bench.target())
		must(b, err)
	}
	must(b, bench.Unmount(bench.target()))
}
