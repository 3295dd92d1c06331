package purge

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/disk"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/store"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/logging"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/poolspec"
)

const (
	// maxDrift is by how much the wall clock may part from CLOCK_BOOTTIME before ages are doubted, longestDoubt how
	// long they are at most, and syncLook how soon it is looked again whether the clock is synchronised.
	maxDrift, longestDoubt, syncLook = 10 * time.Minute, 24 * time.Hour, time.Minute
	// clockFile is where the state directory keeps what is known of this boot's clock.
	clockFile = "clock.json"
)

// Clock is a node's wall clock, which somebody may set or which may be wrong at boot, beside CLOCK_BOOTTIME, which
// nobody can set (clock_gettime(2)).
type Clock struct {
	now          func() time.Time
	synchronised func() bool
	boot         func() time.Duration
	bootID       func() string
	state        disk.FS

	mu      sync.Mutex
	known   kept
	written kept
	trouble error // of recall, until it was reported
}

// kept is the content of clockFile: a driver that starts again must not forget what was seen of the clock.
type kept struct {
	ID string `json:"bootID"`
	// Epoch is what the wall clock showed at boot, as it was last believed.
	Epoch time.Time `json:"epoch"`
	// Doubted is CLOCK_BOOTTIME in nanoseconds when ages were last found to be doubtful, 0 where they are not.
	Doubted time.Duration `json:"doubted,omitempty"`
}

// NewClock returns a node's clock, which keeps what it has seen in the state directory.
func NewClock(now func() time.Time, synchronised func() bool, state disk.FS) *Clock {
	c := &Clock{now: now, synchronised: synchronised, boot: sinceBoot, bootID: readBootID, state: state}
	c.trouble = c.recall()
	return c
}

// Synchronised reports whether the kernel calls the clock synchronised (adjtimex(2)): NTP has seen to it since the
// boot, and since it was last set.
func Synchronised() bool {
	var t unix.Timex // no mode is set: nothing changes
	_, err := unix.Adjtimex(&t)
	return err == nil && t.Status&unix.STA_UNSYNC == 0
}

// sinceBoot is CLOCK_BOOTTIME, which goes on while the machine sleeps.
func sinceBoot() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		return 0 // only a kernel older than Linux 2.6.39 has no such clock
	}
	return time.Duration(ts.Nano())
}

// readBootID is random(4)'s boot_id, another one after each boot.
func readBootID() string {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "" // without /proc; then each start of the driver is taken for a boot
	}
	return strings.TrimSpace(string(id))
}

func (c *Clock) epoch() time.Time { return c.now().Round(0).Add(-c.boot()) }

// look reports whether the wall clock was set since the last look, by this driver or the one before it. An error says
// that this is not kept.
func (c *Clock) look() (set bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	err, c.trouble = c.trouble, nil
	epoch := c.epoch()
	if set = epoch.Sub(c.known.Epoch).Abs() > maxDrift; set {
		c.known.Epoch, c.known.Doubted = epoch, c.boot()
	} else if c.boot()-c.known.Doubted >= longestDoubt {
		c.known.Doubted = 0
	}
	if c.known == c.written {
		return set, err
	}
	c.written = c.known
	data, encoding := json.MarshalIndent(c.known, "", "  ")
	if encoding == nil {
		encoding = disk.ReplaceFile(c.state, clockFile, append(data, '\n'))
	}
	if encoding != nil {
		err = errors.Join(err, fmt.Errorf("keep %s in the state directory: %w", clockFile, encoding))
	}
	return set, err
}

// recall reads what an earlier driver has kept. A doubt that it had in an earlier boot begins anew: what was deleted
// then bears a time that nobody knows.
func (c *Clock) recall() error {
	var was kept
	id := c.bootID()
	data, err := c.state.ReadFile(clockFile)
	if err == nil {
		err = json.Unmarshal(data, &was)
	}
	if err == nil && was.ID == id && id != "" {
		c.known, c.written = was, was
		return nil
	}
	c.known = kept{ID: id, Epoch: c.epoch()}
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil || was.Doubted > 0 {
		c.known.Doubted = c.boot()
	}
	if err != nil {
		return fmt.Errorf("the state directory's %s cannot be read: %w", clockFile, err)
	}
	return nil
}

// doubt is how long ages are not to be relied on from now on: a retention, or a day, from when the clock was set; and
// from the boot, unless the kernel calls the clock synchronised before.
func (c *Clock) doubt(retention time.Duration) (left time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	since, most := c.boot(), min(retention, longestDoubt)
	if c.known.Doubted > 0 {
		left = max(0, c.known.Doubted+most-since)
	}
	if since < most && !c.synchronised() {
		left = max(left, min(most-since, syncLook))
	}
	return left
}

func (w *Worker) lookAtClock() {
	set, err := w.clock.look()
	if set {
		w.log.Warn("the clock was set; nothing is purged by age until the pool's retention, or a day, has passed")
	}
	if err != nil {
		w.log.Warn("what was seen of the clock does not outlast a restart", logging.KeyError, err)
	}
}

// noteDue remembers since when an entry should be gone.
func (w *Worker) noteDue(entry string) {
	if _, ok := w.due[entry]; !ok {
		w.due[entry] = w.clock.boot()
	}
}

// longestDue is since when the entry that is longest overdue should be gone, by the wall clock of now.
func (w *Worker) longestDue() time.Time {
	if len(w.due) == 0 {
		return time.Time{}
	}
	return w.clock.now().Add(slices.Min(slices.Collect(maps.Values(w.due))) - w.clock.boot())
}

// Due is when an entry is to be purged, if the clock was always right; zero where it never is.
func Due(spec poolspec.Trash, e store.TrashEntry, r store.Record) time.Time {
	if r.OnDelete == store.Retain {
		return time.Time{}
	}
	return e.Deleted.Add(retention(spec, r))
}

// retention is how long what is not retained is in the trash.
func retention(spec poolspec.Trash, r store.Record) time.Duration {
	keep := time.Duration(r.Keep) * time.Second
	if r.OnDelete == store.Purge {
		return keep
	}
	return max(keep, time.Duration(spec.Retention))
}
