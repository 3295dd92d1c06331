package store

import (
	"encoding/json"
	"errors"
	"io/fs"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/disk"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/disk/disktest"
)

// machine is a pool's disk in memory.
type machine struct {
	disk.FS
	memory *disktest.Disk
	now    time.Time
}

func newMachine(t *testing.T) *machine {
	t.Helper()
	m := &machine{memory: disktest.New(), now: time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)}
	for _, dir := range []string{disk.VolumesDir, disk.TrashDir} {
		m.memory.AddDir("/pool/csi/" + dir)
	}
	var err error
	m.FS, err = m.memory.Open("/pool")
	must(t, err)
	return m
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (m *machine) volume(id string) Record {
	r := Record{Version: Version, ID: id}
	data, err := json.Marshal(r)
	if err != nil {
		panic(err)
	}
	m.memory.AddFile("/pool/csi/"+Path(id), data)
	m.memory.AddFile("/pool/csi/"+id+"/precious", []byte("kept"))
	return r
}

// entry gives the only entry of an id, which must have data and record.
func (m *machine) entry(t *testing.T, d disk.FS, id string) TrashEntry {
	t.Helper()
	entries, troubles, err := TrashEntries(d, id)
	if err != nil || len(troubles) > 0 || len(entries) != 1 {
		t.Fatalf("%+v, %v, %v", entries, troubles, err)
	}
	e := entries[0]
	data, err := d.ReadFile(disk.TrashDir + "/" + e.Name + "/data/precious")
	if err != nil || string(data) != "kept" || e.Unfinished || e.Empty {
		t.Errorf("%+v, %q, %v", e, data, err)
	}
	if _, err := d.Stat(disk.TrashDir + "/" + e.Name + "/record.json"); err != nil {
		t.Error(err)
	}
	for _, name := range []string{id, Path(id)} {
		if _, err := d.Stat(name); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("csi/%s is there: %v", name, err)
		}
	}
	return e
}

func TestDiscard(t *testing.T) {
	for _, ordered := range []bool{false, true} {
		m := newMachine(t)
		must(t, discard(m, m.volume("pvc-1"), "pvc-1", ordered, m.now))
		if e := m.entry(t, m, "pvc-1"); e.ID != "pvc-1" || !e.Deleted.Equal(m.now) {
			t.Errorf("%+v", e)
		}
		if ordered { // what is on the disk then is the filesystem's business
			continue
		}
		after, err := m.memory.Crash().Open("/pool")
		must(t, err)
		m.entry(t, after, "pvc-1")
	}
}

// TestDiscardTwice: each delete of an id has an entry of its own, also in the same millisecond.
func TestDiscardTwice(t *testing.T) {
	m := newMachine(t)
	for range 2 {
		must(t, discard(m, m.volume("pvc-1"), "pvc-1", false, m.now))
	}
	entries, err := ListTrash(m)
	if err != nil || len(entries) != 2 || entries[0].ID != "pvc-1" || entries[1].ID != "pvc-1" {
		t.Errorf("%+v, %v", entries, err)
	}
}

// locked is a disk on which a directory has the immutable flag.
type locked struct {
	disk.FS
	name     string
	unlocked *bool
}

func (l locked) Rename(from, to string) error {
	if from == l.name && !*l.unlocked {
		return &fs.PathError{Op: "rename", Path: from, Err: syscall.EPERM}
	}
	return l.FS.Rename(from, to)
}

func (l locked) Unlock(name string) error {
	*l.unlocked = *l.unlocked || name == l.name
	return l.FS.Unlock(name)
}

// TestDiscardClearsTheImmutableFlag of a volume's root, and of no other that need not be moved.
func TestDiscardClearsTheImmutableFlag(t *testing.T) {
	m := newMachine(t)
	unlocked := false
	must(t, discard(locked{m.FS, "pvc-1", &unlocked}, m.volume("pvc-1"), "pvc-1", false, m.now))
	m.entry(t, m, "pvc-1")
	unlocked = false
	must(t, discard(locked{m.FS, "pvc-1", &unlocked}, m.volume("pvc-2"), "pvc-2", false, m.now))
	if unlocked {
		t.Error("the flag of another volume was cleared")
	}
}

// TestDiscardIsCompleted after a failure at any step: by another discard, or by finishDelete.
func TestDiscardIsCompleted(t *testing.T) {
	for step := 1; ; step++ {
		m := newMachine(t)
		r := m.volume("pvc-1")
		m.memory.FailAt(step, syscall.EIO)
		if discard(m, r, r.ID, false, m.now) == nil {
			if step < 8 {
				t.Errorf("only %d steps", step-1)
			}
			return
		}
		entries, troubles, err := TrashEntries(m, "pvc-1")
		must(t, errors.Join(append(troubles, err)...))
		i := slices.IndexFunc(entries, func(e TrashEntry) bool { return e.Unfinished })
		switch _, err := m.Stat("pvc-1"); {
		case err == nil:
			must(t, discard(m, r, r.ID, false, m.now))
		case i >= 0:
			must(t, finishDelete(m, entries[i].Name, "pvc-1"))
		default:
			must(t, SyncDeletes(m, "pvc-1"))
		}
		for _, e := range entries {
			if e.Empty {
				_ = RemoveEmpty(m, e.Name)
			}
		}
		m.entry(t, m, "pvc-1")
	}
}

func TestSplit(t *testing.T) {
	for name, want := range map[string]string{
		"pvc-1.5": "pvc-1", "a.b.17": "a.b", "pvc-1": "", "pvc-1.": "", ".5": "", ".spare": "", "a.-1": "", "a.x": "",
		"a.99999999999999999999": "", "snapshots.5": "",
	} {
		id, _, ok := ParseEntryName(name)
		if id != want || ok != (want != "") {
			t.Errorf("%s: %q, %v", name, id, ok)
		}
	}
}
