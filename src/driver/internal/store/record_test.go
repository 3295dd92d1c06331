package store_test

import (
	"encoding/json"
	"errors"
	"io/fs"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/disk"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/disk/disktest"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/quota"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/store"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
)

const volumesDir = "/pool/csi/.hpp/volumes"

func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

// empty is an open pool without records.
func empty(tb testing.TB) (*disktest.Disk, disk.FS) {
	tb.Helper()
	machine := disktest.New()
	machine.AddDir(volumesDir)
	return machine, open(tb, machine)
}

func open(tb testing.TB, machine *disktest.Disk) disk.FS {
	tb.Helper()
	d, err := machine.Open("/pool")
	must(tb, err)
	tb.Cleanup(func() { _ = d.Close() })
	return d
}

func full() store.Record {
	return store.Record{
		Version: store.Version, ID: "pvc-1", Pool: "local", Bytes: 4096, Inodes: 100,
		InodesFrom: store.FromAdmin, Backend: quota.Btrfs, QuotaID: 1 << 47, Mode: 0o2770, UID: 1000, GID: 2000,
		OnDelete:   store.Retain,
		Claim:      nodeapi.Claim{Namespace: "ns", Name: "claim", UID: "u-1"},
		Parameters: map[string]string{"storagePool": "local"}, Ephemeral: true, Node: "node-1", Adopted: true,
		TakenFrom: "/old/pvc-1", Enforcing: true, Returning: true,
		Created: time.Date(2026, 11, 22, 4, 0, 0, 0, time.UTC),
		Kind:    store.OfSnapshot,
		Source: &store.Source{
			Kind: store.OfSnapshot, ID: "snap-1", From: []byte{0, 255}, Complete: true, Skipped: 2,
		},
		Held: 8192, Pins: []quota.Pin{{ID: 1 << 46, Bytes: 4096}},
		Leaving: &store.Leaving{To: "node-2", Move: "m1"}, Keep: 86400,
	}
}

// TestNewerRecords are told from damaged ones, whatever has become of the fields.
func TestNewerRecords(t *testing.T) {
	for content, newer := range map[string]bool{
		`{"version":5,"id":"pvc-1","bytes":1}`:                true,
		`{"version":5,"id":{"name":"pvc-1"},"source":[true]}`: true,
		`{"id":[],"version":5}`:                               true,
		`{"version":1,"id":"pvc-1"}`:                          false,
		`{"version":5,"id":"pvc-1"`:                           false,
		`{"version":1e400,"id":"pvc-1"}`:                      false,
	} {
		_, err := store.Decode([]byte(content))
		if err == nil || errors.Is(err, store.ErrNewer) != newer {
			t.Errorf("%s: %v", content, err)
		}
	}
}

// TestReadKind: the wrong kind is not there, both ways.
func TestReadKind(t *testing.T) {
	_, d := empty(t)
	for _, kind := range []store.Kind{store.OfVolume, store.OfSnapshot} {
		r := full()
		r.ID, r.Kind = "of-"+string(kind), kind
		must(t, store.Add(d, r))
		for _, wanted := range []store.Kind{store.OfVolume, store.OfSnapshot} {
			_, err := store.ReadKind(d, r.ID, wanted)
			if (err == nil) != (kind == wanted) || err != nil && !errors.Is(err, store.ErrNotFound) {
				t.Errorf("%q read as %q: %v", kind, wanted, err)
			}
		}
	}
}

func TestRoundTrip(t *testing.T) {
	machine, d := empty(t)
	r := full()
	value := reflect.ValueOf(r)
	for i := range value.NumField() {
		if value.Field(i).IsZero() {
			t.Errorf("the test leaves out %s", value.Type().Field(i).Name)
		}
	}
	must(t, store.Add(d, r))
	if got, err := store.Read(d, r.ID); err != nil || !reflect.DeepEqual(got, r) {
		t.Errorf("%+v, %v; want %+v", got, err, r)
	}
	if got, err := store.Read(open(t, machine.Crash()), r.ID); err != nil || !reflect.DeepEqual(got, r) {
		t.Errorf("after a crash: %+v, %v", got, err)
	}
	if err := store.Add(d, r); !errors.Is(err, fs.ErrExist) {
		t.Errorf("added twice: %v", err)
	}
	r.Bytes = 8192
	must(t, store.Replace(d, r))
	if got, err := store.Read(open(t, machine.Crash()), r.ID); err != nil || got.Bytes != 8192 {
		t.Errorf("replaced: %+v, %v", got, err)
	}
	for range 2 { // none there is no error
		must(t, store.Remove(d, r.ID))
	}
	if _, err := store.Read(open(t, machine.Crash()), r.ID); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("removed: %v", err)
	}
	if r.Limit() != (quota.Limit{Bytes: 8192}) { // of a snapshot
		t.Errorf("limit %+v", r.Limit())
	}
	r.Kind = store.OfVolume
	if want := (quota.Limit{Bytes: 8192 + 8192, Inodes: 100}); r.Limit() != want {
		t.Errorf("limit %+v", r.Limit())
	}
}

// TestReplaceKeepsWhatItDoesNotKnow: a newer driver's optional fields outlive a rollback.
func TestReplaceKeepsWhatItDoesNotKnow(t *testing.T) {
	machine, d := empty(t)
	const newer = `{"version":2,"id":"pvc-1","bytes":1,"inodes":7,"later":5,"zones":[{"group":9}],"zone":null}`
	machine.AddFile(volumesDir+"/pvc-1.json", []byte(newer))
	r, err := store.Read(d, "pvc-1")
	must(t, err)
	for _, r.Bytes = range []int64{4096, 8192} {
		r.Inodes = 0
		must(t, store.Replace(d, r))
	}
	data, err := d.ReadFile(store.Path("pvc-1"))
	must(t, err)
	var got map[string]any
	must(t, json.Unmarshal(data, &got))
	_, zone := got["zone"]
	if got["later"] != 5.0 || got["bytes"] != 8192.0 || got["inodes"] != nil || !zone || !json.Valid(data) ||
		!reflect.DeepEqual(got["zones"], []any{map[string]any{"group": 9.0}}) ||
		strings.Count(string(data), "later") != 1 {
		t.Errorf("%s", data)
	}
	if again, err := store.Read(open(t, machine.Crash()), "pvc-1"); err != nil || !reflect.DeepEqual(again, r) {
		t.Errorf("%+v, %v; want %+v", again, err, r)
	}
}

func TestBrokenRecords(t *testing.T) {
	for name, test := range map[string]struct{ content, says string }{
		"empty":                {``, "not a complete record"},
		"truncated":            {`{"version":2,"id":"pvc-1","by`, "not a complete record"},
		"for another volume":   {`{"version":2,"id":"pvc-2"}`, `it is for volume "pvc-2"`},
		"without an id":        {`{"version":2}`, "invalid volume id"},
		"an id that is a path": {`{"version":2,"id":"../pvc-1"}`, "invalid volume id"},
		"the first version": {
			`{"version":1,"id":"pvc-1","projectID":7}`,
			"it has version 1, and this driver reads versions 2 to 4; install the driver that wrote it",
		},
		"a newer version":     {`{"version":99,"id":"pvc-1"}`, "it has version 99"},
		"negative bytes":      {`{"version":2,"id":"pvc-1","bytes":-1}`, "bytes is -1"},
		"negatively held":     {`{"version":3,"id":"pvc-1","held":-1}`, "held -1"},
		"another kind":        {`{"version":3,"id":"pvc-1","kind":"x","source":{"id":"a"}}`, `kind is "x"`},
		"a sourceless one":    {`{"version":3,"id":"pvc-1","kind":"snapshot"}`, "its source nothing"},
		"bytes of no integer": {`{"version":2,"id":"pvc-1","bytes":1e400}`, "not a complete record"},
		"larger than a file may be": {
			`{"version":2,"id":"pvc-1","pool":"` + strings.Repeat("x", 1<<20) + `"}`, "file too large",
		},
	} {
		t.Run(name, func(t *testing.T) {
			machine, d := empty(t)
			machine.AddFile(volumesDir+"/pvc-1.json", []byte(test.content))
			_, err := store.Read(d, "pvc-1")
			if !errors.Is(err, store.ErrBroken) {
				t.Fatalf("%v, want ErrBroken", err)
			}
			for _, part := range []string{test.says, "csi/.hpp/volumes/pvc-1.json", "its data is untouched"} {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("%v says nothing of %q", err, part)
				}
			}
			if placed, _, err := store.List(d); err != nil || !slices.Equal(placed, []string{"pvc-1"}) {
				t.Errorf("listed: %v, %v", placed, err)
			}
		})
	}
}

func TestPreparedRecords(t *testing.T) {
	machine, d := empty(t)
	r := full()
	wants := func(about string, placed, prepared []string) {
		t.Helper()
		gotPlaced, gotPrepared, err := store.List(d)
		if err != nil || !slices.Equal(gotPlaced, placed) || !slices.Equal(gotPrepared, prepared) {
			t.Errorf("%s: placed %v, prepared %v, %v; want %v and %v", about, gotPlaced, gotPrepared, err, placed,
				prepared)
		}
	}
	if _, err := store.ReadPrepared(d, r.ID); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("none is prepared: %v", err)
	}
	must(t, store.Prepare(d, r))
	wants("prepared", nil, []string{"pvc-1"})
	if got, err := store.ReadPrepared(d, r.ID); err != nil || !reflect.DeepEqual(got, r) {
		t.Errorf("prepared: %+v, %v", got, err)
	}
	if _, err := store.Read(d, r.ID); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("a prepared record counts: %v", err)
	}
	r.Bytes = 8192
	must(t, store.Prepare(d, r)) // again, over what an interrupted one left
	must(t, errors.Join(store.Place(d, r.ID), d.Sync(disk.VolumesDir)))
	wants("placed", []string{"pvc-1"}, nil)
	if got, err := store.Read(open(t, machine.Crash()), r.ID); err != nil || got.Bytes != 8192 {
		t.Errorf("placed and synced, after a crash: %+v, %v", got, err)
	}
	must(t, store.Prepare(d, full()))
	if err := store.Place(d, r.ID); !errors.Is(err, fs.ErrExist) {
		t.Errorf("placed over another: %v", err)
	}
	wants("placed over another", []string{"pvc-1"}, []string{"pvc-1"})
	must(t, store.Withdraw(d, r.ID))
	wants("withdrawn", nil, []string{"pvc-1"})
	if got, err := store.ReadPrepared(open(t, machine.Crash()), r.ID); err != nil || got.Bytes != 8192 {
		t.Errorf("withdrawn, after a crash: %+v, %v", got, err)
	}
	for range 2 {
		must(t, store.Forget(d, r.ID))
		wants("forgotten", nil, nil)
	}
	must(t, store.Withdraw(d, r.ID))
	machine.AddFile(volumesDir+"/.pvc-1.json.tmp", []byte(`{"version":2`))
	if _, err := store.ReadPrepared(d, r.ID); !errors.Is(err, store.ErrBroken) {
		t.Errorf("written in part: %v", err)
	}
}

func TestListPassesOverWhatIsNoRecord(t *testing.T) {
	machine, d := empty(t)
	for _, name := range []string{
		"README", "snapshots.json", ".x.json", "-a.json", ".hpp.json.tmp", ".json", ".pvc-2.json.tmp",
	} {
		machine.AddFile(volumesDir+"/"+name, nil)
	}
	machine.AddDir(volumesDir + "/dir.json")
	machine.AddFile(volumesDir+"/pvc-1.json", nil)
	placed, prepared, err := store.List(d)
	slices.Sort(prepared)
	if err != nil || !slices.Equal(placed, []string{"pvc-1"}) || !slices.Equal(prepared, []string{"hpp", "pvc-2"}) {
		t.Errorf("placed %v, prepared %v, %v", placed, prepared, err)
	}
}

// TestAddLeavesNothing of a record that could not be made durable, whatever step fails.
func TestAddLeavesNothing(t *testing.T) {
	for step := 1; ; step++ {
		machine, d := empty(t)
		machine.FailAt(step, syscall.EIO)
		err := store.Add(d, full())
		if err == nil {
			if step < 5 {
				t.Errorf("only %d steps", step-1)
			}
			return
		}
		if step == 1 { // the removal of what an earlier one left, of which there is nothing
			continue
		}
		if placed, _, listErr := store.List(d); listErr != nil || len(placed) > 0 {
			t.Errorf("step %d failed (%v): %v, %v", step, err, placed, listErr)
		}
	}
}

func TestModes(t *testing.T) {
	for _, bits := range []uint32{0, 0o777, 0o4755, 0o2770, 0o1777, 0o7777} {
		if got := store.POSIXMode(store.FileMode(bits)); got != bits {
			t.Errorf("%o becomes %o", bits, got)
		}
	}
	if got, want := store.FileMode(0o3750), fs.ModeSetgid|fs.ModeSticky|0o750; got != want {
		t.Errorf("%v, want %v", got, want)
	}
}

// TestWhatCouldNotBeReadIsNotWritten: nothing of such a record is left, and an older one stays.
func TestWhatCouldNotBeReadIsNotWritten(t *testing.T) {
	for name, spoil := range map[string]func(*store.Record){
		"a large value":        func(r *store.Record) { r.Parameters["inodeLimit"] = strings.Repeat("0", 1<<20) },
		"a large key":          func(r *store.Record) { r.Parameters[strings.Repeat("k", 1<<20)] = "" },
		"nul bytes, escaped":   func(r *store.Record) { r.Claim.Name = strings.Repeat("\x00", 1<<18) },
		"an id that is a path": func(r *store.Record) { r.ID = "../x" },
		"negative bytes":       func(r *store.Record) { r.Bytes = -1 },
	} {
		t.Run(name, func(t *testing.T) {
			_, d := empty(t)
			r := full()
			must(t, store.Add(d, r))
			spoil(&r)
			for call, write := range map[string]func(disk.FS, store.Record) error{
				"prepare": store.Prepare, "add": store.Add, "replace": store.Replace,
			} {
				if err := write(d, r); !errors.Is(err, store.ErrUnwritten) {
					t.Errorf("%s: %v, want ErrUnwritten", call, err)
				}
			}
			if placed, prepared, err := store.List(d); err != nil || len(placed) != 1 || len(prepared) > 0 {
				t.Errorf("placed %v, prepared %v, %v", placed, prepared, err)
			}
			if got, err := store.Read(d, "pvc-1"); err != nil || !reflect.DeepEqual(got, full()) {
				t.Errorf("the older one: %+v, %v", got, err)
			}
		})
	}
}

// TestTheLargestRecord is read again.
func TestTheLargestRecord(t *testing.T) {
	_, d := empty(t)
	r := full()
	for size, least := disk.MaxFile, 0; size > least; {
		middle := (size + least + 1) / 2
		r.Parameters["x"] = strings.Repeat("x", middle)
		if err := store.Replace(d, r); err == nil {
			least = middle
		} else {
			size = middle - 1
		}
		if _, err := store.Read(d, r.ID); err != nil && !errors.Is(err, store.ErrNotFound) {
			t.Fatalf("%d bytes: %v", middle, err)
		}
	}
	if data, err := d.ReadFile(store.Path(r.ID)); err != nil || len(data) != disk.MaxFile {
		t.Errorf("the largest has %d bytes, %v", len(data), err)
	}
}
