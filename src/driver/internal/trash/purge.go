package trash

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"syscall"
	"time"

	"golang.org/x/time/rate"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/poolfs"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/store"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/volume"
)

const (
	// removalsPerSecond keeps a purge from starving the pods' own I/O: on the ext4 disk of docs/explanation/performance.md an unpaced removal
	// runs at some 100,000 files a second, this leaves nine tenths of that.
	removalsPerSecond = 10_000
	// slice bounds how long a purge keeps the pool open, so that the admin's umount waits no longer.
	slice = 500 * time.Millisecond
	// afterError is how soon an entry that cannot be purged is tried, and its error logged, again.
	afterError = 10 * time.Minute
	// retainedLook is how soon an entry that is to be retained is looked at again: its record may be edited by an admin.
	retainedLook = time.Hour
	// whileBusy is how soon an entry is looked at again whose data btrfs still removes.
	whileBusy = 5 * time.Second
)

// Summary is what a look at the trash found.
type Summary struct {
	// Entries counts what lies in the trash; Oldest is the earliest delete, zero where there is none.
	Entries int
	Oldest  time.Time
	// More tells that removal was cut short and wants another call soon.
	More bool
}

// Purger paces the removals of all pools of a node together.
type Purger struct {
	bin   Bin
	limit *rate.Limiter
}

// NewPurger returns the purger of a node.
func NewPurger(bin Bin) *Purger {
	return &Purger{bin: bin, limit: rate.NewLimiter(removalsPerSecond, removalsPerSecond/10)}
}

// Worker removes what is due in one pool's trash. It remembers when the other entries are due, so that a full trash costs
// no more than its listing. It is not safe for concurrent use.
type Worker struct {
	*Purger
	retention time.Duration
	purged    func(disk poolfs.FS, r volume.Record) error
	waiting   map[string]time.Time // by entry
	counted   map[string]time.Time // since when an entry's data is gone and still counted
}

// For returns the worker of a pool that keeps what is deleted for a time. It tells of each volume whose data is gone, maybe more than
// once; the entry stays, and is looked at again, for as long as the answer is an error.
func (p *Purger) For(retention time.Duration, purged func(disk poolfs.FS, r volume.Record) error) *Worker {
	return &Worker{Purger: p, retention: retention, purged: purged, waiting: map[string]time.Time{}}
}

// Numbers lists what numbers in the filesystem's quota the volumes in the trash have, each with their ids, by their records that can be read.
func (p *Purger) Numbers(disk poolfs.FS) (map[uint32][]string, error) {
	entries, err := p.bin.names(disk)
	if err != nil {
		return nil, err
	}
	numbers := map[uint32][]string{}
	for _, e := range entries {
		if r, err := readRecord(disk, e.name); err == nil && r.ProjectID != 0 {
			numbers[r.ProjectID] = append(numbers[r.ProjectID], r.ID)
		}
	}
	return numbers, nil
}

// errSliceOver ends a slice of a removal that goes on later.
var errSliceOver = errors.New("slice over")

// Purge removes what is due, for at most one slice of time. One entry's failure does not keep the others.
func (w *Worker) Purge(ctx context.Context, disk poolfs.FS) (Summary, error) {
	entries, err := w.bin.names(disk)
	if err != nil {
		return Summary{}, err
	}
	var s Summary
	var errs []error
	end := time.Now().Add(slice)
	pace := func(ctx context.Context) error {
		if time.Now().After(end) {
			return errSliceOver
		}
		return w.limit.Wait(ctx)
	}
	waiting, counted := make(map[string]time.Time, len(entries)), map[string]time.Time{}
	for _, e := range entries {
		again, err := w.purgeEntry(ctx, disk, e, pace)
		if since, ok := w.counted[e.name]; ok {
			counted[e.name] = since
		}
		switch {
		case errors.Is(err, errSliceOver):
			s.More = true
		case errors.Is(err, syscall.EBUSY) && errors.Is(err, errStillCounted):
			counted[e.name] = cmp.Or(counted[e.name], w.bin.Now())
			again, err := w.patience(counted[e.name], err)
			waiting[e.name], errs = again, append(errs, err)
		case err != nil:
			errs = append(errs, err)
			waiting[e.name] = w.bin.Now().Add(afterError)
		case again.IsZero():
			continue
		default:
			waiting[e.name] = again
		}
		s.count(e)
	}
	w.waiting, w.counted = waiting, counted
	return s, errors.Join(append(errs, EnsureSpare(disk))...)
}

// patience is for an entry whose data is gone and still counted, since a time: while that may be the filesystem's own work nothing is said.
func (w *Worker) patience(since time.Time, err error) (again time.Time, told error) {
	now := w.bin.Now()
	if now.Sub(since) < afterError {
		return now.Add(whileBusy), nil
	}
	return now.Add(afterError), fmt.Errorf("%w; something else has its number: copy what was moved out of the volume, and remove the original of that", err)
}

func (s *Summary) count(e entryName) {
	s.Entries++
	if s.Oldest.IsZero() || e.deleted.Before(s.Oldest) {
		s.Oldest = e.deleted
	}
}

// purgeEntry removes one entry if it is due, else tells when to look at it again; zero when it is gone.
func (w *Worker) purgeEntry(ctx context.Context, disk poolfs.FS, e entryName, pace func(context.Context) error) (again time.Time, err error) {
	now := w.bin.Now()
	if again := w.waiting[e.name]; now.Before(again) {
		return again, nil
	}
	if err := pace(ctx); err != nil { // looking costs as well
		return time.Time{}, err
	}
	r, due, err := w.due(disk, e)
	if err != nil || now.Before(due) {
		return due, err
	}
	if err := w.remove(ctx, disk, e, r, pace); err != nil {
		return due, fmt.Errorf("purge trash entry %s: %w", e.name, err)
	}
	return time.Time{}, nil
}

// errStillCounted is why an entry without data stays: its limit cannot go yet.
var errStillCounted = errors.New("its data is still being counted")

// remove removes an entry: data first, then its limit, and the record last, so that a removal cut short is taken up again.
func (w *Worker) remove(ctx context.Context, disk poolfs.FS, e entryName, r volume.Record, pace func(context.Context) error) error {
	entry := path.Join(poolfs.TrashDir, e.name)
	if err := disk.RemoveTree(ctx, path.Join(entry, dataName), pace); err != nil {
		return err
	}
	if err := syncAll(disk, entry); err != nil { // data must be gone for good before the record that says so
		return err
	}
	if err := w.purged(disk, r); err != nil {
		return fmt.Errorf("%w: %w", errStillCounted, err)
	}
	if err := disk.Remove(path.Join(entry, recordName)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := disk.Remove(entry); err != nil {
		return fmt.Errorf("%w; move away by hand what does not belong to it", err)
	}
	return nil
}

// due is when an entry may be purged. One without a record is a delete under way, or an interrupted one that only recovery may
// judge, and is looked at again.
func (w *Worker) due(disk poolfs.FS, e entryName) (volume.Record, time.Time, error) {
	r, err := readRecord(disk, e.name)
	if errors.Is(err, fs.ErrNotExist) {
		return r, w.bin.Now().Add(time.Second), nil
	}
	if err != nil {
		return r, time.Time{}, err
	}
	switch r.OnDelete {
	case volume.Purge:
		return r, e.deleted, nil
	case volume.Retain:
		return r, w.bin.Now().Add(retainedLook), nil
	default:
		return r, e.deleted.Add(w.retention), nil
	}
}

// readRecord reads the record of an entry; fs.ErrNotExist where it has none.
func readRecord(disk poolfs.FS, name string) (volume.Record, error) {
	data, err := disk.ReadFile(path.Join(poolfs.TrashDir, name, recordName))
	if err != nil {
		return volume.Record{}, fmt.Errorf("read the record of trash entry %s: %w", name, err)
	}
	r, err := store.Decode(data)
	if err != nil {
		return volume.Record{}, fmt.Errorf("trash entry %s stays: its record cannot be used: %w", name, err)
	}
	return r, nil
}
