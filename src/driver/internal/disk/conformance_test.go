package disk_test

import (
	"cmp"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/disk"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/disk/disktest"
)

// bench is one implementation of disk.Host and the ways to arrange its host without it.
type bench struct {
	host    disk.Host
	openDir func(path string) (disk.FS, error)
	addDir  func(path string)
	addFile func(path string, data []byte)
	symlink func(path, target string)
}

func memoryBench(t *testing.T) bench {
	t.Helper()
	d := disktest.New()
	t.Cleanup(func() {
		if n := d.Opened(); n != 0 {
			t.Errorf("%d directories are still open", n)
		}
	})
	return bench{host: d, openDir: d.OpenDir, addDir: d.AddDir, addFile: d.AddFile, symlink: d.Symlink}
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
		host:    disk.NewHost(root),
		openDir: func(path string) (disk.FS, error) { return disk.OpenDir(filepath.Join(root, path)) },
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
	t.Run("memory", func(t *testing.T) { test(t, memoryBench(t)) })
	t.Run("host", func(t *testing.T) { test(t, hostBench(t)) })
}

// pool opens a fresh pool.
func (b bench) pool(t *testing.T) disk.FS {
	t.Helper()
	if err := b.host.Create("/srv/pool"); err != nil {
		t.Fatal(err)
	}
	f, err := b.host.Open("/srv/pool")
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
	mkdir := func(f disk.FS, name string) error { return f.Mkdir(name, 0o755) }
	own := func(f disk.FS, name string) error { return f.Own(name, 1, 2, 0o700) }
	unlock := func(f disk.FS, name string) error { return f.Unlock(name) }
	write := func(f disk.FS, name string) error { return f.WriteFile(name, []byte("x"), 0o600) }
	read := func(f disk.FS, name string) error { _, err := f.ReadFile(name); return err }
	readDir := func(f disk.FS, name string) error { _, err := f.ReadDir(name); return err }
	stat := func(f disk.FS, name string) error { _, err := f.Stat(name); return err }
	remove := func(f disk.FS, name string) error { return f.Remove(name) }
	removeTree := func(f disk.FS, name string) error { return f.RemoveTree(t.Context(), name, nil) }
	sync := func(f disk.FS, name string) error { return f.Sync(name) }
	handle := func(f disk.FS, name string) error {
		h, err := f.Open(name)
		return cmp.Or(err, h.Close())
	}
	rename := func(to string) func(disk.FS, string) error {
		return func(f disk.FS, name string) error { return f.Rename(name, to) }
	}
	replace := func(to string) func(disk.FS, string) error {
		return func(f disk.FS, name string) error { return f.Replace(name, to) }
	}
	tests := []struct {
		op   string
		do   func(disk.FS, string) error
		name string
		want error
	}{
		{"mkdir", mkdir, "new", none},
		{"mkdir", mkdir, "dir/new", none},
		{"mkdir", mkdir, "dir", syscall.EEXIST},
		{"mkdir", mkdir, "dangling", syscall.EEXIST},
		{"mkdir", mkdir, "missing/new", syscall.ENOENT},
		{"mkdir", mkdir, "file/new", syscall.ENOTDIR},
		{"mkdir", mkdir, "file/new/newer", syscall.ENOTDIR},
		{"mkdir", mkdir, ".", fs.ErrInvalid},
		{"mkdir", mkdir, long, syscall.ENAMETOOLONG},
		{"mkdir", mkdir, long + "/x", syscall.ENAMETOOLONG},
		{"mkdir", mkdir, "bytes \n\xff", none},
		{"mkdir", mkdir, "..dots..", none},

		{"own", own, ".", none},
		{"own", own, "dir", none},
		{"own", own, "file", none},
		{"own", own, "link", syscall.ELOOP},
		{"own", own, "missing", syscall.ENOENT},

		{"unlock", unlock, "dir", none},
		{"unlock", unlock, "file", syscall.ENOTDIR},
		{"unlock", unlock, "link", syscall.ELOOP},
		{"unlock", unlock, "missing", syscall.ENOENT},

		{"write", write, "new", none},
		{"write", write, "file", syscall.EEXIST},
		{"write", write, "dir", syscall.EEXIST},
		{"write", write, "dangling", syscall.EEXIST},
		{"write", write, "missing/new", syscall.ENOENT},
		{"write", write, ".", fs.ErrInvalid},

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
		{"replace empty", replace("empty"), "dir", syscall.EISDIR},
		{"replace link", replace("link"), "file", none},
		{"replace itself", replace("file"), "file", none},
		{"replace", replace("new"), "missing", syscall.ENOENT},

		{"remove", remove, "file", none},
		{"remove", remove, "link", none},
		{"remove", remove, "empty", none},
		{"remove", remove, "dir", syscall.ENOTEMPTY},
		{"remove", remove, "missing", syscall.ENOENT},
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

// TestLinkOut checks that no call follows a link out of the directory.
func TestLinkOut(t *testing.T) {
	calls := map[string]func(f disk.FS) error{
		"mkdir":  func(f disk.FS) error { return f.Mkdir("out/new", 0o755) },
		"write":  func(f disk.FS) error { return f.WriteFile("out/new", nil, 0o600) },
		"own":    func(f disk.FS) error { return f.Own("out/old", 1, 2, 0o700) },
		"remove": func(f disk.FS) error { return f.Remove("out/old") },
		"rename": func(f disk.FS) error { return f.Rename("out/old", "old") },
		"into":   func(f disk.FS) error { return f.Replace("file", "out/old") },
		"tree":   func(f disk.FS) error { return f.RemoveTree(t.Context(), "out/old", nil) },
		"stat":   func(f disk.FS) error { _, err := f.Stat("out/old"); return err },
		"read":   func(f disk.FS) error { _, err := f.ReadFile("out/old"); return err },
		"open":   func(f disk.FS) error { h, err := f.Open("out"); return errors.Join(err, h.Close()) },
	}
	onEach(t, func(t *testing.T, b bench) {
		f := b.pool(t)
		b.addFile("/outside/old", []byte("kept"))
		b.addFile("/srv/pool/csi/file", nil)
		b.symlink("/srv/pool/csi/out", "../../../outside")
		outside, err := b.openDir("/outside")
		if err != nil {
			t.Fatal(err)
		}
		defer outside.Close()
		before := contents(t, outside, ".")
		for op, call := range calls {
			if err := call(f); err == nil {
				t.Errorf("%s follows a link", op)
			}
		}
		if diff := gocmp.Diff(before, contents(t, outside, ".")); diff != "" {
			t.Error(diff)
		}
	})
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
