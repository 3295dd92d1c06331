package store

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"syscall"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/disk"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/quota"
)

// Apply does what the verdict about an id says; it never touches data in csi/. EBUSY: a limit cannot be removed yet.
func (p Pool) Apply(ctx context.Context, id string, s Survey) error {
	switch s.Verdict() {
	case UndoCreate:
		// The record first: staging without a record is removed by the next recovery, a record without data would be
		// lost data. It becomes a prepared one, so that the limit it names is not forgotten.
		if err := Withdraw(p.Disk, id); err != nil {
			return err
		}
		return p.dropStaged(ctx, id)
	case FinishCreate:
		return asConcurrent(p.Disk, finishCreate(p.Disk, s.Node, id))
	case FinishDelete:
		return asConcurrent(p.Disk, finishDelete(disk.NodeView(p.Disk, s.Node), s.Unfinished, id))
	case DropStaged:
		return p.dropStaged(ctx, id)
	case Filling:
		if s.Prepared { // a record that was to replace the one that is there
			return Forget(p.Disk, id)
		}
		return nil
	case Healthy, Untracked:
		if s.Node != "" { // what is in another node's directories is for that one to drop
			return nil
		}
		return dropLeftover(ctx, p.Disk, id, s)
	default:
		return nil
	}
}

// Settle is Apply where nobody waits for a limit to be removed: the pool tries that again.
func (p Pool) Settle(ctx context.Context, id string, s Survey) error {
	err := p.Apply(ctx, id, s)
	if errors.Is(err, syscall.EBUSY) {
		p.NoteLeftover()
		return nil
	}
	return err
}

// Clean removes what interrupted creates left of records without data, and gives how many limits are busy yet.
func (p Pool) Clean(ctx context.Context) (left int, err error) {
	_, prepared, err := List(p.Disk)
	if err != nil {
		return 0, err
	}
	var errs []error
	for _, id := range prepared {
		s, _, err := p.Look(id)
		if err == nil && s.Verdict() == DropStaged {
			err = p.dropStaged(ctx, id)
		}
		if err != nil {
			left++
		}
		if !errors.Is(err, syscall.EBUSY) {
			errs = append(errs, err)
		}
	}
	return left, errors.Join(errs...)
}

// Retire removes the record of a volume without data, and its limit unless something counts to it.
func (p Pool) Retire(id string) error {
	if err := Withdraw(p.Disk, id); err != nil {
		return err
	}
	err := p.dropPrepared(id)
	if errors.Is(err, syscall.EBUSY) { // the limit is of use to what counts to it
		return Forget(p.Disk, id)
	}
	return err
}

// dropStaged removes what an interrupted create left: directory, limit, and last the record that names the limit.
func (p Pool) dropStaged(ctx context.Context, id string) error {
	if err := unprepare(p.Disk, id); err != nil {
		return err
	}
	if err := removeStaged(ctx, p.Disk, id); err != nil {
		return err
	}
	return p.dropPrepared(id)
}

func (p Pool) dropPrepared(id string) error {
	r, err := ReadPrepared(p.Disk, id)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil && (!errors.Is(err, ErrBroken) || errors.Is(err, ErrNewer)):
		return err
	case err == nil && r.QuotaID != 0:
		if err := p.Limits.Set("", r.QuotaID, quota.Limit{}); err != nil {
			return fmt.Errorf("remove the limit of volume %s, which was never made: %w", id, err)
		}
	}
	// A broken one was written in part, before anything on the filesystem had its ID.
	return Forget(p.Disk, id)
}

// mostSteps is how many system calls staging is cleared of a directory with, while others wait for the pool.
const mostSteps = 5_000

var errLarge = errors.New("there is more than can be removed at once")

// removeStaged removes a volume's directory from staging; none there is no error. It has no user's data yet. What is
// left of a large copy whose record is gone is for the purge.
func removeStaged(ctx context.Context, d disk.FS, id string) error {
	_, there, err := Directory(d, Staged(id))
	if err != nil || !there {
		return err
	}
	steps := 0
	step := func(ctx context.Context) error {
		if steps++; steps > mostSteps {
			return errLarge
		}
		return ctx.Err()
	}
	err = d.RemoveTree(ctx, Staged(id), step)
	if errors.Is(err, errLarge) {
		return bury(d, id)
	}
	if err != nil {
		return fmt.Errorf("remove csi/%s: %w", Staged(id), err)
	}
	return disk.SyncAll(d, disk.StagingDir)
}

// dropLeftover clears staging of an id whose data is in place. A second name of that very directory is only unlinked,
// which fails, harmlessly, when there is anything in it. A prepared record of data without a record stays: after the
// repair of a filesystem it may be all that is known of that.
func dropLeftover(ctx context.Context, d disk.FS, id string, s Survey) error {
	if s.Prepared && s.Record {
		if err := Forget(d, id); err != nil {
			return err
		}
	}
	switch {
	case !s.Staged:
		return nil
	case s.Alias:
		if err := d.Remove(Staged(id)); err != nil {
			return fmt.Errorf("csi/%s and its name in staging are one directory; check the filesystem: %w", id, err)
		}
		return disk.SyncAll(d, disk.StagingDir)
	default:
		return removeStaged(ctx, d, id)
	}
}
