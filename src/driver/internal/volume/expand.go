package volume

import (
	"context"
	"errors"
	"fmt"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/poolfs"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/logging"
)

// Expand makes a volume at least as large as asked, rounded up to whole blocks and with a limit other than 0 at most that, and answers
// what it is then. It never shrinks one. The room is reserved, then the limit on the disk raised, then the record written: after
// a crash anywhere the record says what the limit is to be, and recovery makes it so.
func (m *Manager) Expand(ctx context.Context, id string, bytes, limit int64) (Volume, error) {
	size, err := WholeBlocks(bytes, limit)
	if err != nil {
		return Volume{}, err
	}
	l, err := m.locate(ctx, id, adopting)
	if err != nil {
		return Volume{}, err
	}
	defer l.Close()
	_, ok, err := exists(l.disk, id)
	switch {
	case err != nil:
		return Volume{}, err
	case !ok:
		return Volume{}, lost(l.Record)
	case limit > 0 && l.Bytes > limit:
		return Volume{}, fmt.Errorf("%w: volume %s has %d bytes and never shrinks, limit_bytes is %d", ErrOutOfRange, id, l.Bytes, limit)
	case size <= l.Bytes:
		return m.expanded(l)
	}
	enrol(l)
	if l.Record, err = m.grow(l, size); err != nil {
		return Volume{}, fmt.Errorf("expand volume %s to %d bytes: %w", id, size, err)
	}
	return m.answer(l.pool, l.Record), nil
}

// expanded answers for a volume that is large enough. Nothing tells whether its record is on the disk: an earlier request may have failed
// at its very last step, or its driver was killed there and recovery has entered the new size.
func (m *Manager) expanded(l located) (Volume, error) {
	if err := syncDirs(l.disk, poolfs.VolumesDir); err != nil {
		return Volume{}, err
	}
	if r, ok := l.pool.Ledger().Get(l.ID); !ok || r.Bytes != l.Bytes {
		l.pool.Ledger().Put(l.Record)
	}
	if err := m.warnUnlessHeld(l); err != nil {
		return Volume{}, err
	}
	return m.answer(l.pool, l.Record), nil
}

// grow makes a volume larger.
func (m *Manager) grow(l located, size int64) (Record, error) {
	backend := l.pool.Backend()
	if l.ProjectID != 0 && l.Backend != backend.Name() {
		return l.Record, fmt.Errorf("%w: it was made with %s quota, pool %s has %s now; a new size would not be kept when the quota is back: switch it on again first",
			ErrNotEnforced, l.Backend, l.Pool, backend.Name())
	}
	if err := proves(l.pool, l.disk, l.Record); err != nil {
		return l.Record, err
	}
	if err := m.holdsLess(l, size); err != nil {
		return l.Record, err
	}
	space, err := l.disk.Space()
	if err != nil {
		return l.Record, fmt.Errorf("read the filesystem's free space: %w", err)
	}
	release, err := l.pool.Ledger().Grow(l.ID, size, space)
	if err != nil {
		return l.Record, err
	}
	defer release()
	grown := l.Record
	grown.Bytes = size
	if err := backend.Hold(l.disk, l.ID, grown); err != nil {
		return l.Record, errors.Join(err, backend.Hold(l.disk, l.ID, l.Record))
	}
	if err := m.Records.Replace(l.disk, grown); err != nil {
		return l.Record, errors.Join(err, m.afterDoubt(l))
	}
	l.pool.Ledger().Put(grown)
	l.pool.Held(l.ID)
	m.Log.Info("expanded a volume", logging.KeyID, l.ID, logging.KeyPool, l.Pool, logging.KeyBytes, size)
	return grown, nil
}

// holdsLess refuses a size that the volume's data has passed already, which is possible where it grew while the quota was off.
func (m *Manager) holdsLess(l located, size int64) error {
	stats, err := l.pool.Backend().Stats(l.disk, l.ID, l.Record)
	if err != nil {
		return err
	}
	if stats.Own && stats.BytesUsed > size {
		return fmt.Errorf("%w: it uses %d bytes; ask for at least as many", ErrBelowUse, stats.BytesUsed)
	}
	return nil
}

// afterDoubt makes limit and promise those of the record that a failed write has left.
func (m *Manager) afterDoubt(l located) error {
	r, err := m.Records.Read(l.disk, l.ID)
	if err != nil {
		return err
	}
	r.Pool = l.Pool
	l.pool.Ledger().Put(r)
	return l.pool.Backend().Hold(l.disk, l.ID, r)
}
