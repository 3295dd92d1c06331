package volume_test

import (
	"io/fs"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/disk"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/disk/disktest"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/volume"
)

// forgetful is a client of a network filesystem that remembers that pvc-1 is not there, and lists it or not.
type forgetful struct {
	*disktest.Disk
	misses, hides atomic.Bool
}

type forgetfulFS struct {
	disk.FS
	of *forgetful
}

func (f *forgetful) Open(path string) (disk.FS, error) {
	d, err := f.Disk.Open(path)
	return forgetfulFS{d, f}, err
}

func (f forgetfulFS) Stat(name string) (disk.Info, error) {
	if f.of.misses.Load() && name == "pvc-1" {
		return disk.Info{}, &fs.PathError{Op: "stat", Path: name, Err: syscall.ENOENT}
	}
	return f.FS.Stat(name)
}

func (f forgetfulFS) ReadDir(name string) ([]disk.Entry, error) {
	entries, err := f.FS.ReadDir(name)
	for i := len(entries) - 1; i >= 0 && f.of.hides.Load(); i-- {
		if entries[i].Name == "pvc-1" {
			entries = append(entries[:i], entries[i+1:]...)
		}
	}
	return entries, err
}

// TestANegativeLookUp of a directory in a shared pool, which a client may answer from its memory, loses nothing.
func TestANegativeLookUp(t *testing.T) {
	d := network()
	f := &forgetful{Disk: d}
	n := member(t, d, "a", f)
	mustCreate(t, n, "pvc-1")
	n.fill(t, "pvc-1")
	uncertain := func(says string) {
		t.Helper()
		wants(t, n.Delete(t.Context(), "pvc-1"), volume.ErrUncertain, says)
		if names := n.ls(t, disk.VolumesDir); len(names) != 1 {
			t.Errorf("records: %v", names)
		}
	}
	f.misses.Store(true)
	uncertain("csi/pvc-1 is listed")
	n.clock.advance(2 * time.Minute)
	uncertain("lookupcache=positive")
	f.hides.Store(true)
	uncertain("still missing after 1m0s")
	n.clock.advance(time.Minute)
	uncertain("still missing after 1m0s")
	f.misses.Store(false)
	must(t, n.Publish(t.Context(), publish("pvc-1", target)))
	wants(t, n.Delete(t.Context(), "pvc-1"), volume.ErrPublished)
	f.misses.Store(true)
	n.clock.advance(2 * time.Minute)
	uncertain("still missing after 1m0s") // it was there in between
	n.clock.advance(16 * time.Minute)
	uncertain("still missing after 1m0s") // or may have been
	n.clock.advance(time.Minute + time.Second)
	must(t, n.Delete(t.Context(), "pvc-1"))
	if _, _, err := n.Get(t.Context(), "pvc-1"); err == nil {
		t.Error("a record whose data has been missing for a minute stays")
	}
}
