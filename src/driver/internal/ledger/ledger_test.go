package ledger

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/disk"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/quota"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/poolspec"
)

const (
	mi = 1 << 20
	gi = 1 << 30
)

func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

func TestAllocatable(t *testing.T) {
	usual := disk.Space{Size: 100 * gi, Used: 20 * gi, Free: 80 * gi, Inodes: 10, InodesUsed: 4, InodesFree: 6}
	noInodes, readOnly, uncounted := usual, usual, usual
	noInodes.InodesFree, readOnly.ReadOnly = 0, true
	uncounted.Inodes, uncounted.InodesUsed, uncounted.InodesFree = 0, 0, 0
	reserve := func(bytes int64) poolspec.Pool { return poolspec.Pool{Reserve: poolspec.Reserve{Bytes: bytes}} }
	percent := poolspec.Pool{Reserve: poolspec.Reserve{Percent: 5}}
	overcommit := func(factor float64) poolspec.Pool { return poolspec.Pool{Overcommit: factor} }
	plain := func(promised, used int64) promises { return promises{promised: promised * gi, used: used * gi} }
	on := func(promised, used int64) promises { return promises{promised * gi, used * gi, true} }
	for name, tc := range map[string]struct {
		spec  poolspec.Pool
		space disk.Space
		p     promises
		want  int64
	}{
		"plain: free space, promises do not count":   {p: plain(70, 70), want: 80 * gi},
		"reserve in bytes":                           {spec: reserve(10 * gi), want: 70 * gi},
		"reserve in percent of the size":             {spec: percent, want: 75 * gi},
		"reserve above what is free":                 {spec: reserve(90 * gi), want: 0},
		"enforced: unwritten promises count":         {p: on(50, 0), want: 30 * gi},
		"enforced: written promises count once":      {p: on(50, 20), want: 50 * gi},
		"enforced: others' data counts":              {p: on(50, 5), want: 35 * gi},
		"enforced: all promised":                     {p: on(100, 0), want: 0},
		"overcommit 2 doubles what may be promised":  {spec: overcommit(2), p: on(150, 20), want: 50 * gi},
		"overcommit never passes free space":         {spec: overcommit(10), p: on(0, 0), want: 80 * gi},
		"plain with overcommit: promises count full": {spec: overcommit(1), p: plain(90, 90), want: 10 * gi},
		"overcommit of half":                         {spec: overcommit(0.5), p: on(30, 20), want: 20 * gi},
		"reserve counts against promises as well":    {spec: reserve(10 * gi), p: on(50, 0), want: 20 * gi},
		"what root keeps is not promised": {
			space: disk.Space{Size: 100 * gi, Used: 20 * gi, Free: 75 * gi},
			p:     on(40, 20), want: 55 * gi,
		},
		"more promised than there is":           {p: on(200, 0), want: 0},
		"no free inode":                         {space: noInodes, want: 0},
		"no free inode, enforced":               {space: noInodes, p: on(0, 0), want: 0},
		"a filesystem that counts no inodes":    {space: uncounted, want: 80 * gi},
		"read-only":                             {space: readOnly, want: 0},
		"read-only, enforced and overcommitted": {spec: overcommit(10), space: readOnly, p: on(0, 0), want: 0},
	} {
		t.Run(name, func(t *testing.T) {
			if tc.space == (disk.Space{}) {
				tc.space = usual
			}
			if got := allocatable(tc.spec, tc.space, tc.p); got != tc.want {
				t.Errorf("allocatable %d, want %d (in GiB %.1f, %.1f)", got, tc.want, float64(got)/gi,
					float64(tc.want)/gi)
			}
		})
	}
}

// TestRefusalsSayWhy, also which limit was met.
func TestRefusalsSayWhy(t *testing.T) {
	for name, test := range map[string]struct {
		arrange func(l *Ledger, s *disk.Space)
		err     error
		says    string
	}{
		"too large": {
			func(_ *Ledger, s *disk.Space) { s.Used, s.Free = gi-mi, mi }, ErrNoSpace,
			"has room for 1Mi (size 1Gi, free 1Mi, reserve 0, promised 1Mi), asked for 2Mi",
		},
		"never fits": {func(_ *Ledger, s *disk.Space) { s.Size, s.Free = mi, mi }, ErrNoSpace, "has room for 1Mi"},
		"read-only":  {func(_ *Ledger, s *disk.Space) { s.ReadOnly = true }, ErrNoSpace, "read-only"},
		"no inode":   {func(_ *Ledger, s *disk.Space) { s.Inodes = 10 }, ErrNoSpace, "no free inode"},
		"not selected": {func(l *Ledger, _ *disk.Space) {
			l.spec.NodeSelector = map[string]string{"disk": "ssd"}
			l.Select(false)
		}, ErrClosed, "nodeSelector"},
		"left the configuration": {
			func(l *Ledger, _ *disk.Space) { l.Select(false) }, ErrClosed,
			"no longer has pool local",
		},
		"closed": {
			func(l *Ledger, _ *disk.Space) { l.Close("quota is off") }, ErrClosed,
			"quota is off",
		},
		"maxVolumes": {
			func(l *Ledger, _ *disk.Space) { l.spec.MaxVolumes = 1 }, ErrNoSpace,
			"maxVolumes is 1",
		},
		"being made": {func(l *Ledger, s *disk.Space) {
			_, _ = l.Reserve("pvc-2", mi, *s)
		}, ErrBusy, "pvc-2 is being made"},
	} {
		t.Run(name, func(t *testing.T) {
			l, s := New(poolspec.Pool{Name: "local"}), disk.Space{Size: gi, Free: gi}
			l.Select(true)
			l.Put("pvc-1", Volume{Bytes: mi})
			test.arrange(l, &s)
			_, err := l.Reserve("pvc-2", 2*mi, s)
			if !errors.Is(err, test.err) || !strings.Contains(err.Error(), test.says) {
				t.Errorf("%v, want %v with %q", err, test.err, test.says)
			}
			if short := l.Short(); short != (name == "too large" || name == "no inode") {
				t.Errorf("short: %v", short)
			}
			if l.Short() {
				t.Error("short is said twice")
			}
		})
	}
}

// TestShort: what the pool could not hold without its trash either is no reason to purge that.
func TestShort(t *testing.T) {
	for asked, want := range map[int64]bool{60 * mi: true, 60*mi + 1: false, 1 << 50: false} {
		l, space := account(t)
		for what, promise := range map[string]func() error{
			"reserve": func() error { _, err := l.Reserve("pvc-9", asked, space); return err },
			"grow":    func() error { _, err := l.Grow("pvc-1", 40*mi+asked, space); return err },
		} {
			if err := promise(); !errors.Is(err, ErrNoSpace) || l.Short() != want {
				t.Errorf("%s %d bytes: %v, want short %v", what, asked, err, want)
			}
		}
		_, _ = l.Reserve("pvc-9", 60*mi, space)
		if _, err := l.Reserve("pvc-9", asked, space); err == nil || !l.Short() {
			t.Errorf("a request for %d bytes ends that an earlier one was short: %v", asked, err)
		}
	}
}

// account is the ledger of an enforcing pool on 100 MiB, 60 used, with a volume of 40 that uses 10 and an adopted one
// of 1000.
func account(t *testing.T) (*Ledger, disk.Space) {
	t.Helper()
	space := disk.Space{Size: 100 * mi, Used: 60 * mi, Free: 40 * mi}
	l := New(poolspec.Pool{Name: "local", MaxVolumes: 4})
	l.Reset(true)
	l.Select(true)
	l.Put("pvc-1", counted(40, 1))
	l.Put("adopted", Volume{Bytes: 1000 * mi})
	l.wants(t, "usage was not read yet: all is others'", space, 2, 1040, 0)
	if !l.Guessed() {
		t.Error("usage need not be read")
	}
	l.Observe(space.Used, uses(1, 10))
	return l, space
}

func counted(size int64, id quota.ID) Volume {
	return Volume{Bytes: size * mi, QuotaID: id, Counted: true}
}

func uses(id quota.ID, size int64) map[quota.ID]quota.Use {
	return map[quota.ID]quota.Use{id: {Bytes: size * mi}}
}

// wants compares the totals, sizes in MiB.
func (l *Ledger) wants(t *testing.T, about string, space disk.Space, volumes int, promised, room int64) {
	t.Helper()
	want := Totals{Volumes: volumes, Promised: promised * mi, Growable: room * mi, Largest: room * mi}
	if got := l.Totals(space); got != want {
		t.Errorf("%s: %+v, want %+v", about, got, want)
	}
}

func TestEnforcingPool(t *testing.T) {
	l, space := account(t)
	l.wants(t, "others' 50, promised 40", space, 2, 1040, 10)
	release, err := l.Reserve("pvc-2", 4*mi, space)
	must(t, err)
	l.wants(t, "reserved", space, 2, 1044, 6)
	release()
	release()
	l.wants(t, "released", space, 2, 1040, 10)
	release, err = l.Grow("pvc-1", 46*mi, space)
	must(t, err)
	l.wants(t, "growing", space, 2, 1046, 4)
	if _, err := l.Grow("pvc-1", 47*mi, space); !errors.Is(err, ErrBusy) {
		t.Errorf("grown twice at once: %v", err)
	}
	l.Put("pvc-1", counted(46, 1))
	release()
	l.wants(t, "grown", space, 2, 1046, 4)
	if _, err := l.Grow("pvc-1", 51*mi, space); !errors.Is(err, ErrNoSpace) {
		t.Errorf("grown past the room: %v", err)
	}
	if _, err := l.Grow("pvc-9", 51*mi, space); !errors.Is(err, ErrBusy) {
		t.Errorf("grown without a record: %v", err)
	}
	space.Used, space.Free = 70*mi, 30*mi
	l.wants(t, "a volume has written", space, 2, 1046, 4)
	l.Drop("pvc-1")
	l.Drop("pvc-1")
	l.wants(t, "dropped: nothing is promised, and what is used stays so", space, 1, 1000, 30)
	if !l.Guessed() || l.Owner(1) != "" || len(l.QuotaIDs()) > 0 {
		t.Error("after a drop usage need not be read, or the ID is still a volume's")
	}
	l.Observe(space.Used, nil)
	l.wants(t, "read: 20 are in the trash", space, 1, 1000, 30)
	if l.Guessed() {
		t.Error("usage was read")
	}
}

// TestADropDoesNotGiveRoomTwice: what a dropped volume was promised counts as used until usage is read again.
func TestADropDoesNotGiveRoomTwice(t *testing.T) {
	l, space := account(t)
	l.Put("pvc-2", counted(8, 2))
	l.Drop("pvc-1")
	l.wants(t, "its 40 MiB are others' now", space, 2, 1008, 32)
	space.Used, space.Free = 55*mi, 45*mi
	l.Observe(space.Used, nil)
	l.wants(t, "5 of its 10 MiB are purged", space, 2, 1008, 37)
}

// TestNoMoreIsTheVolumesThanWasPromised: one got past its size, and what it has above that is others' usage.
func TestNoMoreIsTheVolumesThanWasPromised(t *testing.T) {
	l, space := account(t)
	l.Observe(space.Used, uses(1, 45))
	l.wants(t, "of 60 used 40 are the volume's, promised 40", space, 2, 1040, 40)
	l.Observe(space.Used, uses(1, 90)) // usage is younger than the filesystem's own figure
	l.wants(t, "more than is used at all", space, 2, 1040, 40)
}

// TestRoomForGrowthIsLeftWhereNoVolumeCanBeMade: volumes that are there may grow.
func TestRoomForGrowthIsLeftWhereNoVolumeCanBeMade(t *testing.T) {
	space := disk.Space{Size: 100 * mi, Used: 0, Free: 100 * mi}
	grow := func(l *Ledger) { _, _ = l.Grow("pvc-1", 20*mi, space) }
	for name, test := range map[string]struct {
		arrange       func(*Ledger)
		room, largest int64
	}{
		"as usual":                          {func(*Ledger) {}, 90, 90},
		"not selected":                      {func(l *Ledger) { l.Select(false) }, 90, 0},
		"closed":                            {func(l *Ledger) { l.Close("a record is broken") }, 90, 0},
		"closed, and open again":            {func(l *Ledger) { l.Close("a record is broken"); l.Close("") }, 90, 90},
		"maxVolumes reached":                {func(l *Ledger) { l.spec.MaxVolumes = 1 }, 90, 0},
		"maxVolumes reached by one growing": {func(l *Ledger) { l.spec.MaxVolumes = 1; grow(l) }, 80, 0},
		"one left, and one is growing":      {func(l *Ledger) { l.spec.MaxVolumes = 2; grow(l) }, 80, 80},
	} {
		l := New(poolspec.Pool{Name: "local"})
		l.Reset(true)
		l.Select(true)
		l.Put("pvc-1", counted(10, 1))
		l.Observe(0, nil)
		test.arrange(l)
		if got := l.Totals(space); got.Growable != test.room*mi || got.Largest != test.largest*mi {
			t.Errorf("%s: %+v, want room for %d MiB and a volume of %d", name, got, test.room, test.largest)
		}
	}
}

func TestMaxVolumesCountsEachOnce(t *testing.T) {
	l, space := account(t)
	_, err := l.Grow("pvc-1", 41*mi, space)
	must(t, err)
	for _, id := range []string{"pvc-2", "pvc-3"} {
		if _, err := l.Reserve(id, mi, space); err != nil {
			t.Fatalf("%s of maxVolumes 4: %v", id, err)
		}
	}
	_, err = l.Reserve("pvc-4", mi, space)
	if !errors.Is(err, ErrNoSpace) || !strings.Contains(err.Error(), "maxVolumes") {
		t.Errorf("a fifth of maxVolumes 4: %v", err)
	}
}

// TestARefusedVolumeKeepsItsPromise, its id and its quota ID.
func TestARefusedVolumeKeepsItsPromise(t *testing.T) {
	l := New(poolspec.Pool{Name: "local"})
	l.Reset(true)
	l.Select(true)
	v := counted(30, 7)
	v.Refused = true
	l.Put("pvc-1", v)
	l.Observe(0, nil)
	space := disk.Space{Size: 100 * mi, Free: 100 * mi}
	want := Totals{Volumes: 1, Refused: 1, Promised: 30 * mi, Growable: 70 * mi, Largest: 70 * mi}
	if got := l.Totals(space); got != want || l.Owner(7) != "pvc-1" {
		t.Errorf("%+v, owner %q; want %+v", got, l.Owner(7), want)
	}
	l.Put("pvc-1", counted(30, 7)) // repaired
	want.Refused = 0
	if got := l.Totals(space); got != want {
		t.Errorf("repaired: %+v, want %+v", got, want)
	}
	l.Put("pvc-2", Volume{Bytes: 5 * mi, QuotaID: 8})
	want = Totals{Volumes: 2, Uncounted: 1, Promised: 35 * mi, Growable: 70 * mi, Largest: 70 * mi}
	if got := l.Totals(space); got != want || l.Owner(8) != "" {
		t.Errorf("one that does not count to its ID: %+v, want %+v", got, want)
	}
}

// TestReadmit: a volume that comes back needs room for what its data does not take yet, where that is counted; and the
// lack of it purges nothing.
func TestReadmit(t *testing.T) {
	space := disk.Space{Size: 100 * mi, Used: 40 * mi, Free: 60 * mi}
	for name, test := range map[string]struct {
		enforced   bool
		overcommit float64
		bytes      int64
		used       int64
		fits       bool
	}{
		"it has all but what there is":        {true, 0, 90 * mi, 30 * mi, true},
		"it has less":                         {true, 0, 90 * mi, 29 * mi, false},
		"it has more than its size":           {true, 0, 10 * mi, 39 * mi, true},
		"nothing keeps it to its size":        {true, 0, 90 * mi, -1, true},
		"nothing is promised":                 {false, 0, 90 * mi, -1, true},
		"its use is not known, and it counts": {false, 1, 61 * mi, -1, false},
		"likewise, and there is the room":     {false, 1, 60 * mi, -1, true},
	} {
		l := New(poolspec.Pool{Name: "local", Overcommit: test.overcommit})
		l.Reset(test.enforced)
		l.Select(true)
		l.Observe(space.Used, nil)
		release, err := l.Readmit("pvc-1", test.bytes, test.used, space)
		if (err == nil) != test.fits || err != nil && !errors.Is(err, ErrNoSpace) || l.Short() {
			t.Errorf("%s: %v", name, err)
		}
		if err == nil {
			release()
		}
	}
}

// TestTheLastRoom is asked for by a thousand at once: exactly as many get it as fit.
func TestTheLastRoom(t *testing.T) {
	const many, size = 1000, 3
	l := New(poolspec.Pool{Name: "local"})
	l.Reset(true)
	l.Select(true)
	l.Observe(0, nil)
	space := disk.Space{Size: gi, Free: gi}
	var got atomic.Int64
	var all sync.WaitGroup
	for i := range many {
		all.Go(func() {
			id := fmt.Sprintf("pvc-%d", i)
			release, err := l.Reserve(id, size*mi, space)
			if err != nil {
				if !errors.Is(err, ErrNoSpace) {
					t.Error(err)
				}
				return
			}
			got.Add(1)
			if i%2 == 0 {
				l.Put(id, counted(size, quota.ID(i+1)))
				release()
			}
		})
	}
	all.Wait()
	if fit := int64(1024 / size); got.Load() != fit {
		t.Errorf("%d were promised %d MiB, and %d fit", got.Load(), size, fit)
	}
	if got := l.Totals(space); got.Promised != 1024/size*size*mi || got.Growable != 1024%size*mi {
		t.Errorf("%+v", got)
	}
}

// model is what the ledger should add up to, counted anew each time.
type model struct {
	volumes  map[string]Volume
	reserved map[string]int64
}

func (m model) totals() (t Totals) {
	t.Volumes = len(m.volumes)
	for _, v := range m.volumes {
		t.Promised += v.Bytes
		switch {
		case v.Refused:
			t.Refused++
		case v.QuotaID != 0 && !v.Counted:
			t.Uncounted++
		}
	}
	for _, bytes := range m.reserved {
		t.Promised += bytes
	}
	return t
}

// random is one of the volumes that there can be.
func (m model) random(rng *rand.Rand, n int) Volume {
	v := Volume{Bytes: rng.Int64N(10) * mi, Refused: rng.IntN(4) == 0, Created: time.Unix(rng.Int64N(100), 0)}
	if rng.IntN(3) > 0 {
		v.QuotaID = quota.ID(n + 1)
		v.Counted = rng.IntN(2) == 0
	}
	if rng.IntN(3) == 0 {
		v.Filling = sourceOf(fmt.Sprintf("pvc-%d", n))
	}
	return v
}

func sourceOf(id string) string { return "what is copied to " + id }

// TestRandomSequence: whatever is done in whatever order, the sums are those of a recount.
func TestRandomSequence(t *testing.T) {
	rng := rand.New(rand.NewPCG(9, 22))
	l := New(poolspec.Pool{Name: "local"})
	l.Reset(true)
	l.Select(true)
	space := disk.Space{Size: gi, Free: gi}
	m := model{volumes: map[string]Volume{}, reserved: map[string]int64{}}
	releases := map[string]func(){}
	for step := range 20_000 {
		n := rng.IntN(12)
		id := fmt.Sprintf("pvc-%d", n)
		switch rng.IntN(6) {
		case 0:
			v := m.random(rng, n)
			l.Put(id, v)
			m.volumes[id] = v
			delete(m.reserved, id)
		case 1:
			if _, promised := m.reserved[id]; promised { // an operation on a volume ends before the next one drops it
				releases[id]()
			}
			l.Drop(id)
			delete(m.volumes, id)
			delete(m.reserved, id)
		case 2:
			if _, exists := m.volumes[id]; exists {
				continue
			}
			l.Observe(0, nil)
			if release, err := l.Reserve(id, mi, space); err == nil {
				releases[id], m.reserved[id] = release, mi
			}
		case 3:
			v, exists := m.volumes[id]
			if release, err := l.Grow(id, v.Bytes+mi, space); err == nil {
				releases[id], m.reserved[id] = release, mi
			} else if _, twice := m.reserved[id]; exists && !twice && !errors.Is(err, ErrNoSpace) {
				t.Fatalf("step %d: %v", step, err)
			}
		default:
			if release, ok := releases[id]; ok {
				release()
				delete(m.reserved, id)
				delete(releases, id)
			}
		}
		m.compare(t, l, space, step)
	}
}

func (m model) compare(t *testing.T, l *Ledger, space disk.Space, step int) {
	t.Helper()
	got, want := l.Totals(space), m.totals()
	got.Growable, got.Largest = 0, 0
	var ids, counting []quota.ID
	for _, v := range m.volumes {
		if v.Counted {
			counting = append(counting, v.QuotaID)
		}
	}
	ids = l.QuotaIDs()
	slices.Sort(ids)
	slices.Sort(counting)
	unlimited := int64(0)
	making := 0
	for _, v := range m.volumes {
		if !v.Counted {
			unlimited += v.Bytes
		}
	}
	for id := range m.reserved {
		if _, exists := m.volumes[id]; !exists {
			making++
		}
	}
	for n := range 12 {
		id := fmt.Sprintf("pvc-%d", n)
		if copied := l.CopyOf(sourceOf(id)); (copied == id) != (m.volumes[id].Filling != "") {
			t.Fatalf("step %d: %q is the copy that %s is to be", step, copied, id)
		}
	}
	all := map[string]Volume{}
	l.Each(func(id string, v Volume) { all[id] = v })
	if got != want || !slices.Equal(ids, counting) || l.unlimited != unlimited || l.count() != len(m.volumes)+making ||
		!reflect.DeepEqual(all, m.volumes) {
		t.Fatalf("step %d: %+v, unlimited %d, count %d, IDs %v; a recount gives %+v, %d, %d, %v", step, got,
			l.unlimited,
			l.count(), ids, want, unlimited, len(m.volumes)+making, counting)
	}
}

// TestDoubtKeepsThePromise: a volume whose directory could not be looked at has its limit in the kernel.
func TestDoubtKeepsThePromise(t *testing.T) {
	const gibibyte = 1 << 30
	l := New(poolspec.Pool{Name: "local"})
	l.Reset(true)
	space := disk.Space{Size: 100 * gibibyte, Used: gibibyte, Free: 99 * gibibyte}
	for doubtful, want := range map[bool]int64{true: 9 * gibibyte, false: 99 * gibibyte} {
		l.Put("pvc-1", Volume{Bytes: 90 * gibibyte, QuotaID: 7, Doubtful: doubtful})
		l.Observe(gibibyte, nil)
		if room := l.Totals(space).Growable; room != want {
			t.Errorf("doubtful %v: room %d, want %d", doubtful, room, want)
		}
	}
}
