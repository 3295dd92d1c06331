package volume

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path"
	"slices"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/disk"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/pool"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/purge"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/quota"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/store"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/logging"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
)

// Undelete brings a deleted volume back from its trash entry, and gives its record. It is refused while a
// PersistentVolume names the id, while anything of the id is there, where the bytes that its data does not take yet do
// not fit, and once its purge has begun.
func (m *Manager) Undelete(ctx context.Context, entry string) (store.Record, error) {
	id, _, ok := store.ParseEntryName(entry)
	if !ok {
		return store.Record{}, fmt.Errorf("%w: entry: %q: want ID.NUMBER, as `kubectl hpp get trash -o wide` shows it",
			ErrInvalid, entry)
	}
	return result(ctx, m, id, func(ctx context.Context) (r store.Record, err error) {
		if err := m.requireNoPV(ctx, id, ""); err != nil {
			return r, err
		}
		err = m.search(ctx, entry, func(o *pool.Open) (bool, error) {
			e, err := store.LookAtTrash(o.Disk, entry)
			if errors.Is(err, store.ErrNotFound) {
				other := inOtherTrash(o, entry)
				return other != nil, cmp.Or(other, err)
			}
			if err == nil {
				r, err = m.undelete(o, e)
			}
			return true, err
		})
		return r, err
	})
}

// inOtherTrash refuses an entry of a shared pool that is in the trash of another node, which alone purges it.
func inOtherTrash(o *pool.Open, entry string) error {
	others, err := disk.OtherNodes(o.Disk)
	for _, node := range others {
		_, err := disk.NodeView(o.Disk, node).Stat(path.Join(disk.TrashDir, entry))
		if err == nil {
			return fmt.Errorf("%w here: %s is in the trash of node %s of pool %s; have that node do it, with --node %s",
				store.ErrUndeletable, entry, node, o.Name, node)
		}
	}
	return err
}

func (m *Manager) undelete(o *pool.Open, e store.TrashEntry) (store.Record, error) {
	defer o.KeepTrash()()
	r, err := m.returning(o, e)
	if err != nil {
		return r, err
	}
	release, err := readmit(o, r)
	if err != nil {
		return r, err
	}
	defer release()
	back, err := o.Undelete(e)
	if back {
		returned, written := o.Returned(r)
		_, limit := o.Reconcile(returned)
		m.askTagging()
		err = errors.Join(err, written, limit)
	}
	if err == nil {
		err = store.RemoveEmptied(o.Disk, e)
	}
	if err != nil {
		return r, fmt.Errorf("undelete %s: %w", e.Name, err)
	}
	m.missing.Delete(r.ID)
	o.Log.Info("undeleted a volume", logging.KeyID, r.ID)
	return r, nil
}

// returning gives the record of a volume that can be brought back from a trash entry. What an undelete or a delete has
// left in the middle, after an error, is brought back as well.
func (m *Manager) returning(o *pool.Open, e store.TrashEntry) (r store.Record, err error) {
	if err := m.requireNoTwin(o); err != nil {
		return r, err
	}
	if in, _, known := m.Pools.Find(e.ID); known && in != o.Name {
		return r, fmt.Errorf("%w: %s is in pool %s", ErrExists, e.ID, in)
	}
	s, r, err := o.Look(e.ID)
	if err != nil {
		return r, err
	}
	verdict := s.Verdict()
	switch {
	case verdict == store.Nothing:
		r, err = store.ReadDeleted(o.Disk, e)
	case verdict == store.FinishDelete && s.Unfinished == e.Name && s.Node == "":
	case verdict == store.Healthy && e.Empty:
	default:
		return r, occupied(o, e.ID, verdict)
	}
	r.Pool = o.Name
	return r, err
}

// occupied says what is in the way of a volume that is to come back.
func occupied(o *pool.Open, id string, verdict store.Verdict) error {
	if verdict == store.Refused {
		return refusal(o, id)
	}
	return fmt.Errorf("%w: there is something of %s in pool %s already; kubectl hpp adopt %s, or move it away",
		ErrExists, id, o.Name, id)
}

// readmit reserves what a volume that comes back is promised, unless it was never let go of.
func readmit(o *pool.Open, r store.Record) (release func(), err error) {
	if _, known := o.Ledger.Get(r.ID); known {
		return func() {}, nil
	}
	space, err := o.Disk.Space()
	if err != nil {
		return nil, fmt.Errorf("read the filesystem's free space: %w", err)
	}
	used := int64(-1)
	if r.QuotaID != 0 && o.Backend.Enforces() && r.Backend == o.Backend.Name {
		usage, err := o.Limits.Usage([]quota.ID{r.QuotaID})
		if err != nil {
			return nil, err
		}
		used = usage[r.QuotaID].Bytes
	}
	return o.Ledger.Readmit(r.ID, r.Limit().Bytes, used, space)
}

// EachDeleted visits the deleted volumes that can be brought back, by pool and entry, in pools that can be used, and
// ends with the first error of visit. No pool is open meanwhile. A pool that hangs is an error once the others are
// visited.
func (m *Manager) EachDeleted(ctx context.Context, visit func(nodeapi.DeletedVolume) error) error {
	var hanging []error
	for _, name := range m.Pools.Names() {
		entries, err := pool.Within(ctx, m.Pools, name, listed, func(o *pool.Open) ([]store.TrashEntry, error) {
			return store.ListTrash(o.Disk)
		})
		slices.SortFunc(entries, func(a, b store.TrashEntry) int { return cmp.Compare(a.Name, b.Name) })
		for some := range slices.Chunk(entries, atOnce) {
			var volumes []nodeapi.DeletedVolume
			if err == nil {
				volumes, err = m.readDeleted(ctx, name, some)
			}
			for i := 0; i < len(volumes) && err == nil; i++ {
				if err := visit(volumes[i]); err != nil {
					return err
				}
			}
		}
		if !errors.Is(err, pool.ErrAbsent) && !errors.Is(err, pool.ErrNotHere) {
			hanging = append(hanging, err)
		}
	}
	return errors.Join(hanging...)
}

func (m *Manager) readDeleted(
	ctx context.Context, name string, entries []store.TrashEntry,
) ([]nodeapi.DeletedVolume, error) {
	return pool.Within(ctx, m.Pools, name, listed, func(o *pool.Open) (found []nodeapi.DeletedVolume, _ error) {
		for _, e := range entries {
			e, err := store.LookAtTrash(o.Disk, e.Name)
			var r store.Record
			if err == nil {
				r, err = store.ReadDeleted(o.Disk, e)
			}
			switch {
			case err == nil:
				found = append(found, nodeapi.DeletedVolume{
					Entry: e.Name, ID: r.ID, Pool: name, Claim: r.Claim.String(), Bytes: r.Bytes, Deleted: e.Deleted,
					Due: purge.Due(m.Pools.Spec(name).Trash, e, r),
				})
			case !errors.Is(err, store.ErrNotFound) && !errors.Is(err, store.ErrUndeletable):
				o.Log.Warn("cannot read a trash entry", logging.KeyID, e.ID, logging.KeyError, err)
			}
		}
		return found, ctx.Err()
	})
}
