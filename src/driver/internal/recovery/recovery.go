// Package recovery puts a pool in order that just became present: what lies in it of each id goes through store, which
// completes or undoes what was interrupted, into the ledger.
package recovery

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"syscall"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/ledger"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/quota"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/store"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/logging"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
)

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
	store.Pool
	*Result
	owners map[quota.ID]string // of IDs that directories count to
	pinned map[quota.ID]int64  // what copies keep charged to IDs, in bytes
}

// Run recovers an open pool that nobody else on this node works on. It can be repeated.
func Run(ctx context.Context, p store.Pool) (Result, error) {
	r := run{Pool: p, Result: &Result{Volumes: map[string]ledger.Volume{}}, owners: map[quota.ID]string{}}
	surveys, found, err := store.LookAll(p, Volume)
	if err != nil {
		return Result{}, fmt.Errorf("recover the pool: %w", err)
	}
	r.pinned = pinned(found)
	for _, id := range slices.Sorted(maps.Keys(surveys)) {
		s, v, err := r.again(id, surveys[id], found[id])
		if errors.Is(err, store.ErrConcurrent) {
			continue
		}
		if err != nil {
			return Result{}, fmt.Errorf("recover volume %s: %w", id, err)
		}
		r.settle(ctx, id, s, v)
	}
	return *r.Result, nil
}

// again looks anew at an id of a shared pool that something is to be done about: other nodes went on while all ids were
// listed.
func (r run) again(id string, s store.Survey, v ledger.Volume) (store.Survey, ledger.Volume, error) {
	if !r.Shared() || s.Verdict() == store.Healthy {
		return s, v, nil
	}
	s, record, err := r.Look(id)
	return s, Volume(record), err
}

// settle applies the verdict about one id and enters it into the result. One bad volume does not keep the others.
func (r run) settle(ctx context.Context, id string, s store.Survey, v ledger.Volume) {
	verdict, err := r.apply(ctx, id, s)
	if errors.Is(err, store.ErrConcurrent) { // what comes of it, the next look shows
		return
	}
	if err != nil {
		r.Log.Error("cannot recover a volume", logging.KeyID, id, logging.KeyError, err)
	}
	switch verdict {
	case store.Healthy, store.FinishCreate:
		r.Volumes[id] = r.check(id, id, v)
	case store.Filling:
		r.Volumes[id] = r.check(id, store.Staged(id), v)
	case store.LostData:
		r.Lost = append(r.Lost, id)
		r.Volumes[id] = v
	case store.Refused:
		r.Refused = append(r.Refused, id)
		r.Volumes[id] = r.refused(id, s)
	case store.Untracked:
		r.Untracked = append(r.Untracked, id)
	case store.UndoCreate, store.FinishDelete, store.DropStaged, store.Nothing: // settled, nobody needs to know
	}
}

// apply gives the verdict about an id as it is after it was applied, and what went wrong.
func (r run) apply(ctx context.Context, id string, s store.Survey) (verdict store.Verdict, err error) {
	verdict = s.Verdict()
	if !r.ReadOnly {
		err = r.Apply(ctx, id, s)
	}
	switch {
	case errors.Is(err, syscall.EBUSY) && verdict != store.Healthy && verdict != store.Untracked:
		r.Leftovers++
		return verdict, nil
	case err != nil && verdict == store.Healthy: // only its leftovers are in trouble
		r.Uncleared = append(r.Uncleared, id)
	case err != nil:
		verdict = store.Refused
	}
	return verdict, err
}

// check looks whether the directory that a volume has counts to its record's ID, and sets the limit to that of the
// record, which an interrupted expansion, or an admin, may have left other than that. Of several with one ID the oldest
// keeps it.
func (r run) check(id, name string, v ledger.Volume) ledger.Volume {
	if v.QuotaID == 0 || !r.Backend.Enforces() {
		return v
	}
	state, err := r.Limits.Check(name, v.QuotaID)
	v.Doubtful = err != nil
	if v.Counted = err == nil && state.ID == v.QuotaID; v.Counted {
		v.Counted = r.owns(id, v)
	}
	v.Held = max(v.Held, r.pinned[v.QuotaID])
	if v.Counted && !r.ReadOnly && state.Limit != v.Limit() {
		err = r.Limits.Set(name, v.QuotaID, v.Limit())
	}
	if err != nil {
		r.Log.Error("cannot see to the limit of a volume", logging.KeyID, id, logging.KeyError, err)
	}
	if !v.Counted {
		r.Uncounted = append(r.Uncounted, id)
	}
	return v
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

// refused is what is promised to a volume whose record cannot be used: the limit of what its directory counts to. What
// a newer driver made is promised nothing: what it uses is other usage, and the pool goes on. So it is with a snapshot.
func (r run) refused(id string, s store.Survey) ledger.Volume {
	v := ledger.Volume{Refused: true, Created: time.Now()}
	if !s.Data || s.Newer || nodeapi.IsSnapshotID(id) {
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

// Volume is what the ledger is to know of a record whose directory counts to no ID.
func Volume(r store.Record) ledger.Volume {
	v := ledger.Volume{
		Bytes: r.Bytes, Held: r.Held, Inodes: r.Inodes, QuotaID: r.QuotaID, Pins: r.Pins, Ephemeral: r.Ephemeral,
		Created: r.Created, Snapshot: r.Kind == store.OfSnapshot, Tagging: r.Tagging(),
	}
	if r.Filling() {
		v.Filling = r.Source.String()
	}
	if v.Snapshot { // its size is what a volume made of it needs
		v.Bytes, v.Held = r.Held, 0
	}
	return v
}

// pinned is what volumes and snapshots keep charged to IDs.
func pinned(volumes map[string]ledger.Volume) map[quota.ID]int64 {
	most := map[quota.ID]int64{}
	for _, v := range volumes {
		for _, p := range v.Pins {
			most[p.ID] = max(most[p.ID], p.Bytes)
		}
	}
	return most
}
