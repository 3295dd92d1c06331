package trash

import (
	"time"

	"golang.org/x/sys/unix"
)

// maxDrift is by how much the wall clock may part from CLOCK_BOOTTIME before ages are doubted.
const maxDrift = 10 * time.Minute

// clock is the wall clock, which somebody may set, beside CLOCK_BOOTTIME, which nobody can (clock_gettime(2)).
type clock struct {
	now   func() time.Time
	boot  func() time.Duration
	epoch time.Time     // what the wall clock showed at boot, as it was last believed
	until time.Duration // CLOCK_BOOTTIME until which ages are doubted
}

func newClock(now func() time.Time) *clock {
	c := &clock{now: now, boot: sinceBoot}
	c.epoch = c.start()
	return c
}

// sinceBoot is CLOCK_BOOTTIME, which goes on while the machine sleeps.
func sinceBoot() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		return 0 // only a kernel older than Linux 2.6.39 has no such clock
	}
	return time.Duration(ts.Nano())
}

func (c *clock) start() time.Time { return c.now().Round(0).Add(-c.boot()) }

// jumped reports whether the wall clock was set since it was last asked. Then ages are doubted, at most for a day.
func (c *clock) jumped(retention time.Duration) bool {
	start := c.start()
	if drift := start.Sub(c.epoch); drift.Abs() <= maxDrift {
		return false
	}
	c.epoch = start
	c.until = c.boot() + min(retention, 24*time.Hour)
	return true
}

// untrusted is how long ages are doubted from now on.
func (c *clock) untrusted() time.Duration { return max(0, c.until-c.boot()) }
