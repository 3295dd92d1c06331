package store

import (
	"context"
	"errors"
	"fmt"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/disk"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/quota"
)

// Create makes a volume that does not exist, and gives the record that it has then: everything in staging, the record,
// the move into place, each on the disk before the next, but for a limit, which recovery sets again from the record.
// Where the filesystem keeps that order by itself, the sync at the end makes all durable. After an error it is undone.
// A copy that is Filling stays in staging.
func (p Pool) Create(ctx context.Context, r Record) (Record, error) { return p.create(ctx, r, p.stage) }

func (p Pool) create(
	ctx context.Context, r Record, stage func(Record) (Record, error),
) (made Record, err error) {
	moved := false
	defer func() {
		if err != nil {
			if undone := p.undo(ctx, r.ID, moved); undone != nil {
				err = errors.Join(err, fmt.Errorf("undo: %w", undone))
			}
		}
	}()
	if r, err = stage(r); err != nil {
		return r, err
	}
	if err := p.place(r.ID); err != nil {
		return r, err
	}
	switch {
	case r.Filling(): // in staging, until it is whole
	case p.Shared(): // another node may have come to finish it
		err = p.complete(ctx, r.ID)
	default:
		moved, err = p.move(r.ID)
	}
	return r, err
}

// move moves a volume into place, durably; moved reports whether it is there.
func (p Pool) move(id string) (moved bool, err error) {
	if err := p.Disk.Rename(Staged(id), id); err != nil {
		return false, fmt.Errorf("move it into place: %w", err)
	}
	return true, syncMoved(p.Disk, ".", disk.StagingDir)
}

// complete is move in a shared pool, where another node may have come to do it since the record was there.
func (p Pool) complete(ctx context.Context, id string) error {
	s, _, err := p.Look(id)
	switch verdict := s.Verdict(); {
	case err != nil:
		return err
	case verdict == FinishCreate:
		return p.Settle(ctx, id, s)
	case verdict == Healthy:
		return disk.SyncAll(p.Disk, ".")
	}
	return fmt.Errorf("%w: %s; try again", ErrConcurrent, id)
}

func (p Pool) stage(r Record) (_ Record, err error) {
	staged, mode := Staged(r.ID), FileMode(r.Mode)
	r.Backend, r.Node = p.Backend.Name, disk.NodeOf(p.Disk)
	r.QuotaID, err = p.Limits.Make(staged, mode, r.Limit(), func(id quota.ID) error {
		r.QuotaID = id
		return Prepare(p.Disk, r) // before the directory: an fsync after it may be a commit of the filesystem
	})
	if err == nil && (r.UID != 0 || r.GID != 0) {
		if err = p.Disk.Own(staged, r.UID, r.GID, mode); err != nil {
			err = fmt.Errorf("give it to %d:%d: %w", r.UID, r.GID, err)
		}
	}
	return r, err
}

func (p Pool) place(id string) error {
	before, after := []string{Staged(id), disk.StagingDir}, []string{disk.VolumesDir}
	switch {
	case p.Backend.Ordered:
		before, after = nil, nil
	case disk.Journaled(p.Disk): // a fast commit of ext4 could have a record, and not the directory made before it
		before, after = before[1:], nil
	}
	if err := disk.SyncAll(p.Disk, before...); err != nil {
		return err
	}
	if err := Place(p.Disk, id); err != nil {
		return asConcurrent(p.Disk, err)
	}
	return disk.SyncAll(p.Disk, after...)
}

// undo takes back what Create did, in the order of recovery. It ends at its first failure: what was done before is
// then whole for the next request, or for recovery, to go on from. In a shared pool a record that is placed stays, and
// the next request finishes what it says: other nodes may have seen it.
func (p Pool) undo(ctx context.Context, id string, moved bool) error {
	if p.Shared() {
		return p.withdraw(ctx, id)
	}
	if moved {
		if err := p.Disk.Rename(id, Staged(id)); err != nil {
			return err
		}
		if err := disk.SyncAll(p.Disk, disk.StagingDir, "."); err != nil {
			return err
		}
	}
	s, _, err := p.Look(id)
	if err != nil {
		return err
	}
	s.Filling = false // nothing is in it yet
	return p.Settle(ctx, id, s)
}

func (p Pool) withdraw(ctx context.Context, id string) error {
	r, err := Read(p.Disk, id)
	switch {
	case err == nil && r.Node == disk.NodeOf(p.Disk):
		return nil
	case err != nil && !errors.Is(err, ErrNotFound):
		return err
	}
	return p.Apply(ctx, id, Survey{Staged: true})
}

// Grow makes a larger volume of one: the limit, where it counts to its ID, and then the record.
func (p Pool) Grow(grown Record, counted bool) error {
	if counted {
		if err := p.Limits.Set(grown.ID, grown.QuotaID, grown.Limit()); err != nil {
			return err
		}
	}
	return Replace(p.Disk, grown)
}

// Adopt makes the record of an untracked directory durable.
func (p Pool) Adopt(r Record) error { return asConcurrent(p.Disk, Add(p.Disk, r)) }
