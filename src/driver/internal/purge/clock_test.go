package purge

import (
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/store"
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
			m.start(t, poolspec.Trash{Retention: poolspec.Duration(test.retention)})
			m.kept("pvc-1")
			m.trashed("pvc-2", m.wall, record("pvc-2", store.Purge, 0))
			m.trashed("pvc-3", m.wall.Add(-test.retention), record("pvc-3", store.Trash, 0))
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
	m.trashed("pvc-1", m.wall.Add(-24*time.Hour), record("pvc-1", store.Trash, 0))
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
	m.trashed("pvc-1", m.wall.Add(1000*time.Hour), record("pvc-1", store.Trash, 0))
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
	m.start(t, poolspec.Trash{})
	m.kept("pvc-1")
	m.trashed("pvc-2", m.wall.Add(1000*time.Hour), record("pvc-2", store.Trash, 0))
	m.wall = m.wall.Add(-time.Hour)
	m.purge(t)
	m.wants(t, "at once")
}

// TestAWrongClockAtBoot: nothing is purged by age until the clock is synchronised, or the boot is a retention ago.
func TestAWrongClockAtBoot(t *testing.T) {
	const retention = 72 * time.Hour
	for name, test := range map[string]struct {
		pass time.Duration
		sync bool
		want []string
	}{
		"at once":                        {0, false, []string{"pvc-1", "pvc-2"}},
		"before the clock is known":      {23 * time.Hour, false, []string{"pvc-1", "pvc-2"}},
		"once the boot is a day ago":     {24 * time.Hour, false, nil},
		"once the clock is synchronised": {time.Minute, true, []string{"pvc-1"}},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t)
			m.trashed("pvc-1", m.wall.Add(-time.Hour), record("pvc-1", store.Trash, 0))
			m.trashed("pvc-2", m.wall.Add(-retention), record("pvc-2", store.Trash, 0))
			m.wall, m.boot, m.bootID, m.unsure = m.wall.Add(365*24*time.Hour), 0, "second", true
			m.start(t, poolspec.Trash{Retention: poolspec.Duration(retention)})
			m.purge(t)
			m.wants(t, "at boot", "pvc-1", "pvc-2")
			m.pass(test.pass)
			if test.sync {
				m.wall, m.unsure = m.wall.Add(-365*24*time.Hour), false
				m.purge(t)
				m.wants(t, "when NTP has set the clock", "pvc-1", "pvc-2")
				m.pass(24 * time.Hour)
			}
			m.purge(t)
			m.wants(t, name, test.want...)
		})
	}
}

// TestADoubtOutlastsTheDriver, and the boot if it had not ended then.
func TestADoubtOutlastsTheDriver(t *testing.T) {
	retained := poolspec.Trash{Retention: poolspec.Duration(time.Hour)}
	for name, restart := range map[string]func(t *testing.T, m *machine){
		"nothing happens": func(*testing.T, *machine) {},
		"the driver starts again": func(t *testing.T, m *machine) {
			t.Helper()
			m.start(t, retained)
		},
		"the node starts again": func(t *testing.T, m *machine) {
			t.Helper()
			m.boot, m.bootID = 5*time.Minute, "second"
			m.start(t, retained)
		},
		"what was kept is damaged": func(t *testing.T, m *machine) {
			t.Helper()
			m.memory.AddFile("/state/clock.json", []byte("{"))
			m.start(t, retained)
		},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t)
			m.purge(t)
			m.kept("pvc-1")
			m.wall = m.wall.Add(365 * 24 * time.Hour)
			m.purge(t)
			restart(t, m)
			m.pass(59 * time.Minute)
			m.purge(t)
			m.wants(t, "while ages are doubted", "pvc-1")
			m.pass(61 * time.Minute)
			m.purge(t)
			m.wants(t, "at the end")
			m.pass(24 * time.Hour)
			m.purge(t)
			m.kept("pvc-2")
			m.pass(61 * time.Minute)
			m.bootID = "third"
			m.start(t, retained)
			m.purge(t)
			m.wants(t, "a doubt that has ended is forgotten")
		})
	}
}

// TestTheClockWasSetBetweenTwoDrivers of one boot.
func TestTheClockWasSetBetweenTwoDrivers(t *testing.T) {
	m := newMachine(t)
	m.purge(t)
	m.kept("pvc-1")
	m.wall = m.wall.Add(365 * 24 * time.Hour)
	m.start(t, poolspec.Trash{Retention: poolspec.Duration(time.Hour)})
	m.purge(t)
	if m.wants(t, "after the jump", "pvc-1"); !m.warned() {
		t.Error("no warning")
	}
}

// TestBootClock: it is the real one that a driver has.
func TestBootClock(t *testing.T) {
	c := NewClock(time.Now, Synchronised, newMachine(t).FS)
	if c.boot() <= 0 || len(c.bootID()) != 36 {
		t.Errorf("up for %v since boot %q", c.boot(), c.bootID())
	}
	var status unix.Timex
	state, err := unix.Adjtimex(&status)
	if want := err == nil && state != unix.TIME_ERROR; Synchronised() != want {
		t.Errorf("synchronised: %v, the kernel says %d, %v", !want, state, err)
	}
}
