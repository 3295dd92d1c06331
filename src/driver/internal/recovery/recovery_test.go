package recovery_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/disk"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/disk/disktest"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/ledger"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/quota"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/recovery"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/store"
)

const csi = "/pool/csi/"

func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

// limits answers what a test says, and remembers what is asked of it.
type limits struct {
	quota.Limits
	counts map[string]quota.State // by directory
	busy   map[quota.ID]bool      // something counts to the ID
	set    []string
}

func (l *limits) Check(name string, _ quota.ID) (quota.State, error) {
	state, ok := l.counts[name]
	if !ok {
		return state, &fs.PathError{Op: "check", Path: name, Err: syscall.EIO}
	}
	return state, nil
}

func (l *limits) Set(name string, id quota.ID, limit quota.Limit) error {
	if l.busy[id] {
		return syscall.EBUSY
	}
	l.set = append(l.set, fmt.Sprintf("%s %d %d", name, id, limit.Bytes))
	return nil
}

// pool is an open pool in memory.
type pool struct {
	disk.FS
	machine *disktest.Disk
	limits  *limits
}

func newPool(tb testing.TB) pool {
	tb.Helper()
	machine := disktest.New()
	for _, dir := range []string{disk.VolumesDir, disk.StagingDir, disk.TrashDir} {
		machine.AddDir(csi + dir)
	}
	return open(tb, machine)
}

func open(tb testing.TB, machine *disktest.Disk) pool {
	tb.Helper()
	d, err := machine.Open("/pool")
	must(tb, err)
	tb.Cleanup(func() { _ = d.Close() })
	return pool{FS: d, machine: machine, limits: &limits{}}
}

func (p pool) store() store.Pool { return store.Pool{Disk: p, Limits: p.limits} }

// run recovers the pool, whose backend enforces.
func (p pool) run(t *testing.T) recovery.Result {
	t.Helper()
	return p.recover(t, store.Pool{})
}

func (p pool) recover(t *testing.T, with store.Pool) recovery.Result {
	t.Helper()
	with.Disk, with.Limits, with.Log = p, p.limits, slog.New(slog.DiscardHandler)
	with.Backend = quota.Backend{Name: quota.Btrfs, Enforcement: quota.Strict}
	result, err := recovery.Run(t.Context(), with)
	must(t, err)
	return result
}

func encode(id string, quotaID quota.ID, created int64) []byte {
	data, err := json.Marshal(store.Record{
		Version: store.Version, ID: id, Bytes: 4096, QuotaID: quotaID, Created: time.Unix(created, 0).UTC(),
	})
	if err != nil {
		panic(err)
	}
	return data
}

func (p pool) record(id string, quotaID quota.ID) { p.recordAt(id, quotaID, 0) }

func (p pool) recordAt(id string, quotaID quota.ID, created int64) {
	p.machine.AddFile(csi+store.Path(id), encode(id, quotaID, created))
}

func (p pool) prepared(id string, quotaID quota.ID) {
	p.machine.AddFile(csi+disk.Prepared(store.Path(id)), encode(id, quotaID, 0))
}

func (p pool) data(id string) { p.machine.AddFile(csi+id+"/precious", []byte("kept")) }
func (p pool) staged(id string) {
	p.machine.AddFile(csi+disk.StagingDir+"/"+id+"/half", []byte("made"))
}

func (p pool) trashed(id string, n int) string {
	name := fmt.Sprintf("%s/%s.%d", disk.TrashDir, id, n)
	p.machine.AddFile(csi+name+"/data/precious", []byte("kept"))
	return name
}

// tree lists what is below csi/, but for the directories that are always there.
func tree(t *testing.T, d disk.FS) []string {
	t.Helper()
	var found []string
	var visit func(dir string)
	visit = func(dir string) {
		entries, err := d.ReadDir(dir)
		must(t, err)
		if len(entries) == 0 && dir != disk.VolumesDir && dir != disk.StagingDir && dir != disk.TrashDir {
			found = append(found, dir+"/")
		}
		for _, e := range entries {
			name := strings.TrimPrefix(dir+"/"+e.Name, "./")
			if e.Dir {
				visit(name)
			} else {
				found = append(found, name)
			}
		}
	}
	visit(".")
	slices.Sort(found)
	return found
}

// TestRun arranges what a crash can leave of pvc-1 and compares what is there after recovery with what should be. What
// is forgotten in another crash is recovered as well.
func TestRun(t *testing.T) {
	for name, test := range map[string]struct {
		arrange func(p pool)
		left    []string
		set     []string
		result  recovery.Result
	}{
		"healthy": {
			arrange: func(p pool) { p.record("pvc-1", 0); p.data("pvc-1") },
			left:    []string{".hpp/volumes/pvc-1.json", "pvc-1/precious"},
			result:  recovery.Result{Volumes: map[string]ledger.Volume{"pvc-1": {Bytes: 4096}}},
		},
		"healthy, with what an interrupted create left": {
			arrange: func(p pool) {
				p.record("pvc-1", 0)
				p.data("pvc-1")
				p.staged("pvc-1")
				p.prepared("pvc-1", 7)
			},
			left:   []string{".hpp/volumes/pvc-1.json", "pvc-1/precious"},
			result: recovery.Result{Volumes: map[string]ledger.Volume{"pvc-1": {Bytes: 4096}}},
		},
		"healthy, and an older one in the trash": {
			arrange: func(p pool) { p.record("pvc-1", 0); p.data("pvc-1"); p.trashed("pvc-1", 1) },
			left:    []string{".hpp/trash/pvc-1.1/data/precious", ".hpp/volumes/pvc-1.json", "pvc-1/precious"},
			result:  recovery.Result{Volumes: map[string]ledger.Volume{"pvc-1": {Bytes: 4096}}},
		},
		"a create that was not answered": {
			arrange: func(p pool) { p.record("pvc-1", 7); p.staged("pvc-1") },
			set:     []string{" 7 0"},
		},
		"a create that had no record yet": {
			arrange: func(p pool) { p.prepared("pvc-1", 7); p.staged("pvc-1") },
			set:     []string{" 7 0"},
		},
		"a create that had only prepared its record": {
			arrange: func(p pool) { p.prepared("pvc-1", 7) },
			set:     []string{" 7 0"},
		},
		"a record that was prepared in part": {
			arrange: func(p pool) { p.machine.AddFile(csi+".hpp/volumes/.pvc-1.json.tmp", []byte(`{"vers`)) },
		},
		"a delete whose record stayed behind": {
			arrange: func(p pool) { p.record("pvc-1", 7); p.trashed("pvc-1", 1); p.trashed("pvc-1", 5) },
			left: []string{
				".hpp/trash/pvc-1.1/data/precious", ".hpp/trash/pvc-1.5/data/precious",
				".hpp/trash/pvc-1.5/record.json",
			},
		},
		"a delete that had not moved anything": {
			arrange: func(p pool) {
				p.record("pvc-1", 0)
				p.data("pvc-1")
				p.machine.AddDir(csi + ".hpp/trash/pvc-1.1")
			},
			// The entry is the spare directory, of which this pool had none.
			left:   []string{".hpp/trash/.spare/", ".hpp/volumes/pvc-1.json", "pvc-1/precious"},
			result: recovery.Result{Volumes: map[string]ledger.Volume{"pvc-1": {Bytes: 4096}}},
		},
		"lost data": {
			arrange: func(p pool) { p.record("pvc-1", 7) },
			left:    []string{".hpp/volumes/pvc-1.json"},
			result: recovery.Result{
				Volumes: map[string]ledger.Volume{"pvc-1": {Bytes: 4096, QuotaID: 7}}, Lost: []string{"pvc-1"},
			},
		},
		"untracked": {
			arrange: func(p pool) { p.data("pvc-1"); p.staged("pvc-1"); p.prepared("pvc-1", 7) },
			left:    []string{".hpp/volumes/.pvc-1.json.tmp", "pvc-1/precious"},
			result:  recovery.Result{Untracked: []string{"pvc-1"}},
		},
		"names of nobody": {
			arrange: func(p pool) {
				p.data("snapshots")
				p.data(".snapshots")
				p.machine.AddFile(csi+"README", nil)
				p.machine.AddFile(csi+disk.StagingDir+"/README", nil)
				p.machine.AddFile(csi+disk.TrashDir+"/README", nil)
			},
			left: []string{
				".hpp/staging/README", ".hpp/trash/README", ".snapshots/precious", "README", "snapshots/precious",
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPool(t)
			test.arrange(p)
			for _, about := range []string{"", ", again", ", after a crash"} {
				if about == ", after a crash" {
					p = open(t, p.machine.Crash())
				}
				got := p.run(t)
				for id, v := range got.Volumes {
					v.Created = time.Time{}
					got.Volumes[id] = v
				}
				if len(got.Volumes) == 0 {
					got.Volumes = nil
				}
				equal(t, name+about, got, test.result)
				if left := tree(t, p); !slices.Equal(left, test.left) {
					t.Errorf("left%s: %v, want %v", about, left, test.left)
				}
				if about == "" && !slices.Equal(p.limits.set, test.set) {
					t.Errorf("limits set: %q, want %q", p.limits.set, test.set)
				}
			}
		})
	}
}

func equal(t *testing.T, about string, got, want recovery.Result) {
	t.Helper()
	if !reflect.DeepEqual(got.Volumes, want.Volumes) || !slices.Equal(got.Lost, want.Lost) ||
		!slices.Equal(got.Refused, want.Refused) || !slices.Equal(got.Uncleared, want.Uncleared) ||
		!slices.Equal(got.Uncounted, want.Uncounted) || !slices.Equal(got.Untracked, want.Untracked) ||
		got.Leftovers != want.Leftovers {
		t.Errorf("%s: %+v, want %+v", about, got, want)
	}
}

// TestDamageIsContained: what cannot be read or understood is one volume's trouble, and is not touched.
func TestDamageIsContained(t *testing.T) {
	for name, test := range map[string]struct {
		arrange func(p pool)
		refused []string
	}{
		"a broken record": {func(p pool) {
			p.machine.AddFile(csi+store.Path("pvc-1"), []byte(`{"version":2,"id":"pvc-1","by`))
			p.data("pvc-1")
		}, []string{"pvc-1"}},
		"a broken record of a create that was not answered": {func(p pool) {
			p.machine.AddFile(csi+store.Path("pvc-1"), []byte(`{"version":1}`))
			p.staged("pvc-1")
		}, []string{"pvc-1"}},
		"a file where the data should be": {func(p pool) {
			p.record("pvc-1", 0)
			p.machine.AddFile(csi+"pvc-1", nil)
		}, []string{"pvc-1"}},
		"a link where the data should be": {func(p pool) {
			p.record("pvc-1", 0)
			p.machine.Symlink(csi+"pvc-1", "/etc")
		}, []string{"pvc-1"}},
		"a broken record in the trash": {func(p pool) {
			p.machine.AddFile(csi+p.trashed("pvc-1", 1)+"/record.json", []byte(`{`))
		}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPool(t)
			test.arrange(p)
			p.record("pvc-2", 0)
			p.data("pvc-2")
			before := tree(t, p)
			got := p.run(t)
			_, served := got.Volumes["pvc-2"]
			if !slices.Equal(got.Refused, test.refused) || !served || len(got.Lost)+len(got.Untracked) > 0 {
				t.Errorf("%+v", got)
			}
			for _, id := range got.Refused {
				if !got.Volumes[id].Refused {
					t.Errorf("the ledger is to have %+v", got.Volumes[id])
				}
			}
			if after := tree(t, p); !slices.Equal(before, after) {
				t.Errorf("%v became %v", before, after)
			}
		})
	}
}

// sick is a disk on which nothing below some names can be read or removed.
type sick struct {
	disk.FS
	names []string
}

func (s sick) fails(name string) error {
	for _, bad := range s.names {
		if name == bad || strings.HasPrefix(name, bad+"/") {
			return &fs.PathError{Op: "read", Path: name, Err: syscall.EIO}
		}
	}
	return nil
}

func (s sick) ReadFile(name string) ([]byte, error) {
	if err := s.fails(name); err != nil {
		return nil, err
	}
	return s.FS.ReadFile(name)
}

func (s sick) ReadDir(name string) ([]disk.Entry, error) {
	if err := s.fails(name); err != nil {
		return nil, err
	}
	return s.FS.ReadDir(name)
}

func (s sick) Stat(name string) (disk.Info, error) {
	if err := s.fails(name); err != nil {
		return disk.Info{}, err
	}
	return s.FS.Stat(name)
}

func (s sick) Remove(name string) error { return errors.Join(s.fails(name), s.FS.Remove(name)) }

// TestAnUnreadableNameIsItsOwnTrouble: a record, a directory or a trash entry with an I/O error refuses that one, and
// the rest of the pool is served.
func TestAnUnreadableNameIsItsOwnTrouble(t *testing.T) {
	for name, test := range map[string]struct {
		bad     string
		arrange func(p pool)
		refused []string
	}{
		"record": {
			".hpp/volumes/pvc-1.json", func(p pool) { p.record("pvc-1", 0); p.data("pvc-1") }, []string{"pvc-1"},
		},
		"directory": {
			"pvc-1", func(p pool) { p.record("pvc-1", 0); p.data("pvc-1"); p.staged("pvc-1") }, []string{"pvc-1"},
		},
		"trash entry": {".hpp/trash/pvc-1.1", func(p pool) { p.trashed("pvc-1", 1) }, nil},
		"empty trash entry": {
			".hpp/trash/pvc-1.1", func(p pool) { p.machine.AddDir(csi + ".hpp/trash/pvc-1.1") }, nil,
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPool(t)
			test.arrange(p)
			p.record("pvc-2", 0)
			p.data("pvc-2")
			p.FS = sick{p.FS, []string{test.bad}}
			got := p.run(t)
			if _, served := got.Volumes["pvc-2"]; !slices.Equal(got.Refused, test.refused) || !served {
				t.Errorf("%+v", got)
			}
		})
	}
}

// TestReadOnly: then recovery only reads.
func TestReadOnly(t *testing.T) {
	p := newPool(t)
	p.record("pvc-1", 7)
	p.staged("pvc-1")
	p.record("pvc-2", 8)
	p.data("pvc-2")
	p.machine.AddDir(csi + ".hpp/trash/pvc-3.1")
	p.limits.counts = map[string]quota.State{"pvc-2": {ID: 8, Limit: quota.Limit{Bytes: 1}}}
	p.machine.SetReadOnly("/pool", true)
	before, calls := tree(t, p), p.machine.Calls()
	got := p.recover(t, store.Pool{ReadOnly: true})
	if v, ok := got.Volumes["pvc-2"]; !ok || !v.Counted || len(got.Refused) > 0 {
		t.Errorf("%+v", got)
	}
	if !slices.Equal(tree(t, p), before) || p.machine.Calls() != calls || len(p.limits.set) > 0 {
		t.Errorf("it changed %v, %v, %v", tree(t, p), p.machine.Trace(), p.limits.set)
	}
}
