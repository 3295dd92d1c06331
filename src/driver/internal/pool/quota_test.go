package pool

import (
	"strings"
	"testing"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/backend"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/poolfs"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/volume"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/poolspec"
)

func TestJudge(t *testing.T) {
	off := backend.Choice{Backend: backend.Plain{}, Why: "quota is off"}
	on := backend.Choice{Backend: backend.Quota{}}
	for name, test := range map[string]struct {
		want    poolspec.Quota
		before  string
		found   backend.Choice
		lost    bool
		refused bool
		closed  bool
	}{
		"auto, none there":                    {want: poolspec.QuotaAuto, found: off},
		"auto, there":                         {want: poolspec.QuotaAuto, found: on},
		"auto, was there":                     {want: poolspec.QuotaAuto, before: backend.NameProject, found: off, lost: true},
		"auto, switched on since":             {want: poolspec.QuotaAuto, before: backend.NamePlain, found: on},
		"required, none there":                {want: poolspec.QuotaRequired, found: off, refused: true},
		"required, never there":               {want: poolspec.QuotaRequired, before: backend.NamePlain, found: off, refused: true},
		"required, there":                     {want: poolspec.QuotaRequired, found: on},
		"required, was there":                 {want: poolspec.QuotaRequired, before: backend.NameBtrfs, found: off, lost: true, closed: true},
		"none, by configuration":              {want: poolspec.QuotaNone, found: off},
		"none, by configuration since lately": {want: poolspec.QuotaNone, before: backend.NameBtrfs, found: off},
	} {
		t.Run(name, func(t *testing.T) {
			spec := poolspec.Pool{Name: "local", Path: "/pool", Quota: test.want}
			q, refusal := judge(spec, test.before, test.found)
			if (refusal != nil) != test.refused || q.lost != test.lost || (q.closed(spec) != "") != test.closed {
				t.Errorf("refusal %v, lost %v, closed %q; want %+v", refusal, q.lost, q.closed(spec), test)
			}
			if refusal != nil && (refusal.decision.reason != "QuotaUnavailable" || !strings.Contains(refusal.decision.message, "/pool") || !strings.Contains(refusal.decision.message, off.Why)) {
				t.Errorf("the refusal does not say what, where and why: %+v", refusal.decision)
			}
		})
	}
}

func TestNumbersAreGivenOnceAndComeBackLate(t *testing.T) {
	const first = 1 << 30
	n := newNumbers(first, map[uint32]struct{}{first + 1: {}, first + 3: {}, 7: {}})
	var got []uint32
	for range 3 {
		number, ok := n.take()
		if !ok {
			t.Fatal("no number")
		}
		got = append(got, number)
		n.free(number)
	}
	if got[0] != first+4 || got[1] != first+5 || got[2] != first+6 {
		t.Errorf("got %v, want those after the largest taken one, none twice", got)
	}
	n.next = first + backend.RangeSize - 1
	if a, _ := n.take(); a != first+backend.RangeSize-1 {
		t.Errorf("the last number is %d", a)
	}
	if a, _ := n.take(); a != first {
		t.Errorf("after the last comes %d", a)
	}
	if a, _ := n.take(); a != first+2 {
		t.Errorf("a taken number was given: %d", a)
	}
	for number := range uint32(backend.RangeSize) {
		n.hold(first + number)
	}
	if _, ok := n.take(); ok {
		t.Error("a number beyond the range was given")
	}
	var none numbers
	if _, ok := none.take(); ok {
		t.Error("a number of no range was given")
	}
	none.hold(5)
	none.free(5)
}

func TestRangesAreNotShared(t *testing.T) {
	var r ranges
	for i, c := range []struct {
		first uint32
		pool  string
		ok    bool
	}{{1 << 30, "a", true}, {1 << 30, "a", true}, {1 << 30, "b", false}, {1<<30 + backend.RangeSize, "b", true}, {1 << 31, "b", true}, {1<<30 + backend.RangeSize, "a", true}} {
		if r.claim(c.first, c.pool) != c.ok {
			t.Errorf("claim %d: %+v is not so", i, c)
		}
	}
}

const mi = 1 << 20

// account is a ledger of an enforcing pool on 100 MiB, 60 used, with a volume of 40 that holds 10 and an adopted one of 1000.
func account(t *testing.T) (*Ledger, poolfs.Space) {
	t.Helper()
	space := poolfs.Space{Size: 100 * mi, Used: 60 * mi, Free: 40 * mi}
	l := newLedger(poolspec.Pool{Name: "local", MaxVolumes: 4})
	l.setSelected(true)
	l.Put(volume.Record{ID: "pvc-1", Bytes: 40 * mi, ProjectID: 1 << 30})
	l.Put(volume.Record{ID: "adopted", Bytes: 1000 * mi, Adopted: true})
	l.enforce(true, newNumbers(1<<30, map[uint32]struct{}{}), "")
	l.wants(t, "nothing is counted yet: all is foreign", space, 2, 1040, 0)
	l.observe(space.Used, map[uint32]int64{1 << 30: 10 * mi})
	return l, space
}

func (l *Ledger) wants(t *testing.T, about string, space poolfs.Space, volumes int, promised, room int64) {
	t.Helper()
	want := totals{volumes: volumes, promised: promised * mi, room: room * mi, largest: room * mi}
	if got := l.totals(space); got != want {
		t.Errorf("%s: %+v, want %+v", about, got, want)
	}
}

// TestRoomForGrowthIsLeftWhereNoVolumeCanBeMade, unless volumes cannot grow either.
func TestRoomForGrowthIsLeftWhereNoVolumeCanBeMade(t *testing.T) {
	space := poolfs.Space{Size: 100 * mi, Used: 0, Free: 100 * mi}
	for name, test := range map[string]struct {
		arrange       func(*Ledger)
		room, largest int64
	}{
		"as usual":                          {func(*Ledger) {}, 90, 90},
		"not selected":                      {func(l *Ledger) { l.setSelected(false) }, 90, 0},
		"maxVolumes reached":                {func(l *Ledger) { l.spec.MaxVolumes = 1 }, 90, 0},
		"maxVolumes reached by one growing": {func(l *Ledger) { l.spec.MaxVolumes = 1; grow(t, l, space) }, 80, 0},
		"one left, and one is growing":      {func(l *Ledger) { l.spec.MaxVolumes = 2; grow(t, l, space) }, 80, 80},
		"numbers not in order":              {func(l *Ledger) { l.enforce(true, numbers{}, "disk full") }, 90, 0},
		"quota required and lost":           {func(l *Ledger) { l.enforce(false, numbers{}, "quota is off") }, 0, 0},
	} {
		l := newLedger(poolspec.Pool{Name: "local"})
		l.setSelected(true)
		l.enforce(true, newNumbers(1<<30, map[uint32]struct{}{}), "")
		l.Put(volume.Record{ID: "pvc-1", Bytes: 10 * mi, ProjectID: 1 << 30})
		test.arrange(l)
		if got := l.totals(space); got.room != test.room*mi || got.largest != test.largest*mi {
			t.Errorf("%s: %+v, want room for %d MiB and a volume of %d", name, got, test.room, test.largest)
		}
	}
}

// grow reserves 10 MiB for a volume's growth.
func grow(t *testing.T, l *Ledger, space poolfs.Space) {
	t.Helper()
	if _, err := l.Grow("pvc-1", 20*mi, space); err != nil {
		t.Fatal(err)
	}
}

func TestLedgerOfAnEnforcingPool(t *testing.T) {
	l, space := account(t)
	l.wants(t, "foreign 50, promised 40", space, 2, 1040, 10)
	reservation, err := l.Reserve("pvc-2", 4*mi, space)
	if err != nil || reservation.Number != 1<<30+1 {
		t.Fatalf("reserve: %+v, %v", reservation, err)
	}
	l.wants(t, "reserved", space, 2, 1044, 6)
	reservation.Release()
	l.wants(t, "released", space, 2, 1040, 10)
	release, err := l.Grow("pvc-1", 46*mi, space)
	if err != nil {
		t.Fatal(err)
	}
	l.wants(t, "growing", space, 2, 1046, 4)
	if _, err := l.Grow("pvc-1", 47*mi, space); err == nil {
		t.Error("grown twice at once")
	}
	l.Put(volume.Record{ID: "pvc-1", Bytes: 46 * mi, ProjectID: 1 << 30})
	release()
	l.wants(t, "grown", space, 2, 1046, 4)
	if _, err := l.Grow("pvc-1", 51*mi, space); err == nil {
		t.Error("grown past the room")
	}
	if _, err := l.Grow("pvc-9", 51*mi, space); err == nil {
		t.Error("grown without a record")
	}
	space.Used, space.Free = 70*mi, 30*mi // a volume has written
	l.wants(t, "written", space, 2, 1046, 4)
	l.Drop("pvc-1")
	l.wants(t, "dropped: nothing is promised, and what is used stays so", space, 1, 1000, 30)
	if !l.guessing() || l.Owner(1<<30) != "" {
		t.Error("after a drop nothing has to be counted, or the number is still a volume's")
	}
	l.observe(space.Used, nil)
	l.wants(t, "counted: 20 are in the trash", space, 1, 1000, 30)
	if a, err := l.Reserve("pvc-3", mi, space); err != nil || a.Number == 1<<30 {
		t.Errorf("the number of a volume in the trash was given: %+v, %v", a, err)
	}
}

// TestLedgerTakesNoMoreForItsOwnThanWasPromised: a volume got past its size, and a twin has its number.
func TestLedgerTakesNoMoreForItsOwnThanWasPromised(t *testing.T) {
	l, space := account(t)
	l.Put(volume.Record{ID: "twin", Bytes: 2 * mi, ProjectID: 1 << 30})
	l.observe(space.Used, map[uint32]int64{1 << 30: 45 * mi})
	l.wants(t, "of 60 used 40 are the volume's, promised 42", space, 3, 1042, 38)
	l.Drop("pvc-1")
	l.observe(space.Used, map[uint32]int64{1 << 30: 45 * mi})
	l.wants(t, "of 60 used 2 are the twin's, the rest is in the trash", space, 2, 1002, 40)
	if l.Owner(1<<30) != "twin" || !l.Shared(1<<30, "twin") {
		t.Error("the twin does not own the number, or nobody else holds it")
	}
	l.Free(1<<30, "pvc-1")
	if _, taken := l.numbers.taken[1<<30]; !taken || l.Shared(1<<30, "twin") {
		t.Error("the twin's number is free, or somebody else holds it")
	}
	l.Drop("twin")
	l.Free(1<<30, "twin")
	if _, taken := l.numbers.taken[1<<30]; taken || l.Owner(1<<30) != "" {
		t.Error("the number of nobody is taken")
	}
}

func TestLedgerCountsVolumesOnce(t *testing.T) {
	l, space := account(t)
	if _, err := l.Grow("pvc-1", 41*mi, space); err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"pvc-2", "pvc-3"} {
		if _, err := l.Reserve(id, mi, space); err != nil {
			t.Fatalf("%s of maxVolumes 4: %v", id, err)
		}
	}
	if _, err := l.Reserve("pvc-4", mi, space); err == nil || !strings.Contains(err.Error(), "maxVolumes") {
		t.Errorf("a fifth of maxVolumes 4: %v", err)
	}
}
