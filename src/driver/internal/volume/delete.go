package volume

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/poolfs"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/logging"
)

// Delete moves a volume into its pool's trash. A volume that is certainly not on this node is deleted already; one that is
// published is refused, one whose data is gone is retired.
func (m *Manager) Delete(ctx context.Context, id string) error {
	l, err := m.locate(ctx, id, adopting)
	if errors.Is(err, ErrNotFound) {
		return m.forget(ctx, id)
	}
	if err != nil {
		return err
	}
	defer l.Close()
	info, ok, err := exists(l.disk, id)
	if err != nil {
		return err
	}
	enrol(l) // forget relies on it
	if !ok {
		return m.retire(ctx, l)
	}
	switch published, err := m.publishedAt(id, info); {
	case err != nil:
		return err
	case len(published) > 0:
		return fmt.Errorf("%w: %s is mounted at %s; delete the pod that uses it first", ErrPublished, id, published[0])
	}
	if err := m.Bin.Discard(l.disk, l.Record, l.pool.Backend().KeepsOrder(l.disk, id, l.Record)); err != nil {
		return fmt.Errorf("delete volume %s: %w", id, err)
	}
	l.pool.Ledger().Drop(id)
	return nil
}

// forget ends a volume that is certainly gone. One that a ledger still has was deleted by a request that failed at its very last step: nothing
// tells whether that is on the disk. Recovery has synced csi/, and other ids cost nothing.
func (m *Manager) forget(ctx context.Context, id string) error {
	for _, p := range m.Pools.All() {
		if knows(p, id) == 0 {
			continue
		}
		disk, err := p.Open(ctx)
		if err == nil {
			err = errors.Join(m.syncDeleted(disk, id), disk.Close())
		}
		if err != nil {
			return fmt.Errorf("finish the delete of volume %s in pool %s: %w", id, p.Name(), err)
		}
		p.Ledger().Drop(id)
	}
	return nil
}

// syncDeleted makes a record's move into the trash durable, its new name before the old one is gone.
func (m *Manager) syncDeleted(disk poolfs.FS, id string) error {
	entries, err := m.Bin.Entries(disk, id)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if err := syncDirs(disk, path.Join(poolfs.TrashDir, e.Name)); err != nil {
			return err
		}
	}
	return syncDirs(disk, poolfs.VolumesDir)
}

// retire ends a volume that has no directory in csi/: what recovery would do with it, or, if nothing of it is
// left anywhere, its record goes.
func (m *Manager) retire(ctx context.Context, l located) error {
	s, err := m.survey(l.disk, l.ID)
	if err != nil {
		return err
	}
	switch s.verdict() {
	case lostData:
		m.Log.Warn("retiring the record of a volume whose data is gone", logging.KeyID, l.ID, logging.KeyPool, l.Pool)
		if err = m.Records.Remove(l.disk, l.ID); err == nil {
			err = m.dropLost(l)
		}
	case undoCreate:
		if err = m.settle(ctx, l.disk, l.ID, s); err == nil {
			err = dropLimit(l.pool, l.disk, l.Record)
		}
	case finishDelete:
		err = m.settle(ctx, l.disk, l.ID, s)
	case healthy, refused, foreign, dropStaged, nothing:
		err = fmt.Errorf("%w: somebody else changed csi/%s meanwhile; try again", ErrBusy, l.ID)
	}
	if err != nil {
		return err
	}
	l.pool.Ledger().Drop(l.ID)
	return nil
}

// dropLost is dropLimit for a volume without data. What lies in the trash by its id may be that data all the same.
func (m *Manager) dropLost(l located) error {
	entries, err := m.Bin.Entries(l.disk, l.ID)
	if err != nil || len(entries) > 0 {
		return err
	}
	return dropLimit(l.pool, l.disk, l.Record)
}

// Published tells whether a volume is mounted anywhere on this node.
func (m *Manager) Published(id string) bool {
	return slices.ContainsFunc(m.targets.of(id), func(target string) bool {
		mount, err := m.Mounter.Inspect(target)
		return err != nil || mount.Mounted // in doubt it is
	})
}

// publishedAt gives the targets at which a volume is mounted now, of those that were remembered.
func (m *Manager) publishedAt(id string, data poolfs.Info) ([]string, error) {
	var live []string
	for _, target := range m.targets.of(id) {
		mount, err := m.Mounter.Inspect(target)
		if err != nil {
			return nil, fmt.Errorf("see whether volume %s is still mounted at %s: %w", id, target, err)
		}
		if mount.Mounted && same(mount, data) {
			live = append(live, target)
		} else {
			m.targets.remove(id, target)
		}
	}
	return live, nil
}
