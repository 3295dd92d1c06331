package disk_test

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/disk"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/kernel/removetree"
)

// line is one entry of a tree.
type line struct {
	Name, Data string
	Mode       fs.FileMode
	UID, GID   int
}

// contents lists a tree, sorted.
func contents(t *testing.T, f disk.FS, name string) []line {
	t.Helper()
	entries, err := f.ReadDir(name)
	if err != nil {
		t.Fatal(err)
	}
	slices.SortFunc(entries, func(a, b disk.Entry) int { return strings.Compare(a.Name, b.Name) })
	var all []line
	for _, e := range entries {
		full := strings.TrimPrefix(name+"/"+e.Name, "./")
		info, err := f.Stat(full)
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode.IsDir() != e.Dir {
			t.Errorf("%s: Entry.Dir %v, mode %v", full, e.Dir, info.Mode)
		}
		l := line{Name: full, Mode: info.Mode, UID: info.UID, GID: info.GID}
		if info.Mode.IsRegular() {
			data, err := f.ReadFile(full)
			if err != nil {
				t.Fatal(err)
			}
			l.Data = string(data)
		}
		all = append(all, l)
		if e.Dir {
			all = append(all, contents(t, f, full)...)
		}
	}
	return all
}

// TestTree does a bit of everything and looks at what came of it.
func TestTree(t *testing.T) {
	onEach(t, func(t *testing.T, b bench) {
		f := b.pool(t)
		b.symlink("/srv/pool/csi/link", "v")
		b.addFile("/srv/pool/csi/secret", []byte("kept"))
		b.symlink("/srv/pool/csi/trash/inner/out", "../../secret")
		for _, err := range []error{
			f.Mkdir("v", 0o2777|fs.ModeSetgid),
			f.Own("v", 1000, 2000, 0o777),
			f.Mkdir("v/w", 0),
			f.WriteFile("v/file", []byte("one"), 0o666),
			f.WriteFile("v/other", []byte("two"), 0o400),
			f.Replace("v/other", "v/file"),
			f.Rename("v/file", "v/w/file"),
			f.RemoveTree(t.Context(), "trash", nil),
			f.Own("v", -1, 7, 0o750|fs.ModeSticky|fs.ModeSetuid),
		} {
			if err != nil {
				t.Fatal(err)
			}
		}
		want := []line{
			{Name: "link", Mode: fs.ModeSymlink | 0o777},
			{Name: "secret", Mode: 0o644, Data: "kept"},
			{Name: "v", Mode: fs.ModeDir | fs.ModeSticky | fs.ModeSetuid | 0o750, UID: 1000, GID: 7},
			{Name: "v/w", Mode: fs.ModeDir},
			{Name: "v/w/file", Mode: 0o400, Data: "two"},
		}
		if diff := cmp.Diff(want, contents(t, f, ".")); diff != "" {
			t.Error(diff)
		}
	})
}

// TestMkdirModeIsExact tries every bit against a umask and a parent's setgid bit.
func TestMkdirModeIsExact(t *testing.T) {
	onEach(t, func(t *testing.T, b bench) {
		f := b.pool(t)
		if err := f.Mkdir("parent", 0o755|fs.ModeSetgid); err != nil {
			t.Fatal(err)
		}
		for _, mode := range []fs.FileMode{
			0, 0o777, 0o700, 0o777 | fs.ModeSetgid, 0o1 | fs.ModeSetuid, 0o777 | fs.ModeSticky,
		} {
			name := "parent/" + mode.String()
			if err := f.Mkdir(name, mode); err != nil {
				t.Fatal(err)
			}
			info, err := f.Stat(name)
			if err != nil || info.Mode != mode|fs.ModeDir {
				t.Errorf("mode %v, error %v, want %v", info.Mode, err, mode|fs.ModeDir)
			}
		}
	})
}

// TestSteps checks that the error of step leaves the rest for later.
func TestSteps(t *testing.T) {
	onEach(t, func(t *testing.T, b bench) {
		f := b.pool(t)
		for _, name := range []string{"a", "b", "c/d", "c/e"} {
			b.addFile("/srv/pool/csi/tree/"+name, nil)
		}
		tired := errors.New("tired")
		calls := 0
		err := f.RemoveTree(t.Context(), "tree", func(context.Context) error {
			if calls++; calls == 4 {
				return tired
			}
			return nil
		})
		if !errors.Is(err, tired) {
			t.Errorf("error %v, want that of step", err)
		}
		if n := len(contents(t, f, "tree")); n < 2 || n > 5 {
			t.Errorf("%d entries are left of 5 after 3 steps", n)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := f.RemoveTree(ctx, "tree", nil); !errors.Is(err, context.Canceled) {
			t.Errorf("error %v, want %v", err, context.Canceled)
		}
		if err := f.RemoveTree(t.Context(), "tree", func(context.Context) error { return nil }); err != nil {
			t.Error(err)
		}
		if _, err := f.Stat("tree"); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("tree: %v, want it gone", err)
		}
	})
}

// TestLeftovers checks that what was moved up is found again, also when the name is gone, and that nothing else is.
func TestLeftovers(t *testing.T) {
	onEach(t, func(t *testing.T, b bench) {
		f := b.pool(t)
		b.addFile("/srv/pool/csi/entry/record.json", nil)
		for range 2 {
			b.addFile("/srv/pool/csi/entry/"+removetree.Prefix+"a/b/c", nil)
			b.addDir("/srv/pool/csi/entry/" + removetree.Prefix + "b")
			b.addDir("/srv/pool/csi/entry/data/x")
			if err := f.RemoveTree(t.Context(), "entry/data", nil); err != nil {
				t.Fatal(err)
			}
			want := []line{{Name: "entry/record.json", Mode: 0o644}}
			if diff := cmp.Diff(want, contents(t, f, "entry")); diff != "" {
				t.Error(diff)
			}
			if err := f.RemoveTree(t.Context(), "entry/data", nil); err != nil {
				t.Errorf("once more: %v", err)
			}
		}
	})
}

// TestClosed checks that a closed directory cannot be used, and can be closed again.
func TestClosed(t *testing.T) {
	onEach(t, func(t *testing.T, b bench) {
		f := b.pool(t)
		for range 2 {
			if err := f.Close(); err != nil {
				t.Fatal(err)
			}
		}
		checkError(t, f.Mkdir("x", 0o755), syscall.EBADF)
	})
}

// TestReadFileGivesAll reads sizes around every boundary.
func TestReadFileGivesAll(t *testing.T) {
	onEach(t, func(t *testing.T, b bench) {
		f := b.pool(t)
		for _, size := range []int{0, 1, 4096, 1 << 20} {
			data := bytes.Repeat([]byte{'x'}, size)
			if err := f.WriteFile("file", data, 0o600); err != nil {
				t.Fatal(err)
			}
			got, err := f.ReadFile("file")
			if err != nil || !bytes.Equal(got, data) {
				t.Errorf("%d bytes, error %v, want %d", len(got), err, size)
			}
			if err := f.Remove("file"); err != nil {
				t.Fatal(err)
			}
		}
	})
}
