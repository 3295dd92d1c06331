package volume

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/disk"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/ledger"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/pool"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/quota"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/store"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/bytesize"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/logging"
)

// Expand makes a volume at least as large as asked, rounded up to whole blocks and with a limit other than 0 at most
// that, and answers what it is then. It never shrinks one. The room is reserved, then the limit on the disk raised,
// then the record written: after a crash anywhere the record says what the limit is to be, and recovery makes it so.
// said may be nil.
func (m *Manager) Expand(ctx context.Context, id string, bytes, limit int64, said *Said) (Volume, error) {
	return result(ctx, m, id, func(ctx context.Context) (Volume, error) {
		return m.expand(ctx, id, bytes, limit, said)
	})
}

func (m *Manager) expand(ctx context.Context, id string, bytes, limit int64, said *Said) (v Volume, err error) {
	size, err := WholeBlocks(bytes, limit)
	if err != nil {
		return Volume{}, err
	}
	err = m.findOrAdopt(ctx, id, said, func(o *pool.Open, r store.Record) error {
		_, err := dataOf(o, r)
		err = cmp.Or(err, m.whole(r), leaving(r))
		switch {
		case err != nil:
			return err
		case limit > 0 && r.Bytes > limit:
			return fmt.Errorf("%w: volume %s has %s and never shrinks, limit_bytes is %s",
				ErrOutOfRange, id, bytesize.Format(r.Bytes), bytesize.Format(limit))
		case size > r.Bytes:
			r, err = grow(o, r, size)
		default:
			// Its record may not be on the disk: an earlier request may have failed at its very last step, or its
			// driver was killed there and recovery has entered the new size.
			if err = disk.SyncAll(o.Disk, disk.VolumesDir); err == nil {
				_, err = o.Reconcile(r)
			}
		}
		if err != nil {
			return fmt.Errorf("expand volume %s to %s: %w", id, bytesize.Format(size), err)
		}
		v = answer(o, r)
		return nil
	})
	return v, err
}

func grow(o *pool.Open, r store.Record, size int64) (store.Record, error) {
	v, err := o.Reconcile(r)
	if err == nil && !o.Shared() { // nothing holds a volume of a shared pool to a size
		err = growable(o, r, v, size)
	}
	if err != nil {
		return r, err
	}
	r.Held = v.Held
	space, err := o.Disk.Space()
	if err != nil {
		return r, fmt.Errorf("read the filesystem's free space: %w", err)
	}
	release, err := o.Ledger.Grow(r.ID, size+r.Held, space)
	if err != nil {
		return r, err
	}
	defer release()
	grown := r
	grown.Bytes = size
	if o.Shared() { // a record that was written again could be of a volume that another node deletes
		return grown, nil
	}
	if r.InodesFrom == store.Derived {
		grown.Inodes = max(r.Inodes, o.Backend.Inodes(size, space))
	}
	if err := setSize(o, grown, v); err != nil {
		return r, err
	}
	o.Log.Info("expanded a volume", logging.KeyID, r.ID, logging.KeyBytes, size)
	return grown, nil
}

// growable refuses a size that would mean nothing, and one below what is used already.
func growable(o *pool.Open, r store.Record, v ledger.Volume, size int64) error {
	switch {
	case r.QuotaID != 0 && !v.Counted:
		return fmt.Errorf("%w, so a new size would mean nothing: %s", ErrNotEnforced, notEnforced(o, r))
	case !v.Counted:
		return nil
	}
	usage, err := o.Limits.Usage([]quota.ID{r.QuotaID})
	if err != nil {
		return err
	}
	if used := usage[r.QuotaID].Bytes - r.Held; used > size { // possible where it grew while the quota was off
		return fmt.Errorf("%w: it uses %s; ask for at least as much", ErrBelowUse, bytesize.Format(used))
	}
	return nil
}

// setSize makes limit, record and promise of a volume those of a record.
func setSize(o *pool.Open, r store.Record, v ledger.Volume) error {
	if err := o.Grow(r, v.Counted); err != nil {
		return errors.Join(err, reread(o, r.ID))
	}
	v.Bytes, v.Held, v.Inodes = r.Bytes, r.Held, r.Inodes
	o.Ledger.Put(r.ID, v)
	return nil
}

// reread makes limit and promise those of the record that a failed write has left.
func reread(o *pool.Open, id string) error {
	r, err := store.Read(o.Disk, id)
	if err == nil {
		_, err = o.Reconcile(r)
	}
	return err
}
