package purge

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"golang.org/x/time/rate"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/disk"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/store"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/poolspec"
)

// counting counts the steps of removals.
type counting struct {
	disk.FS
	steps int
}

func (c *counting) RemoveTree(ctx context.Context, name string, step func(context.Context) error) error {
	return c.FS.RemoveTree(ctx, name, func(ctx context.Context) error {
		c.steps++
		return step(ctx)
	})
}

// giant is an entry of many files that is due.
func (m *machine) giant(id string, files int) {
	name := m.trashed(id, m.wall, record(id, store.Purge, 0))
	for i := range files {
		m.memory.AddFile(fmt.Sprintf("/pool/csi/.hpp/trash/%s/data/%d", name, i), nil)
	}
}

// TestAGiantKeepsNoOther: a slice ends after sliceSteps, or once it has made leastSteps and its time is over, and the
// next one begins with another entry.
func TestAGiantKeepsNoOther(t *testing.T) {
	const files, others = 12_000, 5
	for _, name := range []string{"a", "m", "z"} { // before, among and after the others
		t.Run(name, func(t *testing.T) {
			m := newMachine(t)
			m.giant(name, files)
			for i := range others {
				m.trashed(fmt.Sprintf("k-%d", i), m.wall, record("k", store.Purge, 0))
				m.trashed(fmt.Sprintf("p-%d", i), m.wall, record("p", store.Purge, 0))
			}
			c := &counting{FS: m.FS}
			for slices := 1; ; slices++ {
				c.steps = 0
				s, err := m.Purge(t.Context(), c, m.limits, false)
				must(t, err)
				if left := len(m.ids(t)); slices == 2 && left > 1 {
					t.Errorf("after two slices %d are in the trash, want the giant alone", left)
				}
				if c.steps > sliceSteps {
					t.Errorf("slice %d had %d steps", slices, c.steps)
				}
				if !s.More {
					if least, most := files/sliceSteps+1, files/leastSteps+3; slices < least || slices > most {
						t.Errorf("%d slices, want %d to %d", slices, least, most)
					}
					break
				}
				if c.steps < leastSteps {
					t.Errorf("slice %d ended after %d steps", slices, c.steps)
				}
			}
			m.wants(t, "at the end")
		})
	}
}

// TestSlice ends after its steps, or after its time where it has made the least of them.
func TestSlice(t *testing.T) {
	for steps, end := range map[int]time.Time{sliceSteps: time.Now().Add(time.Hour), leastSteps: {}} {
		s, made := slice{limit: rate.NewLimiter(rate.Inf, 0), end: end}, 0
		for s.step(t.Context()) == nil {
			made++
		}
		if made != steps {
			t.Errorf("%d steps, want %d", made, steps)
		}
	}
}

// TestTwoGiantsShare: neither waits for the other's end.
func TestTwoGiantsShare(t *testing.T) {
	m := newMachine(t)
	m.giant("a", 20_000)
	m.giant("b", 20_000)
	at := func(id string) int {
		entries, err := m.ReadDir(disk.TrashDir + "/" + fmt.Sprintf("%s.%d", id, m.wall.UnixMilli()) + "/purging")
		must(t, err)
		return len(entries)
	}
	m.purge(t)
	m.purge(t)
	if a, b := at("a"), at("b"); a > 20_000-leastSteps || b > 20_000-leastSteps {
		t.Errorf("after two slices they have %d and %d files", a, b)
	}
}

// TestAFullTrashCostsOnlyItsListing: entries that are not due are not looked into again.
func TestAFullTrashCostsOnlyItsListing(t *testing.T) {
	m := newMachine(t)
	for i := range sliceSteps + 100 {
		m.kept(fmt.Sprintf("pvc-%d", i))
	}
	for m.purge(t).More {
	}
	s, err := m.Purge(t.Context(), blind{m.FS}, m.limits, false)
	if err != nil || s.Entries != sliceSteps+100 || s.More {
		t.Errorf("%+v, %v", s, err)
	}
}

// blind is a disk on which no record can be read.
type blind struct{ disk.FS }

func (blind) ReadFile(string) ([]byte, error) { return nil, unix.EIO }

// short is one slice after a request was refused for lack of room.
func (m *machine) short(t *testing.T) Summary {
	t.Helper()
	s, err := m.Purge(t.Context(), m, m.limits, true)
	must(t, err)
	return s
}

func whenFull() poolspec.Trash {
	return poolspec.Trash{Retention: poolspec.Duration(time.Hour), PurgeWhenFull: true}
}

// TestPurgeWhenFull: the oldest entry gives way, one for each refusal, and one that is to be retained never does.
func TestPurgeWhenFull(t *testing.T) {
	m := newMachine(t)
	m.trashed("c-retained", m.wall.Add(-5*time.Minute), record("c-retained", store.Retain, 0))
	m.trashed("d-broken", m.wall.Add(-4*time.Minute), []byte(`{`))
	m.trashed("e-under-way", m.wall.Add(-4*time.Minute), nil)
	m.trashed("b-second", m.wall.Add(-2*time.Minute), record("b-second", store.Trash, 0))
	m.trashed("z-first", m.wall.Add(-3*time.Minute), record("z-first", store.Trash, 0))
	m.trashed("a-third", m.wall.Add(-1*time.Minute), record("a-third", store.Trash, 0))
	all := m.ids(t)
	if _, err := m.Purge(t.Context(), m, m.limits, true); err == nil {
		t.Error("nothing is said of the broken record")
	}
	m.wants(t, "the pool does not say purgeWhenFull", all...)
	m.start(t, whenFull())
	_, _ = m.Purge(t.Context(), m, m.limits, false)
	m.wants(t, "there is room", all...)
	m.short(t)
	m.wants(t, "one refusal", "a-third", "b-second", "c-retained", "d-broken", "e-under-way")
	m.purge(t)
	m.wants(t, "there is room again", "a-third", "b-second", "c-retained", "d-broken", "e-under-way")
	m.short(t)
	m.short(t)
	m.wants(t, "three refusals", "c-retained", "d-broken", "e-under-way")
	m.short(t)
	m.wants(t, "nothing may go", "c-retained", "d-broken", "e-under-way")
}

// TestAnEvictionOnceBegunGoesOn, also when there is room meanwhile; what fails gives way to the next.
func TestAnEvictionOnceBegunGoesOn(t *testing.T) {
	m := newMachine(t)
	m.start(t, whenFull())
	name := m.trashed("pvc-1", m.wall, record("pvc-1", store.Trash, 0))
	for i := range 3 * sliceSteps {
		m.memory.AddFile(fmt.Sprintf("/pool/csi/.hpp/trash/%s/data/%d", name, i), nil)
	}
	m.trashed("pvc-2", m.wall.Add(time.Second), record("pvc-2", store.Trash, 0))
	if !m.short(t).More {
		t.Error("it went in one slice")
	}
	for m.purge(t).More {
	}
	m.wants(t, "the eviction went on", "pvc-2")

	m.trashed("pvc-3", m.wall.Add(2*time.Second), record("pvc-3", store.Trash, 0))
	m.memory.FailAt(1, unix.EIO)
	if _, err := m.Purge(t.Context(), m, m.limits, true); err == nil {
		t.Error("the failure is not said")
	}
	m.purge(t)
	m.wants(t, "it is tried again before it is due", "pvc-2", "pvc-3")
	m.short(t)
	m.wants(t, "the oldest cannot be removed", "pvc-2")
}

// TestIdle: what it runs has the lowest I/O priority, and nothing else has.
func TestIdle(t *testing.T) {
	get := func() int {
		priority, _, errno := unix.Syscall(unix.SYS_IOPRIO_GET, ofThread, 0, 0)
		if errno != 0 {
			t.Error(errno)
		}
		return int(priority) >> 13
	}
	ran := false
	Idle(func() {
		if ran = true; get() != idlePriority>>13 {
			t.Errorf("its class is %d", get())
		}
	})
	classes := []int{}
	for range 50 {
		done := make(chan int)
		go func() { done <- get() }()
		classes = append(classes, <-done)
	}
	if !ran || slices.Contains(classes, idlePriority>>13) {
		t.Errorf("ran %v, and the classes of others are %v", ran, classes)
	}
}
