package trash

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
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
)

// Summary is what a look at the trash found.
type Summary struct {
	// Entries counts what lies in the trash; Oldest is the earliest delete, zero where there is none.
	Entries int
	Oldest  time.Time
	// More tells that removal was cut short and wants another call soon.
	More bool
}

// Purger removes entries whose time has come.
type Purger struct {
	bin   Bin
	limit *rate.Limiter
}

// NewPurger returns a purger for all pools of a node; the pace is shared.
func NewPurger(bin Bin) *Purger {
	return &Purger{bin: bin, limit: rate.NewLimiter(removalsPerSecond, removalsPerSecond/10)}
}

// errSliceOver ends a slice of a removal that goes on later.
var errSliceOver = errors.New("slice over")

// Purge removes what is due in one pool's trash, for at most one slice of time. One entry's failure does not keep the others.
func (p *Purger) Purge(ctx context.Context, disk poolfs.FS, retention time.Duration) (Summary, error) {
	entries, err := p.bin.Entries(disk)
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
		return p.limit.Wait(ctx)
	}
	for _, e := range entries {
		gone, err := p.purgeEntry(ctx, disk, e, retention, pace)
		switch {
		case errors.Is(err, errSliceOver):
			s.More = true
		case err != nil:
			errs = append(errs, err)
		}
		if !gone {
			s.count(e)
		}
	}
	return s, errors.Join(errs...)
}

func (s *Summary) count(e volume.BinEntry) {
	s.Entries++
	if _, deleted, _ := split(e.Name); s.Oldest.IsZero() || deleted.Before(s.Oldest) {
		s.Oldest = deleted
	}
}

// purgeEntry removes one entry if it is due. Data goes first and the record last, so that a removal cut short is taken up
// again. An entry without a record is an interrupted delete, which only recovery may judge.
func (p *Purger) purgeEntry(ctx context.Context, disk poolfs.FS, e volume.BinEntry, retention time.Duration,
	pace func(context.Context) error,
) (gone bool, err error) {
	if !e.HasRecord {
		return false, nil
	}
	entry := path.Join(poolfs.TrashDir, e.Name)
	due, err := p.due(disk, e, retention)
	if err != nil || !due {
		return false, err
	}
	if err := disk.RemoveTree(ctx, path.Join(entry, dataName), pace); err != nil {
		return false, fmt.Errorf("purge trash entry %s: %w", e.Name, err)
	}
	if err := syncAll(disk, entry); err != nil { // data must be gone for good before the record that says so
		return false, err
	}
	if err := disk.Remove(path.Join(entry, recordName)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, fmt.Errorf("purge the record of trash entry %s: %w", e.Name, err)
	}
	if err := disk.Remove(entry); err != nil {
		return false, fmt.Errorf("purge trash entry %s: %w; move away by hand what does not belong to it", e.Name, err)
	}
	return true, nil
}

func (p *Purger) due(disk poolfs.FS, e volume.BinEntry, retention time.Duration) (bool, error) {
	data, err := disk.ReadFile(path.Join(poolfs.TrashDir, e.Name, recordName))
	if err != nil {
		return false, fmt.Errorf("read the record of trash entry %s: %w", e.Name, err)
	}
	r, err := store.Decode(data)
	if err != nil {
		return false, fmt.Errorf("trash entry %s stays: its record cannot be used: %w", e.Name, err)
	}
	_, deleted, _ := split(e.Name)
	switch r.OnDelete {
	case volume.Purge:
		return true, nil
	case volume.Retain:
		return false, nil
	default:
		return p.bin.Now().Sub(deleted) >= retention, nil
	}
}
