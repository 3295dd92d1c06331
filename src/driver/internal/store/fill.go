package store

import (
	"errors"
	"fmt"
	"os"
	"path"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/disk"
)

// NoteProgress makes durable what was written into a copy, and then a record that says how far it came.
func (p Pool) NoteProgress(r Record, dir *os.File) error {
	if err := syncFilesystem(dir); err != nil {
		return err
	}
	return Replace(p.Disk, r)
}

// Complete makes a copy one that is whole, of a limit that may be another one from now on, and moves it into place. Its
// data is durable before its record says so, and that before the move, which recovery makes if need be.
func (p Pool) Complete(r Record, dir *os.File) (Record, error) {
	source := *r.Source
	source.Complete, source.From = true, nil
	r.Source = &source
	if err := p.NoteProgress(r, dir); err != nil {
		return r, err
	}
	if r.QuotaID != 0 {
		if err := p.Limits.Set(Staged(r.ID), r.QuotaID, r.Limit()); err != nil {
			return r, err
		}
	}
	_, err := p.move(r.ID)
	return r, err
}

// ErrUnsynced is for a copy of which something could not be written to the disk. Nobody says what: it is no copy.
var ErrUnsynced = errors.New("what was copied could not be written to the disk")

func syncFilesystem(dir *os.File) error {
	if dir == nil { // a disk in memory
		return nil
	}
	if err := unix.Syncfs(int(dir.Fd())); err != nil {
		return fmt.Errorf("%w: %w", ErrUnsynced, err)
	}
	return nil
}

// Abandon moves a copy that is not whole into the trash, where it is purged whatever its class says. Errors as of
// Discard.
func (p Pool) Abandon(r Record, now time.Time) error {
	if r.OnDelete != Purge {
		r.OnDelete = Purge
		if err := Replace(p.Disk, r); err != nil {
			return err
		}
	}
	return discard(p.Disk, r, Staged(r.ID), false, now)
}

// bury moves a directory that has no record from staging into the trash as one whose purge has begun.
func bury(d disk.FS, id string) error {
	entry, err := newEntry(d, id, time.Now())
	if err != nil {
		return err
	}
	if err := moveData(d, Staged(id), path.Join(entry, PurgingName)); err != nil {
		return errors.Join(fmt.Errorf("move csi/%s into the trash: %w", Staged(id), err), d.Remove(entry))
	}
	return disk.SyncAll(d, disk.TrashDir, entry, disk.StagingDir)
}
