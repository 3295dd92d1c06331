package purge

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"path"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/time/rate"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/disk"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/disk/disktest"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/quota"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/store"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/poolspec"
)

// owners are the volumes that count to IDs.
type owners map[quota.ID]string

func (o owners) Uses(id quota.ID) bool    { return o[id] != "" }
func (o owners) Owner(id quota.ID) string { return o[id] }

func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

// machine is a pool's disk, its worker, and the clocks, which the test moves.
type machine struct {
	disk.FS
	*Worker
	memory *disktest.Disk
	limits *limits
	owners owners
	wall   time.Time
	boot   time.Duration
	bootID string
	unsure bool // the kernel does not call the clock synchronised
	log    strings.Builder
}

// newMachine is one with an empty trash and a retention of an hour.
func newMachine(t *testing.T) *machine {
	t.Helper()
	m := &machine{
		memory: disktest.New(), limits: &limits{}, owners: owners{},
		wall: time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC), boot: time.Hour, bootID: "first",
	}
	m.memory.AddDir("/state")
	for _, dir := range []string{disk.VolumesDir, disk.TrashDir} {
		m.memory.AddDir("/pool/csi/" + dir)
	}
	var err error
	m.FS, err = m.memory.Open("/pool")
	must(t, err)
	m.start(t, poolspec.Trash{Retention: poolspec.Duration(time.Hour)})
	return m
}

// start starts the worker of a pool, as after a start of the driver.
func (m *machine) start(t *testing.T, spec poolspec.Trash) {
	t.Helper()
	state, err := m.memory.OpenDir("/state")
	must(t, err)
	t.Cleanup(func() { _ = state.Close() })
	c := NewClock(func() time.Time { return m.wall }, func() bool { return !m.unsure }, state)
	c.boot, c.bootID = func() time.Duration { return m.boot }, func() string { return m.bootID }
	c.known, c.written = kept{}, kept{}
	c.trouble = c.recall()
	log := slog.New(slog.NewTextHandler(&m.log, nil))
	m.Worker = NewPurger(c).For(poolspec.Pool{Name: "local", Trash: spec}, log, m.owners)
	m.Worker.limit = rate.NewLimiter(rate.Inf, 0)
}

// pass lets both clocks go on.
func (m *machine) pass(d time.Duration) {
	m.wall = m.wall.Add(d)
	m.boot += d
}

// limits can be busy.
type limits struct {
	quota.Limits
	busy bool
	set  []quota.ID
}

func (l *limits) Set(name string, id quota.ID, limit quota.Limit) error {
	if l.busy {
		return fmt.Errorf("remove the limit: %w", syscall.EBUSY)
	}
	if name != "" || limit != (quota.Limit{}) {
		return errors.New("that is no removal")
	}
	l.set = append(l.set, id)
	return nil
}

func record(id string, disposal store.Disposal, quotaID quota.ID) []byte {
	data, err := json.Marshal(store.Record{Version: store.Version, ID: id, OnDelete: disposal, QuotaID: quotaID})
	if err != nil {
		panic(err)
	}
	return data
}

// trashed puts an entry of one file into the trash, deleted at a time; its record is left out where that is nil.
func (m *machine) trashed(id string, at time.Time, content []byte) string {
	name := fmt.Sprintf("%s.%d", id, at.UnixMilli())
	entry := "/pool/csi/" + disk.TrashDir + "/" + name
	m.memory.AddFile(entry+"/data/precious", []byte("kept"))
	if content != nil {
		m.memory.AddFile(entry+"/record.json", content)
	}
	return name
}

// kept is a volume of onDelete trash that was deleted just now.
func (m *machine) kept(id string) string { return m.trashed(id, m.wall, record(id, store.Trash, 0)) }

// purge is one slice that must not fail.
func (m *machine) purge(t *testing.T) Summary {
	t.Helper()
	s, err := m.Purge(t.Context(), m, m.limits, false)
	must(t, err)
	return s
}

// ids are those that are in the trash.
func (m *machine) ids(t *testing.T) []string {
	t.Helper()
	entries, err := store.ListTrash(m)
	must(t, err)
	var ids []string
	for _, e := range entries {
		ids = append(ids, e.ID)
	}
	slices.Sort(ids)
	return ids
}

func (m *machine) wants(t *testing.T, about string, ids ...string) {
	t.Helper()
	if got := m.ids(t); !slices.Equal(got, ids) {
		t.Errorf("%s: %v in the trash, want %v", about, got, ids)
	}
}

func TestPurgeWaitsForTheRetention(t *testing.T) {
	m := newMachine(t)
	deleted := m.wall
	m.kept("pvc-1")
	m.kept("pvc-2")
	for _, step := range []struct{ pass, after time.Duration }{{0, 0}, {59 * time.Minute, 59 * time.Minute}} {
		m.pass(step.pass)
		if s := m.purge(t); s.Entries != 2 || !s.Oldest.Equal(deleted) || s.More {
			t.Errorf("after %v: %+v", step.after, s)
		}
	}
	m.pass(2 * time.Minute)
	if s := m.purge(t); s.Entries != 0 || s.More {
		t.Errorf("after the retention: %+v", s)
	}
	m.wants(t, "after the retention")
}

// TestOverdue: what is kept is not overdue, whatever its age; what cannot be removed is, since it was due.
func TestOverdue(t *testing.T) {
	m := newMachine(t)
	m.kept("pvc-kept")
	m.trashed("pvc-retained", m.wall.AddDate(-1, 0, 0), record("pvc-retained", store.Retain, 0))
	m.purge(t)
	m.pass(time.Minute)
	if s := m.purge(t); !s.Due.IsZero() {
		t.Errorf("overdue since %v, want nothing overdue", s.Due)
	}
	m.limits.busy = true
	m.trashed("pvc-busy", m.wall, record("pvc-busy", store.Purge, 7))
	m.purge(t)
	since := m.wall
	m.pass(2 * time.Minute)
	if s := m.purge(t); !s.Due.Equal(since) {
		t.Errorf("overdue since %v, want %v", s.Due, since)
	}
	m.limits.busy = false
	m.pass(time.Minute)
	m.purge(t)
	if s := m.purge(t); !s.Due.IsZero() {
		t.Errorf("overdue since %v after the removal, want nothing overdue", s.Due)
	}
}

func TestOnDelete(t *testing.T) {
	m := newMachine(t)
	m.trashed("pvc-purge", m.wall, record("pvc-purge", store.Purge, 0))
	retained := m.trashed("pvc-retain", m.wall, record("pvc-retain", store.Retain, 0))
	m.kept("pvc-trash")
	m.purge(t)
	m.wants(t, "at once", "pvc-retain", "pvc-trash")
	m.pass(61 * time.Minute)
	m.purge(t)
	m.wants(t, "after the retention", "pvc-retain")
	m.pass(1000 * time.Hour)
	m.purge(t)
	m.wants(t, "after long", "pvc-retain")
	m.memory.AddFile("/pool/csi/.hpp/trash/"+retained+"/record.json", record("pvc-retain", store.Trash, 0))
	m.purge(t)
	m.wants(t, "its record was edited, and is not due to be looked at", "pvc-retain")
	m.pass(61 * time.Minute)
	m.purge(t)
	m.wants(t, "its record was edited")
}

// TestADeleteUnderWayIsLeftAlone: the data arrives before the record does.
func TestADeleteUnderWayIsLeftAlone(t *testing.T) {
	m := newMachine(t)
	name := m.trashed("pvc-1", m.wall, nil)
	for range 3 {
		m.pass(2 * time.Hour)
		m.purge(t)
		m.wants(t, "without its record", "pvc-1")
	}
	must(t, m.WriteFile(disk.TrashDir+"/"+name+"/record.json", record("pvc-1", store.Trash, 0), 0o600))
	m.pass(2 * time.Second)
	m.purge(t)
	m.wants(t, "with its record")
}

// TestNamesOfOthersAreLeftAlone: the driver purges only what it named itself.
func TestNamesOfOthersAreLeftAlone(t *testing.T) {
	m := newMachine(t)
	for _, name := range []string{"README", "pvc-1", "pvc-1.x", "pvc-1.-5", ".pvc-1.5", "snapshots.5", "a b.5"} {
		m.memory.AddFile("/pool/csi/.hpp/trash/"+name+"/record.json", record("pvc-1", store.Purge, 0))
	}
	m.memory.AddFile("/pool/csi/.hpp/trash/pvc-2.5", nil)
	if s := m.purge(t); s.Entries != 0 {
		t.Errorf("%+v", s)
	}
	entries, err := m.ReadDir(disk.TrashDir)
	if must(t, err); len(entries) != 9 { // and the spare directory
		t.Errorf("left: %v", entries)
	}
}

// TestDiscardOnAFullDisk takes the spare directory, and purging makes another once there is room.
func TestDiscardOnAFullDisk(t *testing.T) {
	m := newMachine(t)
	must(t, store.EnsureSpare(m))
	for _, id := range []string{"pvc-1", "pvc-2"} {
		m.memory.AddFile("/pool/csi/"+store.Path(id), record(id, store.Trash, 0))
		m.memory.AddFile("/pool/csi/"+id+"/precious", []byte("kept"))
	}
	discard := func(id string) error { return store.Pool{Disk: m}.Discard(store.Record{ID: id}, m.wall) }
	isWhole := func(id string) {
		t.Helper()
		entries, troubles, err := store.TrashEntries(m, id)
		if err != nil || len(troubles) > 0 || len(entries) != 1 || entries[0].Unfinished {
			t.Fatalf("%+v, %v, %v", entries, troubles, err)
		}
		data, err := m.ReadFile(path.Join(disk.TrashDir, entries[0].Name, store.DataName, "precious"))
		if err != nil || string(data) != "kept" {
			t.Errorf("%s: %q, %v", id, data, err)
		}
	}
	m.memory.SetFull("/pool", true)
	must(t, store.EnsureSpare(m))
	must(t, discard("pvc-1"))
	isWhole("pvc-1")
	if err := discard("pvc-2"); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("without a spare directory: %v", err)
	}
	m.pass(2 * time.Hour)
	m.purge(t)
	must(t, discard("pvc-2")) // the emptied entry is the spare directory
	isWhole("pvc-2")
}

// TestOneEntrysTroubleKeepsNoOther, and is said again no sooner than in ten minutes.
func TestOneEntrysTroubleKeepsNoOther(t *testing.T) {
	for name, test := range map[string]struct {
		content []byte
		says    string
	}{
		"truncated":       {[]byte(`{"version":2,"id`), "record cannot be used"},
		"of another kind": {[]byte(`{"version":99,"id":"pvc-2"}`), "version 99"},
		"unreadable":      {slices.Repeat([]byte(" "), 1<<20+1), "file too large"},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t)
			m.kept("pvc-1")
			m.trashed("pvc-2", m.wall, test.content)
			m.kept("pvc-3")
			m.pass(2 * time.Hour)
			s, err := m.Purge(t.Context(), m, m.limits, false)
			if s.Entries != 1 || err == nil || !strings.Contains(err.Error(), test.says) ||
				!strings.Contains(err.Error(), "pvc-2.") {
				t.Errorf("%+v, %v; want one entry and an error that says %q", s, err, test.says)
			}
			m.wants(t, "the others", "pvc-2")
			m.pass(9 * time.Minute)
			m.purge(t)
			m.pass(2 * time.Minute)
			if _, err := m.Purge(t.Context(), m, m.limits, false); err == nil {
				t.Error("after ten minutes it is not said again")
			}
		})
	}
}

// TestWhatCannotBeRemovedIsItsOwnTrouble: with an I/O error in its data.
func TestWhatCannotBeRemovedIsItsOwnTrouble(t *testing.T) {
	m := newMachine(t)
	m.purge(t) // keeps what it sees of the clock
	m.kept("pvc-1")
	m.kept("pvc-2")
	m.pass(2 * time.Hour)
	m.memory.FailAt(1, syscall.EIO)
	if _, err := m.Purge(t.Context(), m, m.limits, false); !errors.Is(err, syscall.EIO) {
		t.Errorf("%v", err)
	}
	m.wants(t, "one failed", "pvc-1")
	m.pass(11 * time.Minute)
	m.purge(t)
	m.wants(t, "tried again")
}

// TestALimitGoesAfterTheData, and before the record that names it.
func TestALimitGoesAfterTheData(t *testing.T) {
	m := newMachine(t)
	name := m.trashed("pvc-1", m.wall, record("pvc-1", store.Purge, 7))
	m.limits.busy = true
	m.purge(t)
	if _, err := m.Stat(disk.TrashDir + "/" + name + "/data"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("its data is there: %v", err)
	}
	m.wants(t, "while its limit is busy", "pvc-1")
	m.limits.busy = false
	m.purge(t)
	m.wants(t, "tried again at once", "pvc-1")
	m.pass(whileBusy)
	m.purge(t)
	m.wants(t, "once its limit is not busy")
	if !slices.Equal(m.limits.set, []quota.ID{7}) {
		t.Errorf("limits removed: %v", m.limits.set)
	}
}

// TestALimitGoesAfterTheDelete: while that has yet to end, the volume counts to its ID. Another one that does keeps the
// limit.
func TestALimitGoesAfterTheDelete(t *testing.T) {
	m := newMachine(t)
	m.trashed("pvc-1", m.wall, record("pvc-1", store.Purge, 7))
	m.trashed("pvc-2", m.wall, record("pvc-2", store.Purge, 8))
	m.owners[7], m.owners[8] = "pvc-1", "pvc-3"
	m.purge(t)
	m.wants(t, "while its delete has yet to end", "pvc-1")
	delete(m.owners, 7)
	m.pass(whileBusy)
	m.purge(t)
	m.wants(t, "once its delete has ended")
	if !slices.Equal(m.limits.set, []quota.ID{7}) {
		t.Errorf("limits removed: %v", m.limits.set)
	}
}

// TestALimitThatStaysBusyIsRetired, with a warning, and the entry goes.
func TestALimitThatStaysBusyIsRetired(t *testing.T) {
	m := newMachine(t)
	m.trashed("pvc-1", m.wall, record("pvc-1", store.Purge, 7))
	m.limits.busy = true
	for waited := time.Duration(0); waited < busyTimeout; waited += whileBusy {
		m.purge(t)
		m.wants(t, fmt.Sprintf("after %v", waited), "pvc-1")
		m.pass(whileBusy)
	}
	if strings.Contains(m.log.String(), "left on the filesystem") {
		t.Error("it is said too soon")
	}
	m.purge(t)
	m.wants(t, "once it is given up")
	for _, part := range []string{"left on the filesystem", "pvc-1", "quotaID=7"} {
		if !strings.Contains(strings.ToLower(m.log.String()), strings.ToLower(part)) {
			t.Errorf("the log says nothing of %q: %s", part, m.log.String())
		}
	}
}

// TestAnInterruptedPurgeIsTakenUp at every step, after a crash too.
func TestAnInterruptedPurgeIsTakenUp(t *testing.T) {
	for step := 1; ; step++ {
		m := newMachine(t)
		m.trashed("pvc-1", m.wall, record("pvc-1", store.Purge, 7))
		m.memory.CrashAt(step)
		_, _ = m.Purge(t.Context(), m, m.limits, false)
		if !m.memory.Crashed() {
			break
		}
		for name, after := range map[string]*disktest.Disk{
			"lost": m.memory.Crash(),
			"kept": m.memory.CrashKeepingAll(),
		} {
			again := *m
			again.memory = after
			var err error
			again.FS, err = after.Open("/pool")
			must(t, err)
			again.start(t, poolspec.Trash{})
			for range 2 { // the second is for an entry whose record is gone
				again.purge(t)
				again.pass(time.Hour)
			}
			entries, _, err := store.TrashEntries(again, "")
			must(t, err)
			for _, e := range entries {
				if !e.Empty { // recovery removes those
					t.Errorf("step %d, what was not synced %s: %+v is left", step, name, e)
				}
			}
		}
	}
}

// TestPurgingWithoutARecord: an older driver has removed the record, because it found no data of the name it knew.
func TestPurgingWithoutARecord(t *testing.T) {
	m := newMachine(t)
	name := m.trashed("pvc-1", m.wall, nil)
	must(t, store.BeginPurge(m, name))
	m.trashed("pvc-2", m.wall, nil) // a delete under way
	m.purge(t)
	m.wants(t, "the purge of one had begun", "pvc-2")
}

// stopping ends a removal after so many steps. A real disk takes one to find that nothing is there.
type stopping struct {
	disk.FS
	left int
}

func (s *stopping) RemoveTree(ctx context.Context, name string, step func(context.Context) error) error {
	counted := func(ctx context.Context) error {
		if s.left--; s.left < 0 {
			return errSliceOver
		}
		return step(ctx)
	}
	if err := counted(ctx); err != nil {
		return err
	}
	return s.FS.RemoveTree(ctx, name, counted)
}

// TestASliceEndsWithoutARecord: wherever a slice ends, the next one goes on with what was begun and has no record.
func TestASliceEndsWithoutARecord(t *testing.T) {
	for steps, more := 0, true; more; steps++ {
		m := newMachine(t)
		must(t, store.BeginPurge(m, m.trashed("pvc-1", m.wall, nil)))
		s, err := m.Purge(t.Context(), &stopping{FS: m, left: steps}, m.limits, false)
		must(t, err)
		more = s.More
		m.purge(t)
		m.wants(t, fmt.Sprintf("a slice ended after %d steps", steps))
	}
}

// late is a disk on which a record comes into the trash while it is looked for.
type late struct {
	disk.FS
	came bool
}

func (l *late) ReadFile(name string) ([]byte, error) {
	if !l.came && path.Base(name) == store.RecordName {
		l.came = true
		return nil, fs.ErrNotExist
	}
	return l.FS.ReadFile(name)
}

// TestADeleteEndsWhileItIsLookedAt: what its record says holds.
func TestADeleteEndsWhileItIsLookedAt(t *testing.T) {
	m := newMachine(t)
	m.trashed("pvc-1", m.wall, record("pvc-1", store.Retain, 0))
	_, err := m.Purge(t.Context(), &late{FS: m}, m.limits, false)
	must(t, err)
	m.wants(t, "the record came late", "pvc-1")
}

// TestOnceBegun a purge stays so over a crash, and both names go where a crash has cut the beginning in half.
func TestOnceBegun(t *testing.T) {
	m := newMachine(t)
	name := m.trashed("pvc-1", m.wall, record("pvc-1", store.Purge, 0))
	must(t, store.BeginPurge(m, name))
	must(t, store.BeginPurge(m, name))
	after, err := m.memory.Crash().Open("/pool")
	must(t, err)
	e, err := store.LookAtTrash(after, name)
	if err != nil || !e.Purging || e.Unfinished || e.Empty {
		t.Errorf("%+v, %v", e, err)
	}
	m.memory.AddFile("/pool/csi/"+disk.TrashDir+"/"+name+"/data/precious", []byte("kept"))
	m.purge(t)
	m.wants(t, "both names")
}

// TestDue is when wait ends, if nobody doubts the clock.
func TestDue(t *testing.T) {
	deleted := time.Unix(1_000, 0)
	spec := poolspec.Trash{Retention: poolspec.Duration(time.Hour)}
	for disposal, want := range map[store.Disposal]time.Time{
		store.Trash: deleted.Add(time.Hour), store.Purge: deleted, store.Retain: {},
	} {
		if got := Due(spec, store.TrashEntry{Deleted: deleted}, store.Record{OnDelete: disposal}); !got.Equal(want) {
			t.Errorf("%s: %v, want %v", disposal, got, want)
		}
	}
}
