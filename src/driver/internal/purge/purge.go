// Package purge removes deleted volumes from the trash when their time has come, without starving the pods' own I/O.
package purge

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"path"
	"slices"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/disk"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/quota"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/store"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/logging"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/poolspec"
)

const (
	// stepsPerSecond keeps a purge from starving the pods' own I/O: on the ext4 disk of docs/explanation/performance.md
	// an unpaced removal runs at some 100,000 files a second, this leaves nine tenths of that.
	stepsPerSecond = 10_000
	// A slice ends after so many steps or so much time, whichever is first, but not before leastSteps, with which
	// disk.Mover's RemoveTree makes progress however slow the disk is. The admin's umount waits no longer.
	sliceSteps, sliceTime, leastSteps = 5_000, 500 * time.Millisecond, 250
	// afterError is how soon an entry that cannot be purged is tried, and its error logged, again.
	afterError = 10 * time.Minute
	// retainedLook is how soon an entry that is to be retained is looked at again: its record may be edited by an
	// admin.
	retainedLook = time.Hour
)

// Purger paces the removals of all pools of a node together.
type Purger struct {
	limit *rate.Limiter
	clock *Clock
}

// NewPurger returns the purger of a node.
func NewPurger(c *Clock) *Purger {
	return &Purger{limit: rate.NewLimiter(stepsPerSecond, stepsPerSecond/10), clock: c}
}

// Summary is what a look at the trash found.
type Summary struct {
	Entries int
	Oldest  time.Time // the earliest delete, zero where there is none
	Due     time.Time // since when the entry that is longest overdue should be gone, zero where none is overdue
	More    bool      // removal was cut short and wants another slice soon
}

// Worker removes what is due in one pool's trash. It remembers when the other entries are due, so that a full trash
// costs no more than its listing. It is not safe for concurrent use, but for Deciding.
type Worker struct {
	*Purger
	spec poolspec.Trash
	log  *slog.Logger
	// volumes are those of the pool that are there.
	volumes Volumes
	// All by entry and CLOCK_BOOTTIME: when to look at it; since when its limit is busy; when one from the future was
	// seen; when its removal failed; since when it should be gone.
	waiting, busy, seen, failed, due map[string]time.Duration

	// Deciding is held while it is decided about an entry, and that is done by which anybody can see it: that its purge
	// begins, or that it is brought back.
	Deciding sync.Mutex

	last    string // the entry that the last slice ended with
	evicted string // the entry that makes room for new volumes
}

// Volumes are those of a pool that are there. The limit of an ID that they use stays, until the last is purged.
type Volumes interface {
	// Uses reports whether one counts to an ID, or a copy keeps something charged to it.
	Uses(quota.ID) bool
	// Owner is the one that counts to an ID, "" where none does. One whose delete has yet to end counts.
	Owner(quota.ID) (volume string)
}

// For returns the worker of a pool with these volumes.
func (p *Purger) For(spec poolspec.Pool, log *slog.Logger, volumes Volumes) *Worker {
	w := &Worker{Purger: p, spec: spec.Trash, log: log.With(logging.KeyPool, spec.Name), volumes: volumes}
	w.forget(nil)
	return w
}

var errSliceOver = errors.New("slice over")

// slice counts the steps of one slice.
type slice struct {
	limit *rate.Limiter
	steps int
	end   time.Time
}

func (s *slice) step(ctx context.Context) error {
	if s.steps++; s.steps > sliceSteps || (s.steps > leastSteps && time.Now().After(s.end)) {
		return errSliceOver
	}
	return s.limit.Wait(ctx)
}

// Purge removes what is due, for one slice, and begins with the entry after the one that the last slice ended with. One
// entry's failure does not keep the others. Where full is set and the pool says purgeWhenFull, the oldest entry is due
// that may go.
func (w *Worker) Purge(ctx context.Context, d disk.FS, limits quota.Limits, full bool) (Summary, error) {
	entries, err := store.ListTrash(d)
	if err != nil {
		return Summary{}, err
	}
	slices.SortFunc(entries, func(a, b store.TrashEntry) int { return cmp.Compare(a.Name, b.Name) })
	s := Summary{Entries: len(entries)}
	if len(entries) > 0 {
		s.Oldest = slices.MinFunc(entries, byAge).Deleted
	}
	w.forget(entries)
	s.Due = w.longestDue()
	w.lookAtClock()
	first, _ := slices.BinarySearchFunc(entries, w.last+"\x00", func(e store.TrashEntry, name string) int {
		return cmp.Compare(e.Name, name)
	})
	if full && w.spec.PurgeWhenFull {
		w.evicted = w.evict(d, entries)
	}
	now := slice{limit: w.limit, end: time.Now().Add(sliceTime)}
	var errs []error
	for _, e := range slices.Concat(entries[first:], entries[:first]) {
		w.last = e.Name
		gone, err := w.purge(ctx, job{disk: d, limits: limits, entry: e, early: e.Name == w.evicted, step: now.step})
		switch {
		case errors.Is(err, errSliceOver):
			s.More = true
			return s, errors.Join(append(errs, store.EnsureSpare(d))...)
		case ctx.Err() != nil: // the driver stops
			return s, errors.Join(append(errs, err)...)
		case err != nil:
			errs = append(errs, err)
			w.noteDue(e.Name)
			w.failed[e.Name] = w.clock.boot()
			w.waiting[e.Name] = w.clock.boot() + afterError
			if w.evicted == e.Name { // another one makes room
				w.evicted = ""
			}
		case gone:
			s.Entries--
		}
	}
	return s, errors.Join(append(errs, store.EnsureSpare(d))...)
}

func byAge(a, b store.TrashEntry) int { return a.Deleted.Compare(b.Deleted) }

// evict gives the oldest entry whose data may go, "" where there is none.
func (w *Worker) evict(d disk.FS, entries []store.TrashEntry) string {
	for _, e := range slices.SortedFunc(slices.Values(entries), byAge) {
		_, busy := w.busy[e.Name] // then its data is gone
		_, failed := w.failed[e.Name]
		if busy || failed {
			continue
		}
		if r, err := store.ReadTrashed(d, e.Name); err == nil && r.OnDelete != store.Retain && r.Keep == 0 {
			return e.Name
		}
	}
	return ""
}

// forget keeps only what is remembered of entries that are there.
func (w *Worker) forget(entries []store.TrashEntry) {
	for _, m := range []*map[string]time.Duration{&w.waiting, &w.busy, &w.seen, &w.failed, &w.due} {
		kept := map[string]time.Duration{}
		for _, e := range entries {
			if at, ok := (*m)[e.Name]; ok {
				kept[e.Name] = at
			}
		}
		*m = kept
	}
}

// job is one look at an entry. early reports that it is due whatever its age.
type job struct {
	disk   disk.FS
	limits quota.Limits
	entry  store.TrashEntry
	early  bool
	step   func(context.Context) error
}

func (w *Worker) purge(ctx context.Context, j job) (gone bool, err error) {
	boot := w.clock.boot()
	if boot < w.waiting[j.entry.Name] && !j.early {
		return false, nil
	}
	if err := j.step(ctx); err != nil { // looking costs as well
		return false, err
	}
	r, wait, err := w.begin(j)
	if err != nil {
		return false, err
	}
	if wait > 0 {
		w.waiting[j.entry.Name] = boot + wait
		return false, nil
	}
	w.noteDue(j.entry.Name)
	if gone, err = w.remove(ctx, j, r); err != nil {
		return false, fmt.Errorf("purge trash entry %s: %w", j.entry.Name, err)
	}
	return gone, nil
}

// begin decides whether an entry is to be kept from now on, and for how long; else its purge begins.
func (w *Worker) begin(j job) (r store.Record, wait time.Duration, err error) {
	w.Deciding.Lock()
	defer w.Deciding.Unlock()
	r, err = store.ReadTrashed(j.disk, j.entry.Name)
	if errors.Is(err, fs.ErrNotExist) {
		e, err := store.LookAtTrash(j.disk, j.entry.Name)
		if err == nil && (e.Empty || e.Unfinished || e.Recorded) {
			return r, time.Second, nil // a delete under way, or an interrupted one that only recovery may judge
		}
		return r, 0, err // what recovery has buried, or an older driver has removed the record
	}
	if err == nil {
		wait = w.wait(j, r)
	}
	if err == nil && wait <= 0 {
		err = store.BeginPurge(j.disk, j.entry.Name)
	}
	return r, wait, err
}

// wait is how long an entry is to be kept from now on; it is looked at again in between.
func (w *Worker) wait(j job, r store.Record) time.Duration {
	switch {
	case r.OnDelete == store.Retain:
		return retainedLook
	case r.Keep == 0 && (r.OnDelete == store.Purge || j.early):
		return 0
	}
	retention := retention(w.spec, r)
	age := w.clock.now().Sub(j.entry.Deleted)
	if age < 0 {
		if _, ok := w.seen[j.entry.Name]; !ok {
			w.seen[j.entry.Name] = w.clock.boot()
		}
		age = w.clock.boot() - w.seen[j.entry.Name]
	}
	return max(retention-age, w.clock.doubt(retention))
}

// remove removes data first, then the limit, and the record last: a removal cut short is taken up again.
func (w *Worker) remove(ctx context.Context, j job, r store.Record) (gone bool, err error) {
	entry := path.Join(disk.TrashDir, j.entry.Name)
	for _, name := range []string{store.DataName, store.PurgingName} { // without a record, the latter says: go on
		if err := j.disk.RemoveTree(ctx, path.Join(entry, name), j.step); err != nil {
			return false, err
		}
	}
	if err := disk.SyncAll(j.disk, entry); err != nil { // data must be gone for good before the record that says so
		return false, err
	}
	if done, err := w.removeLimits(j, r); err != nil || !done {
		return false, err
	}
	if err := j.disk.Remove(path.Join(entry, store.RecordName)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, err
	}
	if err := store.RemoveEmpty(j.disk, j.entry.Name); err != nil {
		return false, fmt.Errorf("%w; move away by hand what does not belong to it", err)
	}
	return true, nil
}
