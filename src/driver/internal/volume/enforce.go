package volume

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/disk"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/ledger"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/pool"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/quota"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/records"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/recovery"
)

// slice is how long Enforce keeps a pool open at a time.
const slice = 500 * time.Millisecond

var errSliceOver = errors.New("slice over")

// Enforce makes everything in a volume count to its ID again, and sets its limit: for a directory that was copied or
// restored. The volume must not be published. It works in slices, and says after each how many files it has seen.
func (m *Manager) Enforce(ctx context.Context, id string, progress func(files int64)) error {
	var r records.Record
	err := m.find(ctx, id, func(o *pool.Open, is records.Record) (err error) {
		r, err = m.prepareEnforce(o, is)
		return err
	})
	var cursor disk.Cursor
	for more := true; more && err == nil; {
		more = false
		err = m.Pools.Use(ctx, r.Pool, func(o *pool.Open) error {
			end := m.Now().Add(slice)
			step := func(ctx context.Context) error {
				if m.Now().After(end) {
					return errSliceOver
				}
				return ctx.Err()
			}
			err := o.Backend.Enforce(ctx, o.Disk, quota.Tree{Name: id, ID: r.QuotaID, Cursor: &cursor}, step)
			if more = errors.Is(err, errSliceOver); more {
				return ctx.Err()
			}
			if err != nil {
				return err
			}
			if err := o.Limits.Set(id, r.QuotaID, r.Limit()); err != nil {
				return err
			}
			_, err = o.Enter(r)
			return err
		})
		progress(cursor.Visited())
	}
	if err != nil {
		return fmt.Errorf("enforce the size of volume %s: %w", id, err)
	}
	return nil
}

// prepareEnforce refuses what cannot be enforced, and gives the record a new ID where its own is another volume's.
func (m *Manager) prepareEnforce(o *pool.Open, r records.Record) (records.Record, error) {
	info, ok, err := recovery.Directory(o.Disk, r.ID)
	switch {
	case err != nil:
		return r, err
	case !ok:
		return r, lost(r)
	case r.QuotaID == 0:
		return r, fmt.Errorf("%w: it was adopted, or made while no quota was on, and has no ID; copy its data into a new "+
			"volume",
			ErrUnsupported)
	case !o.Backend.Enforces():
		return r, fmt.Errorf("%w: %s", ErrUnsupported, notEnforced(o, r))
	}
	published, err := m.publishedAt(r.ID, info)
	if err == nil && len(published) > 0 {
		err = fmt.Errorf("%w: %s is mounted at %s; delete the pod that uses it first", ErrPublished, r.ID, published[0])
	}
	if err != nil {
		return r, err
	}
	if r.Backend == o.Backend.Name && !m.taken(r) {
		return r, nil
	}
	r.Backend = o.Backend.Name
	_, err = o.Backend.NewID(o.Disk, func(id quota.ID) error {
		r.QuotaID = id
		return records.Replace(o.Disk, r)
	})
	return r, err
}

// taken reports whether another volume counts to the ID of a record, in any pool of this node: two can be on one
// filesystem.
func (m *Manager) taken(r records.Record) (taken bool) {
	m.Pools.Each(func(in, id string, v ledger.Volume) {
		taken = taken || (v.Counted && v.QuotaID == r.QuotaID && (id != r.ID || in != r.Pool))
	})
	return taken
}
