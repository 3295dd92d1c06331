package volume

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/poolfs"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/logging"
)

// Delete moves a volume into its pool's trash. A volume that is certainly not on this node is deleted already; one that is
// published is refused, one whose data is gone is retired.
func (m *Manager) Delete(ctx context.Context, id string) error {
	l, err := m.locate(ctx, id, adopting)
	if errors.Is(err, ErrNotFound) {
		m.forget(id)
		return nil
	}
	if err != nil {
		return err
	}
	defer l.Close()
	info, ok, err := exists(l.disk, id)
	if err != nil {
		return err
	}
	if !ok {
		return m.retire(ctx, l)
	}
	enrol(l)
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

// forget takes a volume that is certainly gone out of the ledgers: an earlier delete may have failed at its very last step.
func (m *Manager) forget(id string) {
	for _, p := range m.Pools.All() {
		p.Ledger().Drop(id)
	}
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
		err = m.Records.Remove(l.disk, l.ID)
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
