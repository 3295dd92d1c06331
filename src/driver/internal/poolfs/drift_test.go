package poolfs_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/poolfs"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/poolfs/memfs"
)

// TestNoDrift does the same random things to a pool in memory and to a real one: each call must answer the same, and
// the trees must stay the same.
func TestNoDrift(t *testing.T) {
	requireRoot(t)
	root := t.TempDir()
	mustMount(t, "hpp-test", root, "tmpfs", 0)
	round := 0
	rapid.Check(t, func(rt *rapid.T) {
		round++
		path := fmt.Sprintf("/%d", round)
		d := memfs.New()
		for _, disk := range []poolfs.Disk{d, poolfs.NewHost(root)} {
			if err := disk.Create(path); err != nil {
				rt.Fatal(err)
			}
		}
		d.Symlink(path+"/csi/link", "a")
		if err := os.Symlink("a", root+path+"/csi/link"); err != nil {
			rt.Fatal(err)
		}
		mem, err := d.Open(path)
		if err != nil {
			rt.Fatal(err)
		}
		defer mem.Close()
		host, err := poolfs.NewHost(root).Open(path)
		if err != nil {
			rt.Fatal(err)
		}
		defer host.Close()
		for range rapid.IntRange(1, 40).Draw(rt, "calls") {
			both(rt, mem, host)
		}
		if diff := cmp.Diff(contents(t, mem, "."), contents(t, host, ".")); diff != "" {
			rt.Error(diff)
		}
	})
}

// both makes one random call on each.
func both(rt *rapid.T, mem, host poolfs.FS) {
	name := drawName(rt, "name")
	to := drawName(rt, "to")
	mode := fs.FileMode(rapid.SampledFrom([]uint32{0, 0o700, 0o777, 0o400}).Draw(rt, "mode"))
	calls := map[string]func(f poolfs.FS) error{
		"mkdir":      func(f poolfs.FS) error { return f.Mkdir(name, mode) },
		"chmod":      func(f poolfs.FS) error { return f.Chmod(name, mode) },
		"chown":      func(f poolfs.FS) error { return f.Chown(name, int(mode), -1) },
		"write":      func(f poolfs.FS) error { return f.WriteFile(name, []byte(to), mode) },
		"read":       func(f poolfs.FS) error { _, err := f.ReadFile(name); return err },
		"readdir":    func(f poolfs.FS) error { _, err := f.ReadDir(name); return err },
		"stat":       func(f poolfs.FS) error { _, err := f.Stat(name); return err },
		"rename":     func(f poolfs.FS) error { return f.Rename(name, to) },
		"replace":    func(f poolfs.FS) error { return f.Replace(name, to) },
		"remove":     func(f poolfs.FS) error { return f.Remove(name) },
		"removetree": func(f poolfs.FS) error { return f.RemoveTree(rt.Context(), name, nil) },
		"sync":       func(f poolfs.FS) error { return f.Sync(name) },
		"handle":     func(f poolfs.FS) error { h, err := f.Handle(name); return errors.Join(err, h.Close()) },
	}
	what := rapid.SampledFrom([]string{
		"mkdir", "mkdir", "mkdir", "write", "write", "rename", "rename", "replace",
		"chmod", "chown", "read", "readdir", "stat", "remove", "removetree", "sync", "handle",
	}).Draw(rt, "call")
	inMemory, onHost := reason(calls[what](mem)), reason(calls[what](host))
	if !errors.Is(inMemory, onHost) {
		rt.Errorf("%s %q %q: %v in memory, %v on the host", what, name, to, inMemory, onHost)
	}
}

// drawName draws from few names, so that calls meet each other's.
func drawName(rt *rapid.T, label string) string {
	return rapid.SampledFrom([]string{
		"a", "b", "c", "a/a", "a/b", "b/a", "b/c", "a/a/a", "a/b/c", "b/a/a", "link", "link/a", ".", "..", "", "a/..", "/a", "a/",
	}).Draw(rt, label)
}

// reason is what is inside a PathError or LinkError.
func reason(err error) error {
	var errno syscall.Errno
	switch {
	case err == nil:
		return nil
	case errors.As(err, &errno):
		return errno
	case errors.Is(err, fs.ErrInvalid):
		return fs.ErrInvalid
	default:
		return err
	}
}
