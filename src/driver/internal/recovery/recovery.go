package recovery

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"slices"
	"syscall"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/disk"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/ledger"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/quota"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/store"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/logging"
)

// Pool is an open pool that nobody else works on.
type Pool struct {
	Disk    disk.FS
	Limits  quota.Limits
	Backend quota.Backend
	// ReadOnly reports that the filesystem is: then recovery only reads.
	ReadOnly bool
	Log      *slog.Logger // with the pool's name
}

// Result is what a pool has after recovery. Ids are sorted.
type Result struct {
	Volumes   map[string]ledger.Volume // what the ledger is to have; those with Refused too
	Lost      []string                 // a record, but no data
	Refused   []string                 // a record, or what stands in the data's place, cannot be used
	Uncleared []string                 // what an interrupted operation left cannot be cleared
	Uncounted []string                 // the directory does not count to the record's ID
	Untracked []string                 // a directory without a record
	Unknown   []string                 // nobody knows what was promised: refused, with data that no limit is set on
	Leftovers int                      // limits of interrupted creates that cannot be removed yet
}

type run struct {
	Pool
	*Result
	owners map[quota.ID]string // of IDs that directories count to
}

// Run recovers a pool. It can be repeated.
func Run(ctx context.Context, p Pool) (Result, error) {
	r := run{Pool: p, Result: &Result{Volumes: map[string]ledger.Volume{}}, owners: map[quota.ID]string{}}
	surveys, found, err := r.lookAll()
	if err != nil {
		return Result{}, fmt.Errorf("recover the pool: %w", err)
	}
	for _, id := range slices.Sorted(maps.Keys(surveys)) {
		s, v, err := r.again(id, surveys[id], found[id])
		if errors.Is(err, ErrMoving) {
			continue
		}
		if err != nil {
			return Result{}, fmt.Errorf("recover volume %s: %w", id, err)
		}
		r.settle(ctx, id, s, v)
	}
	return *r.Result, nil
}

// settle applies the verdict about one id and enters it into the result. One bad volume does not keep the others.
func (r run) settle(ctx context.Context, id string, s Survey, v ledger.Volume) {
	verdict, err := r.apply(ctx, id, s)
	if errors.Is(err, ErrMoving) { // what comes of it, the next look shows
		return
	}
	if err != nil {
		r.log("cannot recover a volume", id, err)
	}
	switch verdict {
	case Healthy, FinishCreate:
		r.Volumes[id] = r.check(id, v)
	case LostData:
		r.Lost = append(r.Lost, id)
		r.Volumes[id] = v
	case Refused:
		r.Refused = append(r.Refused, id)
		r.Volumes[id] = r.refused(id, s)
	case Untracked:
		r.Untracked = append(r.Untracked, id)
	case UndoCreate, FinishDelete, DropStaged, Nothing: // settled, nobody needs to know
	}
}

// apply gives the verdict about an id as it is after it was applied, and what went wrong.
func (r run) apply(ctx context.Context, id string, s Survey) (verdict Verdict, err error) {
	verdict = s.Verdict()
	if !r.ReadOnly {
		err = Apply(ctx, r.Disk, r.Limits, id, s)
	}
	switch {
	case errors.Is(err, syscall.EBUSY) && verdict != Healthy && verdict != Untracked:
		r.Leftovers++
		return verdict, nil
	case err != nil && verdict == Healthy: // only its leftovers are in trouble
		r.Uncleared = append(r.Uncleared, id)
	case err != nil:
		verdict = Refused
	}
	return verdict, err
}

// check looks whether a volume's directory counts to its record's ID, and sets the limit to that of the record, which
// an interrupted expansion, or an admin, may have left other than that. Of several with one ID the oldest keeps it.
func (r run) check(id string, v ledger.Volume) ledger.Volume {
	if v.QuotaID == 0 || !r.Backend.Enforces() {
		return v
	}
	state, err := r.Limits.Check(id, v.QuotaID)
	v.Doubtful = err != nil
	if v.Counted = err == nil && state.ID == v.QuotaID; v.Counted {
		v.Counted = r.owns(id, v)
	}
	if v.Counted && !r.ReadOnly && state.Limit != (quota.Limit{Bytes: v.Bytes, Inodes: v.Inodes}) {
		err = r.limit(id, v)
	}
	if err != nil {
		r.log("cannot see to the limit of a volume", id, err)
	}
	if !v.Counted {
		r.Uncounted = append(r.Uncounted, id)
	}
	return v
}

func (r run) limit(id string, v ledger.Volume) error {
	record, err := store.Read(r.Disk, id)
	if err != nil {
		return err
	}
	return r.Limits.Set(id, v.QuotaID, record.Limit())
}

// owns reports whether a volume is the oldest so far that counts to its ID, and takes that from a younger one.
func (r run) owns(id string, v ledger.Volume) bool {
	if other, taken := r.owners[v.QuotaID]; taken {
		o := r.Volumes[other]
		if cmp.Or(v.Created.Compare(o.Created), cmp.Compare(id, other)) > 0 {
			return false
		}
		o.Counted = false
		r.Volumes[other] = o
		r.Uncounted = append(r.Uncounted, other)
	}
	r.owners[v.QuotaID] = id
	return true
}

// refused is what is promised to a volume whose record cannot be used: the limit of what its directory counts to.
func (r run) refused(id string, s Survey) ledger.Volume {
	v := ledger.Volume{Refused: true, Created: time.Now()}
	if !s.Data {
		return v
	}
	state, err := r.Limits.Check(id, 0)
	if _, taken := r.owners[state.ID]; taken || err != nil || state.Limit.Bytes == 0 {
		r.Unknown = append(r.Unknown, id)
		return v
	}
	v.Bytes, v.QuotaID, v.Counted = state.Limit.Bytes, state.ID, true
	r.owners[state.ID] = id
	return v
}

func (r run) log(message, id string, err error) {
	r.Log.Error(message, logging.KeyID, id, logging.KeyError, err) //nolint:sloglint // the callers' messages are constant
}

// Apply does what the verdict about an id says; it never touches data in csi/. EBUSY: a limit cannot be removed yet.
func Apply(ctx context.Context, d disk.FS, limits quota.Limits, id string, s Survey) error {
	switch s.Verdict() {
	case UndoCreate:
		// The record first: staging without a record is removed by the next recovery, a record without data would be lost
		// data. It becomes a prepared one, so that the limit it names is not forgotten.
		if err := store.Withdraw(d, id); err != nil {
			return err
		}
		return dropStaged(ctx, d, limits, id)
	case FinishCreate:
		return Moving(d, finishCreate(d, s.Node, id))
	case FinishDelete:
		return Moving(d, store.Finish(disk.RoomOf(d, s.Node), s.Unfinished, id))
	case DropStaged:
		return dropStaged(ctx, d, limits, id)
	case Healthy, Untracked:
		if s.Node != "" { // what is in another's room is for that node to drop
			return nil
		}
		return dropLeftover(ctx, d, id, s)
	default:
		return nil
	}
}

// Clean removes what interrupted creates left of records without data, and gives how many limits are busy yet.
func Clean(ctx context.Context, d disk.FS, limits quota.Limits) (left int, err error) {
	_, prepared, err := store.List(d)
	if err != nil {
		return 0, err
	}
	var errs []error
	for _, id := range prepared {
		s, _, err := Look(d, id)
		if err == nil && s.Verdict() == DropStaged {
			err = dropStaged(ctx, d, limits, id)
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
func Retire(d disk.FS, limits quota.Limits, id string) error {
	if err := store.Withdraw(d, id); err != nil {
		return err
	}
	err := dropPrepared(d, limits, id)
	if errors.Is(err, syscall.EBUSY) { // the limit is of use to what counts to it
		return store.Forget(d, id)
	}
	return err
}

// dropStaged removes what an interrupted create left: directory, limit, and last the record that names the limit.
func dropStaged(ctx context.Context, d disk.FS, limits quota.Limits, id string) error {
	if err := unprepare(d, id); err != nil {
		return err
	}
	if err := RemoveStaged(ctx, d, id); err != nil {
		return err
	}
	return dropPrepared(d, limits, id)
}

func dropPrepared(d disk.FS, limits quota.Limits, id string) error {
	r, err := store.ReadPrepared(d, id)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil && !errors.Is(err, store.ErrBroken):
		return err
	case err == nil && r.QuotaID != 0:
		if err := limits.Set("", r.QuotaID, quota.Limit{}); err != nil {
			return fmt.Errorf("remove the limit of volume %s, which was never made: %w", id, err)
		}
	}
	// A broken one was written in part, before anything on the filesystem had its ID.
	return store.Forget(d, id)
}

// RemoveStaged removes a volume's directory from staging; none there is no error. It has no user's data yet.
func RemoveStaged(ctx context.Context, d disk.FS, id string) error {
	_, there, err := Directory(d, staging(id))
	if err != nil || !there {
		return err
	}
	step := func(ctx context.Context) error { return ctx.Err() }
	if err := d.RemoveTree(ctx, staging(id), step); err != nil {
		return fmt.Errorf("remove csi/%s: %w", staging(id), err)
	}
	return disk.SyncAll(d, disk.StagingDir)
}

// dropLeftover clears staging of an id whose data is in place. A second name of that very directory is only unlinked,
// which fails, harmlessly, when there is anything in it. A prepared record of data without a record stays: after the
// repair of a filesystem it may be all that is known of that.
func dropLeftover(ctx context.Context, d disk.FS, id string, s Survey) error {
	if s.Prepared && s.Record {
		if err := store.Forget(d, id); err != nil {
			return err
		}
	}
	switch {
	case !s.Staged:
		return nil
	case s.Alias:
		if err := d.Remove(staging(id)); err != nil {
			return fmt.Errorf("csi/%s and its name in staging are one directory; check the filesystem: %w", id, err)
		}
		return disk.SyncAll(d, disk.StagingDir)
	default:
		return RemoveStaged(ctx, d, id)
	}
}
