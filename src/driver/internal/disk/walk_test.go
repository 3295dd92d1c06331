package disk_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/disk"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/disk/disktest"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/kernel/mounttest"
)

// walked lists what a walk visits, directories with a slash at the end, in the order of the visits.
func walked(t *testing.T, d disk.FS, path string) []string {
	t.Helper()
	var names []string
	var c disk.Cursor
	must(t, disk.Walk(t.Context(), d, "tree", &c, func(f *os.File, isDir bool) error {
		names = append(names, visit(t, f, isDir, path+"/tree/"))
		return nil
	}))
	if c.Visited() != int64(len(names)) {
		t.Errorf("%d visited, want %d", c.Visited(), len(names))
	}
	return names
}

func visit(t *testing.T, f *os.File, isDir bool, path string) string {
	t.Helper()
	info, err := f.Stat()
	if err != nil || info.IsDir() != isDir || info.Mode().Type()&^fs.ModeDir != 0 {
		t.Errorf("%s: %v, %v, said to be a directory: %v", f.Name(), info.Mode(), err, isDir)
	}
	name := strings.TrimPrefix(f.Name(), path)
	if isDir {
		name += "/"
	}
	return name
}

// TestWalk visits files and directories, and nothing that could lead elsewhere or whose opening has effects.
func TestWalk(t *testing.T) {
	d, path := openTemp(t)
	must(t, os.MkdirAll(path+"/tree/dir/sub", 0o700))
	must(t, os.MkdirAll(path+"/tree/mounted", 0o700))
	must(t, os.WriteFile(path+"/tree/file", nil, 0o000))
	must(t, os.WriteFile(path+"/tree/dir/sub/deep", nil, 0o600))
	must(t, os.WriteFile(path+"/outside", nil, 0o600))
	must(t, os.Symlink(path, path+"/tree/link"))
	must(t, os.Symlink("file", path+"/tree/dir/link"))
	must(t, unix.Mkfifo(path+"/tree/fifo", 0o600))
	must(t, unix.Mknod(path+"/tree/device", unix.S_IFCHR|0o600, int(unix.Mkdev(1, 5))))
	mounttest.Tmpfs(t, path+"/tree/mounted", "")
	must(t, os.WriteFile(path+"/tree/mounted/other", nil, 0o600))
	got := walked(t, d, path)
	dir, sub := slices.Index(got, "dir/"), slices.Index(got, "dir/sub/")
	if dir < 0 || sub < dir || slices.Index(got, "dir/sub/deep") < sub {
		t.Errorf("%v: a directory comes before what is in it", got)
	}
	slices.Sort(got)
	if want := []string{"dir/", "dir/sub/", "dir/sub/deep", "file"}; !slices.Equal(got, want) {
		t.Errorf("visited %v, want %v", got, want)
	}
	for name, want := range map[string]error{
		"tree/link": unix.ELOOP, "tree/file": unix.ENOTDIR, "missing": fs.ErrNotExist, "..": fs.ErrInvalid,
	} {
		if err := disk.Walk(t.Context(), d, name, new(disk.Cursor), nil); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", name, err, want)
		}
	}
}

// TestWalkResumed ends a walk after every visit, and again before it, on each filesystem: every file is visited once
// more after the visit that failed, and no descriptor is open in between.
func TestWalkResumed(t *testing.T) {
	for _, kind := range []string{"tmpfs", "ext4", "xfs", "btrfs"} {
		t.Run(kind, func(t *testing.T) {
			path := filesystem(t, kind)
			d := openAt(t, path)
			for i := range 12 {
				must(t, os.MkdirAll(fmt.Sprintf("%s/tree/%d/a/b", path, i), 0o700))
				for j := range 100 {
					must(t, os.WriteFile(fmt.Sprintf("%s/tree/%d/a/%d", path, i, j), nil, 0o600))
				}
			}
			want := walked(t, d, path)
			var got []string
			var c disk.Cursor
			before, tries := descriptors(t), 0
			for n := 0; ; n++ {
				seen := ""
				err := disk.Walk(t.Context(), d, "tree", &c, func(f *os.File, isDir bool) error {
					name := visit(t, f, isDir, path+"/tree/")
					if tries++; tries%2 == 0 { // the second try of each
						got = append(got, name)
						return nil
					}
					if seen != "" && seen == name {
						t.Errorf("%s is visited twice in a walk", name)
					}
					seen = name
					return errTired
				})
				if now := descriptors(t); now != before {
					t.Fatalf("%d descriptors are left open", now-before)
				}
				if err == nil {
					break
				}
				if !errors.Is(err, errTired) || n > 2*len(want) {
					t.Fatal(err)
				}
			}
			if !slices.Equal(got, want) || c.Visited() != int64(len(want)) {
				t.Errorf("%d visited in %d tries, want %d: %v", c.Visited(), tries, len(want), got)
			}
			must(t, disk.Walk(t.Context(), d, "tree", &c, nil)) // nothing is left to visit
		})
	}
}

// TestWalkVanished takes away the directory that a cursor is in.
func TestWalkVanished(t *testing.T) {
	d, path := openTemp(t)
	for _, name := range []string{"a", "b", "c"} {
		must(t, os.MkdirAll(path+"/tree/"+name+"/x", 0o700))
	}
	var c disk.Cursor
	var top string
	err := disk.Walk(t.Context(), d, "tree", &c, func(f *os.File, _ bool) error {
		if strings.HasSuffix(f.Name(), "/x") {
			return errTired
		}
		top = f.Name()
		return nil
	})
	if !errors.Is(err, errTired) {
		t.Fatal(err)
	}
	must(t, os.RemoveAll(top))
	must(t, disk.Walk(t.Context(), d, "tree", &c, func(*os.File, bool) error { return nil }))
	if c.Visited() != 1+4 {
		t.Errorf("%d visited, want %s, then 2 directories with one each", c.Visited(), top)
	}
}

// TestWalkDeep goes to the greatest depth, and not further.
func TestWalkDeep(t *testing.T) {
	d, path := openTemp(t)
	must(t, d.Mkdir("tree", 0o700))
	dig(t, path+"/tree", strings.Repeat("x", 50), 1023)
	if n := len(walked(t, d, path)); n != 1024 {
		t.Errorf("%d visits, want %d", n, 1024)
	}
	must(t, d.RemoveTree(t.Context(), "tree", nil))
	must(t, d.Mkdir("tree", 0o700))
	dig(t, path+"/tree", "x", 1024)
	err := disk.Walk(t.Context(), d, "tree", new(disk.Cursor), func(*os.File, bool) error { return nil })
	if err == nil || !strings.Contains(err.Error(), "more than 1024 deep") {
		t.Errorf("error %v does not say that the tree is too deep", err)
	}
}

func TestWalkEndsWithItsContext(t *testing.T) {
	d, path := openTemp(t)
	must(t, os.MkdirAll(path+"/tree/a/b/c", 0o700))
	ctx, cancel := context.WithCancel(t.Context())
	calls := 0
	err := disk.Walk(ctx, d, "tree", new(disk.Cursor), func(*os.File, bool) error { calls++; cancel(); return nil })
	if !errors.Is(err, context.Canceled) || calls != 1 {
		t.Errorf("%d visits after the end, %v", calls, err)
	}
}

// TestWalkInMemory checks that there is nothing to visit in memory.
func TestWalkInMemory(t *testing.T) {
	m := disktest.New()
	m.AddDir("/state/tree")
	d, err := m.OpenDir("/state")
	must(t, err)
	if err := disk.Walk(t.Context(), d, "tree", new(disk.Cursor), nil); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("error %v, want %v", err, errors.ErrUnsupported)
	}
}
