package disktest_test

import (
	"errors"
	"io/fs"
	"syscall"
	"testing"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/disk"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/disk/disktest"
)

// pool is the path that all is about here.
const pool = "/pool"

// mark makes the pool and a directory in it.
func mark(t *testing.T, d *disktest.Disk, name string) {
	t.Helper()
	must(t, d.Create(pool))
	f, err := d.Open(pool)
	must(t, err)
	must(t, f.Mkdir(name, 0o700), f.Sync("."), f.Close())
}

// has tells whether the pool's csi holds a name.
func has(t *testing.T, d *disktest.Disk, name string) bool {
	t.Helper()
	f, err := d.Open(pool)
	if errors.Is(err, fs.ErrNotExist) {
		return false
	}
	must(t, err)
	defer f.Close()
	_, err = f.Stat(name)
	return err == nil
}

func facts(t *testing.T, d *disktest.Disk) disk.Facts {
	t.Helper()
	f, err := d.Inspect(pool)
	must(t, err)
	return f
}

func TestMountOverAPool(t *testing.T) {
	d := disktest.New()
	mark(t, d, "under")
	under := facts(t, d)
	d.Mount(pool)
	if f := facts(t, d); !f.MountPoint || f.CSI || f.Dev == under.Dev {
		t.Errorf("mounted: %+v", f)
	}
	mark(t, d, "over")
	if has(t, d, "under") || !has(t, d.Crash(), "over") {
		t.Error("the mounted filesystem is not what is seen")
	}
	over := facts(t, d)
	must(t, d.Unmount(pool))
	if f := facts(t, d); f != under || !has(t, d, "under") {
		t.Errorf("unmounted: %+v, want %+v", f, under)
	}
	d.Mount(pool)
	if f := facts(t, d); f != over || !has(t, d, "over") {
		t.Errorf("mounted again: %+v, want %+v", f, over)
	}
	must(t, d.Unmount(pool))
	d.MountNew(pool)
	if f := facts(t, d); f.CSI || f.Dev == over.Dev {
		t.Errorf("a new one mounted: %+v", f)
	}
}

func TestMountOverCSI(t *testing.T) {
	d := disktest.New()
	mark(t, d, "under")
	open, err := d.Open(pool)
	must(t, err)
	d.Mount("/pool/csi")
	if f := facts(t, d); f.MountPoint || !f.CSIMountPoint {
		t.Errorf("%+v", f)
	}
	if has(t, d, "under") {
		t.Error("what lies under the mount is seen")
	}
	if _, err := open.Stat("under"); err != nil {
		t.Errorf("a directory opened before the mount sees it: %v", err)
	}
	over, err := d.Open(pool)
	must(t, err, open.Close())
	if err := d.Unmount("/pool/csi"); !errors.Is(err, syscall.EBUSY) {
		t.Errorf("error %v while the filesystem is in use, want %v", err, syscall.EBUSY)
	}
	must(t, over.Close(), d.Unmount("/pool/csi"))
	if n := d.Opened(); n != 0 {
		t.Errorf("%d open", n)
	}
}

func TestReplaceByEmpty(t *testing.T) {
	d := disktest.New()
	mark(t, d, "old")
	d.ReplaceByEmpty(pool)
	if f := facts(t, d); !f.Path || f.CSI {
		t.Errorf("%+v", f)
	}
	d.PutBack(pool)
	if !has(t, d.Crash(), "old") {
		t.Error("the old directory is not back")
	}
}

// TestLimits checks the states that a filesystem can be set to.
func TestLimits(t *testing.T) {
	d := disktest.New()
	mark(t, d, "v")
	f, err := d.Open(pool)
	must(t, err)
	defer f.Close()
	room := disk.Space{Size: 10, Used: 4, Free: 5, Inodes: 3, InodesUsed: 2, InodesFree: 1}
	d.SetSpace(pool, room)
	if space, err := f.Space(); err != nil || space != room {
		t.Errorf("%+v, %v", space, err)
	}
	d.SetFull(pool, true)
	for _, err := range []error{f.Mkdir("x", 0o700), f.WriteFile("y", nil, 0o600)} {
		if !errors.Is(err, syscall.ENOSPC) {
			t.Errorf("error %v, want %v", err, syscall.ENOSPC)
		}
	}
	must(t, f.Sync("."), f.Rename("v", "w"))
	d.SetFull(pool, false)
	d.SetReadOnly(pool, true)
	if err := f.Remove("w"); !errors.Is(err, syscall.EROFS) || !facts(t, d).ReadOnly {
		t.Errorf("error %v, want %v", err, syscall.EROFS)
	}
	d.SetReadOnly(pool, false)
	d.SetFSType(pool, "xfs")
	if kind := facts(t, d).FSType; kind != "xfs" {
		t.Errorf("filesystem %s", kind)
	}
	must(t, f.Remove("w"))
}
