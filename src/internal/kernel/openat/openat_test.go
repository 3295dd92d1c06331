package openat_test

import (
	"errors"
	"io/fs"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/kernel/mounttest"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/kernel/openat"
)

// TestPlain opens one of everything by its name.
func TestPlain(t *testing.T) {
	top := t.TempDir()
	for _, err := range []error{
		os.Mkdir(top+"/dir", 0o700),
		os.WriteFile(top+"/file", nil, 0o600),
		os.Symlink("file", top+"/link"),
		unix.Mkfifo(top+"/fifo", 0o600),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	dir, err := os.Open(top)
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	for name, want := range map[string]error{
		".": nil, "dir": nil, "file": nil, "link": unix.ELOOP, "fifo": openat.ErrKind, "missing": fs.ErrNotExist,
		"..": fs.ErrInvalid, "": fs.ErrInvalid, "/": fs.ErrInvalid, "dir/": fs.ErrInvalid, "a\x00": fs.ErrInvalid,
	} {
		f, isDir, err := openat.Plain(dir, name)
		if !errors.Is(err, want) || isDir != (name == "dir" || name == ".") {
			t.Errorf("%q: a directory: %v, error %v, want %v", name, isDir, err, want)
		}
		if err == nil {
			f.Close()
		}
	}
}

// TestRemove removes a name of an immutable file, which stays so by its other name.
func TestRemove(t *testing.T) {
	top := mounttest.Disk(t, "ext4", 64<<20)
	dir, err := os.Open(top)
	if err == nil {
		err = errors.Join(os.WriteFile(top+"/a", nil, 0o600), os.Link(top+"/a", top+"/b"))
	}
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	f, _, err := openat.Plain(dir, "b")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	err = unix.IoctlSetPointerInt(int(f.Fd()), unix.FS_IOC_SETFLAGS, 0x10)
	if err = errors.Join(err, openat.Remove(dir, "a"), openat.Remove(dir, "missing")); err != nil {
		t.Fatal(err)
	}
	if err = os.Remove(top + "/b"); !errors.Is(err, unix.EPERM) {
		t.Errorf("the other name: %v", err)
	}
	if _, _, err = openat.Lookup(dir, "a"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the name: %v", err)
	}
	if err = openat.Remove(dir, "lost+found"); !errors.Is(err, unix.EISDIR) {
		t.Errorf("a directory: %v", err)
	}
}

// TestPath keeps a message readable, whatever names a pod chooses.
func TestPath(t *testing.T) {
	dir := os.NewFile(uintptr(1<<20), "/pool")
	for name, want := range map[string]string{
		"a":                         "/pool/a",
		".":                         "/pool",
		"näme":                      "/pool/näme",
		"a\nb":                      `/pool/"a\nb"`,
		"\xff":                      `/pool/"\xff"`,
		strings.Repeat("x/", 1<<20): "/pool/" + strings.Repeat("x/", 253) + "…" + strings.Repeat("/x", 256),
	} {
		if got := openat.Path(dir, name); got != want {
			t.Errorf("%.20q is shown as %q, want %q", name, got, want)
		}
	}
}
