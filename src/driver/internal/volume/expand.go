package volume

import (
	"context"
	"errors"
	"fmt"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/disk"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/pool"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/quota"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/records"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/recovery"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/logging"
)

// Expand makes a volume at least as large as asked, rounded up to whole blocks and with a limit other than 0 at most
// that, and answers what it is then. It never shrinks one. The room is reserved, then the limit on the disk raised,
// then the record written: after a crash anywhere the record says what the limit is to be, and recovery makes it so.
func (m *Manager) Expand(ctx context.Context, id string, bytes, limit int64) (v Volume, err error) {
	size, err := WholeBlocks(bytes, limit)
	if err != nil {
		return Volume{}, err
	}
	err = m.findOrAdopt(ctx, id, func(o *pool.Open, r records.Record) error {
		_, ok, err := recovery.Directory(o.Disk, id)
		switch {
		case err != nil:
			return err
		case !ok:
			return lost(r)
		case limit > 0 && r.Bytes > limit:
			return fmt.Errorf("%w: volume %s has %d bytes and never shrinks, limit_bytes is %d",
				ErrOutOfRange, id, r.Bytes, limit)
		}
		if size > r.Bytes {
			r, err = m.grow(o, r, size)
		} else {
			err = m.large(o, r)
		}
		if err != nil {
			return fmt.Errorf("expand volume %s to %d bytes: %w", id, size, err)
		}
		v = answer(o, r)
		return nil
	})
	return v, err
}

// large sees to a volume that is large enough. Its record may not be on the disk: an earlier request may have failed
// at its very last step, or its driver was killed there and recovery has entered the new size.
func (m *Manager) large(o *pool.Open, r records.Record) error {
	if err := disk.SyncAll(o.Disk, disk.VolumesDir); err != nil {
		return err
	}
	_, err := o.Enter(r)
	return err
}

// grow makes a volume larger.
func (m *Manager) grow(o *pool.Open, r records.Record, size int64) (records.Record, error) {
	v, err := o.Enter(r)
	switch {
	case err != nil:
		return r, err
	case r.QuotaID != 0 && !v.Counted:
		return r, fmt.Errorf("%w, so a new size would mean nothing: %s", ErrNotEnforced, notEnforced(o, r))
	case v.Counted:
		usage, err := o.Limits.Usage([]quota.ID{r.QuotaID})
		if err != nil {
			return r, err
		}
		if used := usage[r.QuotaID].Bytes; used > size { // possible where it grew while the quota was off
			return r, fmt.Errorf("%w: it uses %d bytes; ask for at least as many", ErrBelowUse, used)
		}
	}
	space, err := o.Disk.Space()
	if err != nil {
		return r, fmt.Errorf("read the filesystem's free space: %w", err)
	}
	release, err := o.Ledger.Grow(r.ID, size, space)
	if err != nil {
		return r, err
	}
	defer release()
	grown := r
	grown.Bytes = size
	if v.Counted {
		if err := o.Limits.Set(r.ID, r.QuotaID, grown.Limit()); err != nil {
			return r, errors.Join(err, m.reread(o, r.ID))
		}
	}
	if err := records.Replace(o.Disk, grown); err != nil {
		return r, errors.Join(err, m.reread(o, r.ID))
	}
	v.Bytes = size
	o.Ledger.Put(r.ID, v)
	o.Log.Info("expanded a volume", logging.KeyID, r.ID, logging.KeyBytes, size)
	return grown, nil
}

// reread makes limit and promise those of the record that a failed write has left.
func (m *Manager) reread(o *pool.Open, id string) error {
	r, err := records.Read(o.Disk, id)
	if err != nil {
		return err
	}
	_, err = o.Enter(r)
	return err
}
