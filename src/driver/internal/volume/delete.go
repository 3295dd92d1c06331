package volume

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/disk"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/pool"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/records"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/recovery"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/trash"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/logging"
)

// Delete moves a volume into its pool's trash. A volume that is certainly not on this node is deleted already; one
// that is published is refused, one whose data is gone is retired.
func (m *Manager) Delete(ctx context.Context, id string) error {
	err := m.findOrAdopt(ctx, id, func(o *pool.Open, r records.Record) error { return m.delete(ctx, o, r) })
	if errors.Is(err, records.ErrNotFound) {
		return m.deleted(ctx, id)
	}
	return err
}

func (m *Manager) delete(ctx context.Context, o *pool.Open, r records.Record) error {
	info, ok, err := recovery.Directory(o.Disk, r.ID)
	if err != nil {
		return err
	}
	if _, known := o.Ledger.Get(r.ID); !known { // deleted relies on it
		o.Ledger.Put(r.ID, recovery.Volume(r))
	}
	if !ok {
		return m.retire(ctx, o, r.ID)
	}
	switch published, err := m.publishedAt(r.ID, info); {
	case err != nil:
		return err
	case len(published) > 0:
		return fmt.Errorf("%w: %s is mounted at %s; delete the pod that uses it first", ErrPublished, r.ID, published[0])
	}
	ordered := false
	if r.QuotaID != 0 {
		state, err := o.Limits.Check(r.ID, r.QuotaID)
		ordered = err == nil && state.Ordered
	}
	if err := trash.Discard(o.Disk, r, ordered, m.Now()); err != nil {
		return fmt.Errorf("delete volume %s: %w", r.ID, err)
	}
	o.Ledger.Drop(r.ID)
	return nil
}

// deleted ends a volume that is certainly gone. One that a ledger has was deleted by a request that failed at its
// very last step: that may not be on the disk. Recovery has synced csi/, and other ids cost nothing.
func (m *Manager) deleted(ctx context.Context, id string) error {
	name, _, known := m.Pools.Find(id)
	if !known {
		return nil
	}
	err := m.Pools.Use(ctx, name, func(o *pool.Open) error {
		if err := trash.Sync(o.Disk, id); err != nil {
			return err
		}
		o.Ledger.Drop(id)
		return nil
	})
	if err != nil {
		return fmt.Errorf("finish the delete of volume %s in pool %s: %w", id, name, err)
	}
	return nil
}

// retire ends a volume that has no directory in csi/: what recovery would do with it, or, if nothing of it
// is left anywhere, its record goes.
func (m *Manager) retire(ctx context.Context, o *pool.Open, id string) error {
	s, _, err := recovery.Look(o.Disk, id)
	if err != nil {
		return err
	}
	switch s.Verdict() {
	case recovery.LostData:
		o.Log.Warn("retiring the record of a volume whose data is gone", logging.KeyID, id)
		err = recovery.Retire(o.Disk, o.Limits, id)
	case recovery.UndoCreate, recovery.FinishDelete:
		err = apply(ctx, o, id, s)
	default:
		err = fmt.Errorf("%w: somebody else changed csi/%s meanwhile; try again", ErrBusy, id)
	}
	if err == nil {
		o.Ledger.Drop(id)
	}
	return err
}

// Published reports whether a volume is mounted anywhere on this node; in doubt it is.
func (m *Manager) Published(id string) bool {
	return slices.ContainsFunc(m.targets.of(id), func(target string) bool {
		mount, err := m.Mounter.Inspect(target)
		return err != nil || mount.Mounted
	})
}

// publishedAt gives the targets at which a volume is mounted now, of those that were remembered.
func (m *Manager) publishedAt(id string, data disk.Info) ([]string, error) {
	var live []string
	for _, target := range m.targets.of(id) {
		mount, err := m.Mounter.Inspect(target)
		if err != nil {
			return nil, fmt.Errorf("see whether volume %s is mounted at %s: %w", id, target, err)
		}
		if mount.Mounted && same(mount, data) {
			live = append(live, target)
		} else {
			m.targets.remove(id, target)
		}
	}
	return live, nil
}
