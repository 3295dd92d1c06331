package recovery_test

import (
	"slices"
	"testing"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/disk"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/quota"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/store"
)

// TestLimitsFollowTheRecords: recovery reports who does not count, and repairs nothing but a limit's size.
func TestLimitsFollowTheRecords(t *testing.T) {
	whole := quota.State{ID: 7, Limit: quota.Limit{Bytes: 4096}}
	for name, test := range map[string]struct {
		state     map[string]quota.State
		counted   bool
		uncounted []string
		set       []string
	}{
		"as the record says": {state: map[string]quota.State{"pvc-1": whole}, counted: true},
		"an expansion was interrupted": {
			state:   map[string]quota.State{"pvc-1": {ID: 7, Limit: quota.Limit{Bytes: 8192}}},
			counted: true, set: []string{"pvc-1 7 4096"},
		},
		"an admin has limited its inodes": {
			state:   map[string]quota.State{"pvc-1": {ID: 7, Limit: quota.Limit{Bytes: 4096, Inodes: 5}}},
			counted: true, set: []string{"pvc-1 7 4096"},
		},
		"copied by hand, without an ID": {
			state:     map[string]quota.State{"pvc-1": {}},
			uncounted: []string{"pvc-1"},
		},
		"copied by hand, with another ID": {
			state:     map[string]quota.State{"pvc-1": {ID: 8}},
			uncounted: []string{"pvc-1"},
		},
		"not to be looked at (an I/O error)": {uncounted: []string{"pvc-1"}},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPool(t)
			p.record("pvc-1", 7)
			p.data("pvc-1")
			p.limits.counts = test.state
			got := p.run(t)
			if got.Volumes["pvc-1"].Counted != test.counted || !slices.Equal(got.Uncounted, test.uncounted) ||
				!slices.Equal(p.limits.set, test.set) {
				t.Errorf("%+v, set %q; want %+v", got, p.limits.set, test)
			}
		})
	}
}

// TestTheOldestKeepsTheID where several directories count to one, in whatever order they are found.
func TestTheOldestKeepsTheID(t *testing.T) {
	for _, oldest := range []string{"pvc-1", "pvc-2", "pvc-3"} {
		p := newPool(t)
		p.limits.counts = map[string]quota.State{}
		var younger []string
		for _, id := range []string{"pvc-1", "pvc-2", "pvc-3"} {
			created := int64(200)
			if id == oldest {
				created = 100
			} else {
				younger = append(younger, id)
			}
			p.recordAt(id, 7, created)
			p.data(id)
			p.limits.counts[id] = quota.State{ID: 7, Limit: quota.Limit{Bytes: 4096}}
		}
		got := p.run(t)
		slices.Sort(got.Uncounted)
		if !slices.Equal(got.Uncounted, younger) || !got.Volumes[oldest].Counted {
			t.Errorf("%s is the oldest: %+v", oldest, got)
		}
		for _, id := range younger {
			if got.Volumes[id].Counted {
				t.Errorf("%s is the oldest, and %s counts", oldest, id)
			}
		}
	}
}

// TestARefusedVolumeIsPromisedItsLimit, which is all that is known of it.
func TestARefusedVolumeIsPromisedItsLimit(t *testing.T) {
	p := newPool(t)
	p.machine.AddFile(csi+store.Path("pvc-1"), []byte(`{`))
	p.data("pvc-1")
	p.limits.counts = map[string]quota.State{"pvc-1": {ID: 7, Limit: quota.Limit{Bytes: 12288}}}
	v := p.run(t).Volumes["pvc-1"]
	if !v.Refused || v.Bytes != 12288 || v.QuotaID != 7 || !v.Counted {
		t.Errorf("%+v", v)
	}
}

// TestANewerRecordIsPromisedNothing, and nothing of it is touched.
func TestANewerRecordIsPromisedNothing(t *testing.T) {
	p := newPool(t)
	const newer = `{"version":5,"id":"pvc-1","kind":"snapshot","bytes":4096}`
	p.machine.AddFile(csi+store.Path("pvc-1"), []byte(newer))
	p.data("pvc-1")
	p.machine.AddFile(csi+disk.Prepared(store.Path("pvc-2")), []byte(newer))
	p.limits.counts = map[string]quota.State{"pvc-1": {ID: 7, Limit: quota.Limit{Bytes: 12288}}}
	before := tree(t, p)
	got := p.run(t)
	v := got.Volumes["pvc-1"]
	if !v.Refused || v.Bytes != 0 || v.QuotaID != 0 || len(got.Unknown) > 0 ||
		!slices.Equal(got.Refused, []string{"pvc-1", "pvc-2"}) {
		t.Errorf("%+v", got)
	}
	if after := tree(t, p); !slices.Equal(before, after) || len(p.limits.set) > 0 {
		t.Errorf("%v became %v, %v", before, after, p.limits.set)
	}
}

// TestABusyLimitIsALeftover that Clean removes once nothing counts to it; until then the record that names it stays.
func TestABusyLimitIsALeftover(t *testing.T) {
	p := newPool(t)
	p.record("pvc-1", 7)
	p.staged("pvc-1")
	p.prepared("pvc-2", 8)
	p.prepared("pvc-3", 0)
	p.limits.busy = map[quota.ID]bool{7: true, 8: true}
	got := p.run(t)
	if got.Leftovers != 2 || len(got.Volumes)+len(got.Refused)+len(got.Lost) > 0 {
		t.Errorf("%+v", got)
	}
	wants := func(about string, left int, names ...string) {
		t.Helper()
		n, err := p.store().Clean(t.Context())
		if tree := tree(t, p); err != nil || n != left || !slices.Equal(tree, names) {
			t.Errorf("%s: %d left, %v, %v; want %d, %v", about, n, err, tree, left, names)
		}
	}
	wants("both busy", 2, ".hpp/volumes/.pvc-1.json.tmp", ".hpp/volumes/.pvc-2.json.tmp")
	delete(p.limits.busy, 7)
	wants("one busy", 1, ".hpp/volumes/.pvc-2.json.tmp")
	delete(p.limits.busy, 8)
	wants("none busy", 0)
	if want := []string{" 7 0", " 8 0"}; !slices.Equal(p.limits.set, want) {
		t.Errorf("limits set: %q, want %q", p.limits.set, want)
	}
}

// TestCleanTouchesNoVolume, and no prepared record of data without a record.
func TestCleanTouchesNoVolume(t *testing.T) {
	p := newPool(t)
	p.record("pvc-1", 7)
	p.data("pvc-1")
	p.prepared("pvc-1", 9)
	p.data("pvc-2")
	p.prepared("pvc-2", 8)
	before := tree(t, p)
	if n, err := p.store().Clean(t.Context()); n != 0 || err != nil || !slices.Equal(tree(t, p), before) ||
		len(p.limits.set) > 0 {
		t.Errorf("%d, %v, %v, %q", n, err, tree(t, p), p.limits.set)
	}
}

// TestRetire removes the record of lost data, also where its limit is of use to something else.
func TestRetire(t *testing.T) {
	for _, busy := range []bool{false, true} {
		p := newPool(t)
		p.record("pvc-1", 7)
		p.limits.busy = map[quota.ID]bool{7: busy}
		for range 2 {
			must(t, p.store().Retire("pvc-1"))
		}
		if left := tree(t, open(t, p.machine.Crash())); len(left) > 0 {
			t.Errorf("left: %v", left)
		}
		if removed := slices.Equal(p.limits.set, []string{" 7 0"}); removed == busy {
			t.Errorf("busy %v, and limits set: %q", busy, p.limits.set)
		}
	}
}

// TestLook surveys single ids.
func TestLook(t *testing.T) {
	p := newPool(t)
	p.record("pvc-1", 7)
	p.trashed("pvc-1", 1)
	p.trashed("pvc-1", 12)
	s, r, err := p.store().Look("pvc-1")
	if err != nil || s.Verdict() != store.FinishDelete || s.Unfinished != "pvc-1.12" || r.QuotaID != 7 {
		t.Errorf("%+v, %+v, %v", s, r, err)
	}
	p.staged("pvc-2")
	p.prepared("pvc-2", 0)
	if s, _, err = p.store().Look("pvc-2"); err != nil || s != (store.Survey{Staged: true, Prepared: true}) {
		t.Errorf("%+v, %v", s, err)
	}
	if s, _, err = p.store().Look("pvc-3"); err != nil || s != (store.Survey{}) {
		t.Errorf("%+v, %v", s, err)
	}
	p.machine.AddFile(csi+store.Path("pvc-5"), []byte("{"))
	p.staged("pvc-5")
	if s, _, err = p.store().Look("pvc-5"); err != nil || s.Verdict() != store.Refused {
		t.Errorf("%+v, %v", s, err)
	}
	p.machine.AddFile(csi+"pvc-4", nil)
	if _, _, err = p.store().Look("pvc-4"); err == nil {
		t.Error("a file is a volume")
	}
}
