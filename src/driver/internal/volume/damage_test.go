package volume_test

import (
	"errors"
	"io/fs"
	"strings"
	"syscall"
	"testing"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/disk"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/disk/disktest"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/ledger"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/store"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/volume"
)

// rotten is a disk on which names that have a part cannot be read.
type rotten struct {
	*disktest.Disk
	part string
}

type rottenFS struct {
	disk.FS
	part string
}

func (r *rotten) Open(path string) (disk.FS, error) {
	d, err := r.Disk.Open(path)
	return rottenFS{d, r.part}, err
}

func (r rottenFS) bad(name string) error {
	if r.part == "" || !strings.Contains(name, r.part) {
		return nil
	}
	return &fs.PathError{Op: "read", Path: name, Err: syscall.EIO}
}

func (r rottenFS) ReadFile(name string) ([]byte, error) {
	if err := r.bad(name); err != nil {
		return nil, err
	}
	return r.FS.ReadFile(name)
}

func (r rottenFS) ReadDir(name string) ([]disk.Entry, error) {
	if err := r.bad(name); err != nil {
		return nil, err
	}
	return r.FS.ReadDir(name)
}

// refusedAlone wants pvc-1 refused, its data untouched, and pvc-2 served.
func refusedAlone(t *testing.T, n *node) {
	t.Helper()
	if s := n.status(); !s.Served() || s.Refused != 1 || s.Volumes != 2 || !n.warned("VolumeRefused", "pvc-1") {
		t.Errorf("status %+v; want one refused and one good volume", s)
	}
	wants(t, n.Publish(t.Context(), publish("pvc-1", target)), store.ErrBroken, "pvc-1.json")
	wants(t, n.Delete(t.Context(), "pvc-1"), store.ErrBroken, "untouched")
	wants(t, n.Discard(t.Context(), "pvc-1", "", 0), store.ErrBroken, "pvc-1.json")
	_, err := n.Create(t.Context(), spec("pvc-1"))
	wants(t, err, store.ErrBroken, "pvc-1.json")
	n.kept(t, "pvc-1", "refused")
	must(t, n.Publish(t.Context(), publish("pvc-2", target)), n.Unpublish(t.Context(), "pvc-2", target),
		n.Delete(t.Context(), "pvc-2"))
	mustCreate(t, n, "pvc-3")
}

func withTwo(t *testing.T) *disktest.Disk {
	t.Helper()
	d := newDisk()
	n := warm(t, d)
	mustCreate(t, n, "pvc-1")
	mustCreate(t, n, "pvc-2")
	n.fill(t, "pvc-1")
	return d
}

func TestBrokenRecordHarmsNoOtherVolume(t *testing.T) {
	for name, content := range map[string]string{
		"truncated": `{"version": 2, "id": "pvc-1", "po`,
		"older":     `{"version": 1, "id": "pvc-1", "pool": "local", "bytes": 1048576}`,
		"newer":     `{"version": 5, "id": "pvc-1", "pool": "local", "bytes": 1048576}`,
		"empty":     ``,
		"another's": `{"version": 2, "id": "pvc-2", "pool": "local", "bytes": 1048576}`,
		"negative":  `{"version": 2, "id": "pvc-1", "pool": "local", "bytes": -1}`,
	} {
		t.Run(name, func(t *testing.T) {
			d := withTwo(t)
			d.AddFile(poolPath+"/csi/"+store.Path("pvc-1"), []byte(content))
			refusedAlone(t, warm(t, d))
		})
	}
}

// TestUnreadableRecord: an error of the disk in one record is that volume's trouble, now and after it was served.
func TestUnreadableRecord(t *testing.T) {
	d := withTwo(t)
	host := &rotten{Disk: d, part: "pvc-1.json"}
	refusedAlone(t, warm(t, d, withHost(host)))
	host.part = ""
	n := warm(t, d, withHost(host))
	if _, _, err := n.Get(t.Context(), "pvc-1"); err != nil {
		t.Errorf("the record can be read again: %v", err)
	}
	host.part = "pvc-1.json"
	wants(t, n.Delete(t.Context(), "pvc-1"), store.ErrBroken, "pvc-1.json")
	must(t, n.Delete(t.Context(), "pvc-3"))
}

// TestUnreadableTrashEntry of a delete that was interrupted: its volume is not served, and its delete is never
// answered.
func TestUnreadableTrashEntry(t *testing.T) {
	d := withTwo(t)
	n := warm(t, d)
	d.FailAt(6, syscall.EIO) // the move of the record, after that of the data
	if err := n.Delete(t.Context(), "pvc-1"); !errors.Is(err, syscall.EIO) {
		t.Fatalf("delete: %v", err)
	}
	host := &rotten{Disk: d, part: disk.TrashDir + "/pvc-1."}
	n = warm(t, d, withHost(host))
	if err := n.Delete(t.Context(), "pvc-1"); err == nil {
		t.Error("a delete was answered of which nobody can see how far it has come")
	}
	mustCreate(t, n, "pvc-3")
	must(t, n.Delete(t.Context(), "pvc-2"))
	host.part = ""
	must(t, n.Delete(t.Context(), "pvc-1"))
	inTrash := 0
	for _, e := range n.ls(t, disk.TrashDir) {
		if strings.HasPrefix(e, "pvc-") {
			inTrash++
		}
	}
	if inTrash != 2 {
		t.Errorf("the trash has %v", n.ls(t, disk.TrashDir))
	}
	n.consistent(t, "readable again")
}

// TestReadOnlyFilesystem: its pool is present and serves what it has. Nothing is made or deleted, and recovery only
// reads.
func TestReadOnlyFilesystem(t *testing.T) {
	d := withTwo(t)
	n := warm(t, d)
	d.CrashAt(8) // in the middle of a create, so that recovery would have something to do
	_, err := n.Create(t.Context(), spec("pvc-3"))
	wants(t, err, disktest.ErrCrashed)
	d = d.CrashKeepingAll()
	before := d.Calls()
	d.SetReadOnly(poolPath, true)
	space := disk.Space{Size: 100 << 30, Used: 20 << 30, Free: 80 << 30, ReadOnly: true}
	d.SetSpace(poolPath, space)
	n = warm(t, d)
	for _, line := range d.Trace()[before:] {
		if strings.Contains(line, poolPath) {
			t.Errorf("recovery has changed something: %s", line)
		}
	}
	s := n.status()
	if !s.Served() || s.Volumes < 2 || !s.ReadOnly || s.Reason != "ReadOnly" || s.Allocatable != 0 {
		t.Errorf("%+v", s)
	}
	_, err = n.Create(t.Context(), spec("pvc-4"))
	wants(t, err, ledger.ErrNoSpace, "read-only")
	wants(t, n.Delete(t.Context(), "pvc-1"), syscall.EROFS)
	_, err = n.Expand(t.Context(), "pvc-1", 2*mebibyte, 0)
	wants(t, err, ledger.ErrNoSpace, "read-only")
	must(t, n.Publish(t.Context(), publish("pvc-1", target)))
	wants(t, n.Delete(t.Context(), "pvc-1"), volume.ErrPublished)
	must(t, n.Unpublish(t.Context(), "pvc-1", target))
	n.kept(t, "pvc-1", "read-only")
	d.SetReadOnly(poolPath, false)
	space.ReadOnly = false
	d.SetSpace(poolPath, space)
	n = warm(t, d)
	mustCreate(t, n, "pvc-3")
	must(t, n.Delete(t.Context(), "pvc-1"))
	n.consistent(t, "writable again")
}
