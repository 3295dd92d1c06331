package trash

import (
	"strings"
	"testing"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/records"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/poolspec"
)

// warned reports whether a warning about the clock was logged, and forgets it.
func (m *machine) warned() bool {
	defer m.log.Reset()
	return strings.Contains(m.log.String(), "the clock was set")
}

// TestTheClockWasSet: nothing is purged by age until the retention has passed by a clock that nobody can set.
func TestTheClockWasSet(t *testing.T) {
	for name, test := range map[string]struct {
		jump      time.Duration
		retention time.Duration
		doubted   time.Duration
	}{
		"a year ahead":                      {365 * 24 * time.Hour, time.Hour, time.Hour},
		"eleven minutes ahead":              {11 * time.Minute, time.Hour, time.Hour},
		"a year ahead, of a long retention": {365 * 24 * time.Hour, 100 * time.Hour, 24 * time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t)
			m.start(poolspec.Trash{Retention: poolspec.Duration(test.retention)})
			m.kept("pvc-1")
			m.trashed("pvc-2", m.wall, record("pvc-2", records.Purge, 0))
			m.trashed("pvc-3", m.wall.Add(-test.retention), record("pvc-3", records.Trash, 0))
			m.wall = m.wall.Add(test.jump)
			m.purge(t)
			m.wants(t, "after the jump what is to be purged at once goes", "pvc-1", "pvc-3")
			if !m.warned() {
				t.Error("no warning")
			}
			m.pass(test.doubted - time.Second)
			m.purge(t)
			m.wants(t, "while ages are doubted", "pvc-1", "pvc-3")
			if m.warned() {
				t.Error("one jump is warned of twice")
			}
			m.pass(2 * time.Second)
			m.purge(t)
			m.wants(t, "at the end")
		})
	}
}

// TestAJumpThatIsNone: what NTP corrects is no reason to keep anything.
func TestAJumpThatIsNone(t *testing.T) {
	m := newMachine(t)
	m.kept("pvc-1")
	m.purge(t)
	m.wall = m.wall.Add(9 * time.Minute)
	m.pass(52 * time.Minute)
	m.purge(t)
	m.pass(9 * time.Minute) // what was to wait for was computed before
	m.purge(t)
	if m.wants(t, "nine minutes ahead"); m.warned() {
		t.Error("a warning")
	}
}

// TestASecondJump: each jump counts from when it is seen.
func TestASecondJump(t *testing.T) {
	m := newMachine(t)
	m.trashed("pvc-1", m.wall.Add(-24*time.Hour), record("pvc-1", records.Trash, 0))
	m.wall = m.wall.Add(10 * time.Hour)
	m.purge(t)
	m.pass(30 * time.Minute)
	m.wall = m.wall.Add(-5 * time.Hour)
	m.purge(t)
	m.pass(45 * time.Minute)
	m.purge(t)
	m.wants(t, "an hour after the first, and not after the second", "pvc-1")
	m.pass(16 * time.Minute)
	m.purge(t)
	m.wants(t, "an hour after the second")
}

// TestDeletedInTheFuture counts as seen now, by a clock that nobody can set.
func TestDeletedInTheFuture(t *testing.T) {
	m := newMachine(t)
	m.trashed("pvc-1", m.wall.Add(1000*time.Hour), record("pvc-1", records.Trash, 0))
	m.purge(t)
	m.pass(59 * time.Minute)
	m.purge(t)
	m.wants(t, "before the retention", "pvc-1")
	m.pass(2 * time.Minute)
	m.purge(t)
	m.wants(t, "after the retention since it was seen")
}

// TestARetentionOfNone purges whatever the clock says.
func TestARetentionOfNone(t *testing.T) {
	m := newMachine(t)
	m.start(poolspec.Trash{})
	m.kept("pvc-1")
	m.trashed("pvc-2", m.wall.Add(1000*time.Hour), record("pvc-2", records.Trash, 0))
	m.wall = m.wall.Add(-time.Hour)
	m.purge(t)
	m.wants(t, "at once")
}

// TestBootClock: it is the real one that a worker has.
func TestBootClock(t *testing.T) {
	c := newClock(time.Now)
	if c.boot() <= 0 || c.jumped(time.Hour) || c.untrusted() != 0 {
		t.Errorf("up for %v, ages doubted for %v", c.boot(), c.untrusted())
	}
}
