package trash_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/poolfs"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/poolfs/memfs"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/trash"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/volume"
)

func deleted() time.Time { return time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC) }

// filled is a pool whose trash holds an entry with data for each id; its record is written by record, if that is not nil.
func filled(t *testing.T, record func(id string) []byte, ids ...string) poolfs.FS {
	t.Helper()
	disk := memfs.New()
	for _, id := range ids {
		entry := fmt.Sprintf("/pool/csi/.hpp/trash/%s.%d", id, deleted().UnixMilli())
		disk.AddFile(entry+"/data/precious", []byte("kept"))
		if record != nil {
			disk.AddFile(entry+"/record.json", record(id))
		}
	}
	f, err := disk.Open("/pool")
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func good(id string) []byte {
	data, err := json.Marshal(volume.Record{Version: volume.RecordVersion, ID: id, OnDelete: volume.Trash})
	if err != nil {
		panic(err)
	}
	return data
}

// at is a worker with a retention of an hour and a clock that the test moves.
func at(now *time.Time) *trash.Worker {
	return trash.NewPurger(trash.Bin{Now: func() time.Time { return *now }}).For(time.Hour, func(poolfs.FS, volume.Record) error { return nil })
}

func TestPurgeWaitsForTheRetention(t *testing.T) {
	disk, now := filled(t, good, "pvc-1", "pvc-2"), deleted()
	w := at(&now)
	for _, step := range []struct {
		after time.Duration
		left  int
	}{{0, 2}, {59 * time.Minute, 2}, {61 * time.Minute, 0}} {
		now = deleted().Add(step.after)
		s, err := w.Purge(t.Context(), disk)
		if err != nil || s.Entries != step.left || (step.left > 0 && !s.Oldest.Equal(deleted())) {
			t.Errorf("after %v: %+v, %v; want %d entries", step.after, s, err, step.left)
		}
	}
}

// TestPurgeLeavesADeleteUnderWayAlone: the data arrives before the record does.
func TestPurgeLeavesADeleteUnderWayAlone(t *testing.T) {
	disk, now := filled(t, nil, "pvc-1"), deleted()
	w := at(&now)
	for range 3 {
		now = now.Add(2 * time.Hour)
		if s, err := w.Purge(t.Context(), disk); err != nil || s.Entries != 1 {
			t.Fatalf("without its record: %+v, %v", s, err)
		}
	}
	entry := fmt.Sprintf(".hpp/trash/pvc-1.%d", deleted().UnixMilli())
	if err := disk.WriteFile(entry+"/record.json", good("pvc-1"), 0o600); err != nil {
		t.Fatal(err)
	}
	now = now.Add(2 * time.Second)
	if s, err := w.Purge(t.Context(), disk); err != nil || s.Entries != 0 {
		t.Errorf("with its record: %+v, %v; want it purged", s, err)
	}
}

// TestPurgeTellsWhatStaysCounted: for a while that is the filesystem's own work.
func TestPurgeTellsWhatStaysCounted(t *testing.T) {
	disk, now := filled(t, good, "pvc-1"), deleted().Add(2*time.Hour)
	busy := error(syscall.EBUSY)
	w := trash.NewPurger(trash.Bin{Now: func() time.Time { return now }}).For(time.Hour, func(poolfs.FS, volume.Record) error { return busy })
	for _, step := range []struct {
		after time.Duration
		told  bool
	}{{0, false}, {6 * time.Second, false}, {5 * time.Minute, false}, {11 * time.Minute, true}, {time.Second, false}, {11 * time.Minute, true}} {
		now = now.Add(step.after)
		s, err := w.Purge(t.Context(), disk)
		if told := err != nil && strings.Contains(err.Error(), "pvc-1") && strings.Contains(err.Error(), "copy what was moved"); told != step.told || s.Entries != 1 {
			t.Errorf("%v later: %+v, %v; want it told: %v", step.after, s, err, step.told)
		}
	}
	busy, now = nil, now.Add(11*time.Minute)
	if s, err := w.Purge(t.Context(), disk); err != nil || s.Entries != 0 {
		t.Errorf("once nothing counts to it: %+v, %v", s, err)
	}
}

func TestPurgeKeepsWhatItDoesNotUnderstand(t *testing.T) {
	newer := func(id string) []byte { return []byte(`{"version":99,"id":"` + id + `"}`) }
	disk, now := filled(t, newer, "pvc-1"), deleted().Add(2*time.Hour)
	w := at(&now)
	s, err := w.Purge(t.Context(), disk)
	if err == nil || !strings.Contains(err.Error(), "version 99") || s.Entries != 1 {
		t.Errorf("%+v, %v; want one entry and an error that names the version", s, err)
	}
	if s, err := w.Purge(t.Context(), disk); err != nil || s.Entries != 1 {
		t.Errorf("at once again: %+v, %v; want the same error no sooner than in ten minutes", s, err)
	}
}
