package beneath

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// walked lists what a walk visits, directories with a slash at the end, in the order of the visits.
func walked(t *testing.T, d *Dir, name string) []string {
	t.Helper()
	var names []string
	must(t, d.Walk(t.Context(), name, func(f *os.File, isDir bool) error {
		info, err := f.Stat()
		if err != nil || info.IsDir() != isDir || info.Mode().Type()&^fs.ModeDir != 0 {
			t.Errorf("%s: %v, %v, said to be a directory: %v", f.Name(), info.Mode(), err, isDir)
		}
		if isDir {
			names = append(names, f.Name()+"/")
		} else {
			names = append(names, f.Name())
		}
		return nil
	}))
	return names
}

// TestWalk visits files and directories, and nothing that could lead elsewhere or whose opening has effects.
func TestWalk(t *testing.T) {
	d, path := open1(t)
	must(t, os.MkdirAll(path+"/tree/dir/sub", 0o700))
	must(t, os.MkdirAll(path+"/tree/mounted", 0o700))
	must(t, os.WriteFile(path+"/tree/file", nil, 0o000))
	must(t, os.WriteFile(path+"/tree/dir/sub/deep", nil, 0o600))
	must(t, os.WriteFile(path+"/outside", nil, 0o600))
	must(t, os.Symlink(path, path+"/tree/link"))
	must(t, os.Symlink("file", path+"/tree/dir/link"))
	must(t, unix.Mkfifo(path+"/tree/fifo", 0o600))
	must(t, unix.Mknod(path+"/tree/device", unix.S_IFCHR|0o600, int(unix.Mkdev(1, 5))))
	must(t, unix.Mount("none", path+"/tree/mounted", "tmpfs", 0, ""))
	t.Cleanup(func() { must(t, unix.Unmount(path+"/tree/mounted", 0)) })
	must(t, os.WriteFile(path+"/tree/mounted/other", nil, 0o600))
	got := walked(t, d, "tree")
	if dir, sub := slices.Index(got, "dir/"), slices.Index(got, "sub/"); dir < 0 || sub < dir || slices.Index(got, "deep") < sub {
		t.Errorf("%v: a directory comes before what is in it", got)
	}
	slices.Sort(got)
	if want := []string{"deep", "dir/", "file", "sub/"}; !slices.Equal(got, want) {
		t.Errorf("visited %v, want %v", got, want)
	}
	for name, want := range map[string]error{"tree/link": unix.ELOOP, "tree/file": unix.ENOTDIR, "missing": fs.ErrNotExist, "..": fs.ErrInvalid} {
		if err := d.Walk(t.Context(), name, nil); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", name, err, want)
		}
	}
}

// TestWalkDeep goes far deeper than PATH_MAX and than the window, with few descriptors, and up again to what is left there.
func TestWalkDeep(t *testing.T) {
	d, path := open1(t)
	const depth = 1500
	must(t, d.Mkdir("tree", 0o700))
	dig(t, path+"/tree", strings.Repeat("x", 50), depth)
	for i := range 2000 { // more than one portion, on both sides of the deep one
		must(t, os.WriteFile(filepath.Join(path, "tree", strings.Repeat("y", 40)+string(rune('a'+i%26))+strings.Repeat("z", i/26)), nil, 0o600))
	}
	before, most, calls := descriptors(t), 0, 0
	must(t, d.Walk(t.Context(), "tree", func(*os.File, bool) error {
		if calls++; calls%100 == 0 {
			most = max(most, descriptors(t))
		}
		return nil
	}))
	if calls != depth+1+2000 {
		t.Errorf("%d visits, want %d", calls, depth+1+2000)
	}
	if most-before > window+8 {
		t.Errorf("%d descriptors more than before", most-before)
	}
	must(t, d.RemoveTree(t.Context(), "tree", nil))
}

func TestWalkEndsEarly(t *testing.T) {
	d, path := open1(t)
	must(t, os.MkdirAll(path+"/tree/a/b/c", 0o700))
	before := descriptors(t)
	ctx, cancel := context.WithCancel(t.Context())
	calls := 0
	err := d.Walk(ctx, "tree", func(*os.File, bool) error { calls++; cancel(); return nil })
	if !errors.Is(err, context.Canceled) || calls != 1 {
		t.Errorf("%d visits after the end, %v", calls, err)
	}
	err = d.Walk(t.Context(), "tree", func(f *os.File, _ bool) error {
		if f.Name() == "b" {
			return &fs.PathError{Op: "tag", Path: "b", Err: unix.EPERM}
		}
		return nil
	})
	if !errors.Is(err, fs.ErrPermission) || !strings.Contains(err.Error(), path+"/tree/a/b") {
		t.Errorf("%v does not say what and where", err)
	}
	if got := descriptors(t); got != before {
		t.Errorf("%d descriptors, before %d", got, before)
	}
}
