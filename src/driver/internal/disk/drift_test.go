package disk_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/disk"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/disk/disktest"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/kernel/mounttest"
)

// TestNoDrift does the same random things to a pool in memory and to a real one: each call must answer the same, and
// the trees must stay the same.
func TestNoDrift(t *testing.T) {
	requireRoot(t)
	root := t.TempDir()
	mounttest.Tmpfs(t, root, "")
	round := 0
	rapid.Check(t, func(rt *rapid.T) {
		round++
		path := fmt.Sprintf("/%d", round)
		d := disktest.New()
		must(t, d.Create(path))
		must(t, disk.NewHost(root).Create(path))
		d.Symlink(path+"/csi/link", "a")
		must(t, os.Symlink("a", root+path+"/csi/link"))
		memory, err := d.Open(path)
		must(t, err)
		defer memory.Close()
		host, err := disk.NewHost(root).Open(path)
		must(t, err)
		defer host.Close()
		for range rapid.IntRange(1, 40).Draw(rt, "calls") {
			both(rt, memory, host)
		}
		if diff := gocmp.Diff(contents(t, memory, "."), contents(t, host, ".")); diff != "" {
			rt.Error(diff)
		}
	})
}

// both makes one random call on each.
func both(rt *rapid.T, memory, host disk.FS) {
	name, to := drawName(rt, "name"), drawName(rt, "to")
	mode := fs.FileMode(rapid.SampledFrom([]uint32{0, 0o700, 0o777, 0o400}).Draw(rt, "mode"))
	step := func(context.Context) error { return nil }
	calls := map[string]func(f disk.FS) error{
		"mkdir":      func(f disk.FS) error { return f.Mkdir(name, mode) },
		"own":        func(f disk.FS) error { return f.Own(name, int(mode), 7, mode) },
		"write":      func(f disk.FS) error { return f.WriteFile(name, []byte(to), mode) },
		"read":       func(f disk.FS) error { _, err := f.ReadFile(name); return err },
		"readdir":    func(f disk.FS) error { _, err := f.ReadDir(name); return err },
		"stat":       func(f disk.FS) error { _, err := f.Stat(name); return err },
		"rename":     func(f disk.FS) error { return f.Rename(name, to) },
		"replace":    func(f disk.FS) error { return f.Replace(name, to) },
		"remove":     func(f disk.FS) error { return f.Remove(name) },
		"removetree": func(f disk.FS) error { return f.RemoveTree(rt.Context(), name, step) },
		"sync":       func(f disk.FS) error { return f.Sync(name) },
		"open":       func(f disk.FS) error { h, err := f.Open(name); return errors.Join(err, h.Close()) },
	}
	what := rapid.SampledFrom([]string{
		"mkdir", "mkdir", "mkdir", "write", "write", "rename", "rename", "replace",
		"own", "read", "readdir", "stat", "remove", "removetree", "sync", "open",
	}).Draw(rt, "call")
	inMemory, onHost := reason(calls[what](memory)), reason(calls[what](host))
	if what == "replace" && inMemory != nil && onHost != nil {
		return // of several reasons each may find another one first
	}
	if !errors.Is(inMemory, onHost) {
		rt.Errorf("%s %q %q: %v in memory, %v on the host", what, name, to, inMemory, onHost)
	}
}

// drawName draws from few names, so that calls meet each other's.
func drawName(rt *rapid.T, label string) string {
	return rapid.SampledFrom([]string{
		"a", "b", "c", "a/a", "a/b", "b/a", "b/c", "a/a/a", "a/b/c", "b/a/a",
		"link", "link/a", ".", "..", "", "a/..", "/a", "a/",
	}).Draw(rt, label)
}

// reason is what is inside an error, without the names.
func reason(err error) error {
	if errno, ok := errors.AsType[syscall.Errno](err); ok {
		return errno
	}
	if errors.Is(err, fs.ErrInvalid) {
		return fs.ErrInvalid
	}
	return err
}
