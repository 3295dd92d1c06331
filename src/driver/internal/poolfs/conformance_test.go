package poolfs_test

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/poolfs"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/poolfs/memfs"
)

// bench is one implementation of poolfs.Disk and the ways to arrange its host without it.
type bench struct {
	disk    poolfs.Disk
	openDir func(path string) (poolfs.FS, error)
	addDir  func(path string)
	addFile func(path string, data []byte)
	symlink func(path, target string)
}

func memBench(t *testing.T) bench {
	t.Helper()
	d := memfs.New()
	t.Cleanup(func() {
		if n := d.Opened(); n != 0 {
			t.Errorf("%d directories are still open", n)
		}
	})
	return bench{disk: d, openDir: d.OpenDir, addDir: d.AddDir, addFile: d.AddFile, symlink: d.Symlink}
}

func hostBench(t *testing.T) bench {
	t.Helper()
	requireRoot(t)
	root := t.TempDir()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	parent := func(path string) string {
		must(os.MkdirAll(filepath.Dir(filepath.Join(root, path)), 0o755))
		return filepath.Join(root, path)
	}
	return bench{
		disk:    poolfs.NewHost(root),
		openDir: func(path string) (poolfs.FS, error) { return poolfs.OpenDir(filepath.Join(root, path)) },
		addDir:  func(path string) { must(os.MkdirAll(parent(path), 0o755)) },
		addFile: func(path string, data []byte) { must(os.WriteFile(parent(path), data, 0o644)) },
		symlink: func(path, target string) { must(os.Symlink(target, parent(path))) },
	}
}

func requireRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("this test must run as root: it changes owners and mounts")
	}
}

// onEach runs a test against every implementation.
func onEach(t *testing.T, test func(t *testing.T, b bench)) {
	t.Helper()
	t.Run("memfs", func(t *testing.T) { test(t, memBench(t)) })
	t.Run("host", func(t *testing.T) { test(t, hostBench(t)) })
}

// pool opens a fresh pool.
func (b bench) pool(t *testing.T) poolfs.FS {
	t.Helper()
	if err := b.disk.Create("/srv/pool"); err != nil {
		t.Fatal(err)
	}
	f, err := b.disk.Open("/srv/pool")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

const none = syscall.Errno(0)

// TestErrors is the table of what each call answers in a tree that holds one of everything.
func TestErrors(t *testing.T) {
	tree := func(b bench) {
		b.addDir("/srv/pool/csi/dir/sub")
		b.addDir("/srv/pool/csi/empty")
		b.addFile("/srv/pool/csi/file", []byte("data"))
		b.addFile("/srv/pool/csi/big", make([]byte, 1<<20+1))
		b.symlink("/srv/pool/csi/link", "dir")
		b.symlink("/srv/pool/csi/dangling", "nowhere")
		b.symlink("/srv/pool/csi/filelink", "file")
	}
	long := strings.Repeat("x", 256)
	mkdir := func(f poolfs.FS, name string) error { return f.Mkdir(name, 0o755) }
	chmod := func(f poolfs.FS, name string) error { return f.Chmod(name, 0o700) }
	chown := func(f poolfs.FS, name string) error { return f.Chown(name, 1, 2) }
	write := func(f poolfs.FS, name string) error { return f.WriteFile(name, []byte("x"), 0o600) }
	read := func(f poolfs.FS, name string) error { _, err := f.ReadFile(name); return err }
	readDir := func(f poolfs.FS, name string) error { _, err := f.ReadDir(name); return err }
	stat := func(f poolfs.FS, name string) error { _, err := f.Stat(name); return err }
	remove := func(f poolfs.FS, name string) error { return f.Remove(name) }
	removeTree := func(f poolfs.FS, name string) error { return f.RemoveTree(t.Context(), name, nil) }
	sync := func(f poolfs.FS, name string) error { return f.Sync(name) }
	handle := func(f poolfs.FS, name string) error {
		h, err := f.Handle(name)
		return cmp.Or(err, h.Close())
	}
	rename := func(to string) func(poolfs.FS, string) error {
		return func(f poolfs.FS, name string) error { return f.Rename(name, to) }
	}
	replace := func(to string) func(poolfs.FS, string) error {
		return func(f poolfs.FS, name string) error { return f.Replace(name, to) }
	}
	tests := []struct {
		op   string
		do   func(poolfs.FS, string) error
		name string
		want error
	}{
		{"mkdir", mkdir, "new", none},
		{"mkdir", mkdir, "dir/new", none},
		{"mkdir", mkdir, "dir", syscall.EEXIST},
		{"mkdir", mkdir, "dangling", syscall.EEXIST},
		{"mkdir", mkdir, "missing/new", syscall.ENOENT},
		{"mkdir", mkdir, "file/new", syscall.ENOTDIR},
		{"mkdir", mkdir, "link/new", syscall.ELOOP},
		{"mkdir", mkdir, "file/new/newer", syscall.ENOTDIR},
		{"mkdir", mkdir, ".", fs.ErrInvalid},
		{"mkdir", mkdir, long, syscall.ENAMETOOLONG},
		{"mkdir", mkdir, long + "/x", syscall.ENAMETOOLONG},
		{"mkdir", mkdir, "bytes \n\xff", none},
		{"mkdir", mkdir, "..dots..", none},

		{"chmod", chmod, ".", none},
		{"chmod", chmod, "dir", none},
		{"chmod", chmod, "file", none},
		{"chmod", chmod, "link", syscall.ELOOP},
		{"chmod", chmod, "missing", syscall.ENOENT},
		{"chmod", chmod, "link/sub", syscall.ELOOP},

		{"chown", chown, ".", none},
		{"chown", chown, "dir/sub", none},
		{"chown", chown, "link", none},
		{"chown", chown, "missing", syscall.ENOENT},

		{"write", write, "new", none},
		{"write", write, "file", syscall.EEXIST},
		{"write", write, "dir", syscall.EEXIST},
		{"write", write, "dangling", syscall.EEXIST},
		{"write", write, "missing/new", syscall.ENOENT},
		{"write", write, ".", fs.ErrInvalid},
		{"write", write, "link/new", syscall.ELOOP},

		{"read", read, "file", none},
		{"read", read, "dir", syscall.EISDIR},
		{"read", read, ".", syscall.EISDIR},
		{"read", read, "filelink", syscall.ELOOP},
		{"read", read, "missing", syscall.ENOENT},
		{"read", read, "file/x", syscall.ENOTDIR},
		{"read", read, "big", syscall.EFBIG},
		{"read", read, "link/x", syscall.ELOOP},

		{"readdir", readDir, ".", none},
		{"readdir", readDir, "dir", none},
		{"readdir", readDir, "file", syscall.ENOTDIR},
		{"readdir", readDir, "link", syscall.ELOOP},
		{"readdir", readDir, "missing", syscall.ENOENT},

		{"stat", stat, ".", none},
		{"stat", stat, "link", none},
		{"stat", stat, "dangling", none},
		{"stat", stat, "missing", syscall.ENOENT},
		{"stat", stat, "link/sub", syscall.ELOOP},
		{"stat", stat, "", fs.ErrInvalid},
		{"stat", stat, "..", fs.ErrInvalid},
		{"stat", stat, "/dir", fs.ErrInvalid},
		{"stat", stat, "dir/", fs.ErrInvalid},
		{"stat", stat, "dir//sub", fs.ErrInvalid},
		{"stat", stat, "dir/../dir", fs.ErrInvalid},
		{"stat", stat, "./dir", fs.ErrInvalid},
		{"stat", stat, "dir/.", fs.ErrInvalid},
		{"stat", stat, "dir\x00", fs.ErrInvalid},

		{"rename to new", rename("new"), "dir", none},
		{"rename to new", rename("new"), "link", none},
		{"rename to new", rename("new"), "missing", syscall.ENOENT},
		{"rename to new", rename("new"), ".", fs.ErrInvalid},
		{"rename to empty", rename("empty"), "dir", syscall.EEXIST},
		{"rename to file", rename("file"), "big", syscall.EEXIST},
		{"rename to itself", rename("dir"), "dir", syscall.EEXIST},
		{"rename to .", rename("."), "dir", fs.ErrInvalid},
		{"rename below itself", rename("dir/sub/dir"), "dir", syscall.EINVAL},
		{"rename to missing", rename("missing/new"), "dir", syscall.ENOENT},
		{"rename through link", rename("link/new"), "file", syscall.ELOOP},
		{"rename into dir", rename("empty/dir"), "dir", none},

		{"replace file", replace("file"), "big", none},
		{"replace new", replace("new"), "file", none},
		{"replace dir", replace("dir"), "file", syscall.EISDIR},
		{"replace empty", replace("empty"), "dir", syscall.EISDIR},
		{"replace link", replace("link"), "file", none},
		{"replace itself", replace("file"), "file", none},
		{"replace", replace("new"), "missing", syscall.ENOENT},

		{"remove", remove, "file", none},
		{"remove", remove, "link", none},
		{"remove", remove, "empty", none},
		{"remove", remove, "dir", syscall.ENOTEMPTY},
		{"remove", remove, "missing", syscall.ENOENT},
		{"remove", remove, "link/sub", syscall.ELOOP},
		{"remove", remove, ".", fs.ErrInvalid},

		{"removetree", removeTree, "dir", none},
		{"removetree", removeTree, "link", none},
		{"removetree", removeTree, "missing", none},
		{"removetree", removeTree, "missing/x", none},
		{"removetree", removeTree, "link/sub", syscall.ELOOP},
		{"removetree", removeTree, ".", fs.ErrInvalid},
		{"removetree", removeTree, "", fs.ErrInvalid},

		{"sync", sync, ".", none},
		{"sync", sync, "dir", none},
		{"sync", sync, "file", syscall.ENOTDIR},
		{"sync", sync, "link", syscall.ELOOP},
		{"sync", sync, "missing", syscall.ENOENT},

		{"handle", handle, ".", none},
		{"handle", handle, "dir/sub", none},
		{"handle", handle, "file", syscall.ENOTDIR},
		{"handle", handle, "link", syscall.ELOOP},
		{"handle", handle, "missing", syscall.ENOENT},
	}
	for _, test := range tests {
		t.Run(test.op+" "+test.name, func(t *testing.T) {
			onEach(t, func(t *testing.T, b bench) {
				f := b.pool(t)
				tree(b)
				checkError(t, test.do(f, test.name), test.want)
			})
		})
	}
}

// checkError wants an error of the documented kind around a given one.
func checkError(t *testing.T, err, want error) {
	t.Helper()
	if errors.Is(want, none) {
		if err != nil {
			t.Errorf("error %v, want none", err)
		}
		return
	}
	if !errors.Is(err, want) {
		t.Errorf("error %v, want %v", err, want)
	}
	var path *fs.PathError
	var link *os.LinkError
	if !errors.As(err, &path) && !errors.As(err, &link) {
		t.Errorf("error %#v is neither a PathError nor a LinkError", err)
	}
}

// line is one entry of a tree.
type line struct {
	Name, Data string
	Mode       fs.FileMode
	UID, GID   int
}

// contents lists a tree, sorted.
func contents(t *testing.T, f poolfs.FS, name string) []line {
	t.Helper()
	entries, err := f.ReadDir(name)
	if err != nil {
		t.Fatal(err)
	}
	slices.SortFunc(entries, func(a, b poolfs.Entry) int { return strings.Compare(a.Name, b.Name) })
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
			f.Chown("v", 1000, 2000),
			f.Chmod("v", 0o750|fs.ModeSticky),
			f.Mkdir("v/w", 0),
			f.WriteFile("v/file", []byte("one"), 0o666),
			f.WriteFile("v/other", []byte("two"), 0o400),
			f.Replace("v/other", "v/file"),
			f.Rename("v/file", "v/w/file"),
			f.Chown("link", 5, 6),
			f.RemoveTree(t.Context(), "trash", nil),
			f.Chown("v", -1, 7),
		} {
			if err != nil {
				t.Fatal(err)
			}
		}
		want := []line{
			{Name: "link", Mode: fs.ModeSymlink | 0o777, UID: 5, GID: 6},
			{Name: "secret", Mode: 0o644, Data: "kept"},
			{Name: "v", Mode: fs.ModeDir | fs.ModeSticky | 0o750, UID: 1000, GID: 7},
			{Name: "v/w", Mode: fs.ModeDir},
			{Name: "v/w/file", Mode: 0o400, Data: "two"},
		}
		if diff := gocmp.Diff(want, contents(t, f, ".")); diff != "" {
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
		for _, mode := range []fs.FileMode{0, 0o777, 0o700, 0o777 | fs.ModeSetgid, 0o1 | fs.ModeSetuid, 0o777 | fs.ModeSticky} {
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

// TestPaces checks that pace is asked before each removal, and that its error leaves the rest for later.
func TestPaces(t *testing.T) {
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
			t.Errorf("error %v, want pace's", err)
		}
		if n := len(contents(t, f, "tree")); n != 2 {
			t.Errorf("%d entries are left of 5 after 3 removals", n)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := f.RemoveTree(ctx, "tree", nil); !errors.Is(err, context.Canceled) {
			t.Errorf("error %v, want %v", err, context.Canceled)
		}
		count := 0
		if err := f.RemoveTree(t.Context(), "tree", func(context.Context) error { count++; return nil }); err != nil || count != 3 {
			t.Errorf("%d removals, error %v; want 3", count, err)
		}
		if _, err := f.Stat("tree"); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("tree: %v, want it gone", err)
		}
	})
}

// TestPaths walks the life of a pool's path.
func TestPaths(t *testing.T) {
	inspect := func(t *testing.T, b bench, path string) poolfs.Facts {
		t.Helper()
		facts, err := b.disk.Inspect(path)
		if err != nil {
			t.Fatal(err)
		}
		return facts
	}
	onEach(t, func(t *testing.T, b bench) {
		if facts := inspect(t, b, "/a/b"); facts != (poolfs.Facts{}) {
			t.Errorf("nothing there, yet %+v", facts)
		}
		if _, err := b.disk.Open("/a/b"); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("Open: %v, want %v", err, fs.ErrNotExist)
		}
		b.addDir("/a/b")
		if facts := inspect(t, b, "/a/b"); !facts.Path || facts.CSI || facts.MountPoint || facts.Dev == 0 {
			t.Errorf("no csi yet: %+v", facts)
		}
		if _, err := b.disk.Open("/a/b"); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("Open: %v, want %v", err, fs.ErrNotExist)
		}
		for range 2 {
			if err := b.disk.Create("/a/b"); err != nil {
				t.Fatal(err)
			}
		}
		f, err := b.disk.Open("/a/b")
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		info, err := f.Stat(".")
		if err != nil || info.Mode != fs.ModeDir|0o700 {
			t.Errorf("csi: %v, %v", info.Mode, err)
		}
		facts := inspect(t, b, "/a/b")
		if !facts.CSI || facts.Dev != info.Dev || facts.FSType == "" || len(facts.FSID) != 16 || facts.ReadOnly {
			t.Errorf("pool on device %d: %+v", info.Dev, facts)
		}
		h, err := f.Handle(".")
		if err != nil || h.Dev != info.Dev || h.Ino != info.Ino {
			t.Errorf("handle %+v, %v of %+v", h, err, info)
		}
		h.Close()
		if space, err := f.Space(); err != nil || space.Size <= 0 || space.Free > space.Size-space.Used {
			t.Errorf("space %+v, %v", space, err)
		}
	})
}

// TestCreate makes paths over every kind of obstacle.
func TestCreate(t *testing.T) {
	tests := []struct {
		name, path string
		arrange    func(bench)
		want       error
		found      string // where csi is afterwards
	}{
		{"missing parents", "/x/y/z", func(bench) {}, none, "/x/y/z"},
		{"absolute link", "/pool", func(b bench) { b.symlink("/pool", "/data/disk"); b.addDir("/data/disk") }, none, "/data/disk"},
		{"relative link", "/p/pool", func(b bench) { b.symlink("/p/pool", "../data"); b.addDir("/data") }, none, "/data"},
		{"link out of the root", "/pool", func(b bench) { b.symlink("/pool", "../../../data"); b.addDir("/data") }, none, "/data"},
		{"link on the way", "/var/pool", func(b bench) { b.symlink("/var", "/data"); b.addDir("/data") }, none, "/data/pool"},
		{"dangling link", "/pool", func(b bench) { b.symlink("/pool", "/nowhere") }, syscall.ENOENT, ""},
		{"loop", "/pool", func(b bench) { b.symlink("/pool", "/pool") }, syscall.ELOOP, ""},
		{"file on the way", "/file/pool", func(b bench) { b.addFile("/file", nil) }, syscall.ENOTDIR, ""},
		{"file", "/file", func(b bench) { b.addFile("/file", nil) }, syscall.ENOTDIR, ""},
		{"csi is a link", "/pool", func(b bench) { b.symlink("/pool/csi", "/data"); b.addDir("/data") }, syscall.ELOOP, ""},
		{"csi is a file", "/pool", func(b bench) { b.addFile("/pool/csi", nil) }, syscall.ENOTDIR, ""},
		{"relative path", "pool", func(bench) {}, fs.ErrInvalid, ""},
		{"unclean path", "/pool/../x", func(bench) {}, fs.ErrInvalid, ""},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			onEach(t, func(t *testing.T, b bench) {
				test.arrange(b)
				checkError(t, b.disk.Create(test.path), test.want)
				f, err := b.disk.Open(test.path)
				if !errors.Is(test.want, none) {
					checkError(t, err, test.want)
					return
				}
				if err != nil {
					t.Fatal(err)
				}
				defer f.Close()
				there, err := b.openDir(test.found + "/csi")
				if err != nil {
					t.Fatal(err)
				}
				defer there.Close()
				got, _ := f.Stat(".")
				want, _ := there.Stat(".")
				if got != want || got.Ino == 0 {
					t.Errorf("opened %+v, want %+v", got, want)
				}
			})
		})
	}
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
