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
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/store"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/logging"
)

// slice is how long Enforce keeps a pool open at a time.
const slice = 500 * time.Millisecond

var errSliceOver = errors.New("slice over")

// Enforce makes everything in a volume count to its ID again, and sets its limit: for a directory that was copied or
// restored. The volume must not be published. It works in slices, and says after each how many files it has seen.
// inodes other than nil is the volume's inode limit from then on, 0 for none; that of a volume that counts is set at
// once, published or not. It ends with ctx: it can take hours, and be begun anew.
func (m *Manager) Enforce(ctx context.Context, id string, inodes *int64, progress func(files int64)) error {
	end, err := m.take(change, id)
	if err != nil {
		return err
	}
	defer end()
	var r store.Record
	walk := true
	err = m.find(ctx, id, func(o *pool.Open, is store.Record) (err error) {
		r = is
		if err = m.settled(r); err != nil {
			return err
		}
		if walk = inodes == nil || o.Enforcement(id) == quota.None; walk {
			r, err = m.prepareEnforce(o, r)
		}
		if err == nil && inodes != nil {
			r, err = setInodes(o, r, *inodes)
		}
		return err
	})
	if walk && err == nil {
		err = m.walkTree(ctx, r, quota.Tree{Name: id, ID: r.QuotaID}, progress,
			func(o *pool.Open) error { return reapplyLimit(o, r) })
	}
	if err != nil {
		return fmt.Errorf("enforce the size of volume %s: %w", id, err)
	}
	return nil
}

// walkTree makes a tree count to an ID in slices, and does what is last while it has the pool open.
func (m *Manager) walkTree(
	ctx context.Context, r store.Record, t quota.Tree, progress func(files int64), last func(*pool.Open) error,
) (err error) {
	var cursor disk.Cursor
	t.Cursor = &cursor
	for more := true; more && err == nil; {
		more = false
		err = m.Pools.Use(ctx, r.Pool, func(o *pool.Open) error {
			end := m.Now().Add(slice)
			err := o.Backend.Enforce(ctx, o.Disk, t, func(ctx context.Context) error {
				if m.Now().After(end) {
					return errSliceOver
				}
				return ctx.Err()
			})
			if more = errors.Is(err, errSliceOver); more {
				return ctx.Err()
			}
			if err == nil {
				err = last(o)
			}
			return err
		})
		progress(cursor.Visited())
	}
	return err
}

// prepareEnforce refuses what cannot be enforced, and gives the record a new ID where its own is another volume's.
func (m *Manager) prepareEnforce(o *pool.Open, r store.Record) (store.Record, error) {
	info, err := dataOf(o, r)
	switch {
	case err != nil:
		return r, err
	case r.QuotaID == 0:
		return r, fmt.Errorf("%w: it was adopted, or made while no quota was on, and has no ID; copy its data into a "+
			"new volume", ErrUnsupported)
	case !o.Backend.Enforces():
		return r, fmt.Errorf("%w: %s", ErrUnsupported, notEnforced(o, r))
	}
	if err := m.unused(r.ID, info); err != nil || (r.Backend == o.Backend.Name && !m.taken(r)) {
		return r, err
	}
	r.Backend = o.Backend.Name
	_, err = o.Backend.NewID(o.Disk, func(id quota.ID) error {
		r.QuotaID = id
		return store.Replace(o.Disk, r)
	})
	return r, err
}

// taken reports whether another volume of this node counts to the ID: two pools can be on one filesystem.
func (m *Manager) taken(r store.Record) (taken bool) {
	m.Pools.Each(func(in, id string, v ledger.Volume) {
		taken = taken || (v.Counted && v.QuotaID == r.QuotaID && (id != r.ID || in != r.Pool))
	})
	return taken
}

// setInodes makes n the inode limit of a volume, in the record first: recovery sets what that says.
func setInodes(o *pool.Open, r store.Record, n int64) (store.Record, error) {
	usage, err := o.Limits.Usage([]quota.ID{r.QuotaID})
	switch used := usage[r.QuotaID].Inodes; {
	case err != nil:
		return r, err
	case n < 0:
		return r, fmt.Errorf("%w: inodes: %d: want a whole number, 0 for no limit", ErrInvalid, n)
	case n > 0 && o.Backend.Inodes(r.Bytes, disk.Space{}) == 0:
		return r, fmt.Errorf("%w: %s does not limit the number of files", ErrUnsupported, o.Backend.Name)
	case n > 0 && n < used:
		return r, fmt.Errorf("%w: inodes: %d: it has %d files and directories", ErrBelowUse, n, used)
	}
	r.Inodes, r.InodesFrom = n, store.FromAdmin
	if err := store.Replace(o.Disk, r); err != nil {
		return r, err
	}
	if _, err = o.Reconcile(r); err == nil {
		o.Log.Info("an admin has set the inode limit of a volume", logging.KeyID, r.ID)
	}
	return r, err
}

// enough raises a derived inode limit to what a restored directory has, and a quarter more.
func enough(o *pool.Open, r store.Record) (store.Record, error) {
	if r.InodesFrom != store.Derived {
		return r, nil
	}
	usage, err := o.Limits.Usage([]quota.ID{r.QuotaID})
	if err != nil {
		return r, err
	}
	space, err := o.Disk.Space()
	if err != nil {
		return r, fmt.Errorf("read the filesystem's size: %w", err)
	}
	was := r
	if r.Inodes = o.Backend.Inodes(r.Bytes, space); r.Inodes > 0 {
		used := usage[r.QuotaID].Inodes
		r.Inodes = max(r.Inodes, was.Inodes, used+(used+3)/4)
	}
	if r.Inodes == was.Inodes {
		return r, nil
	}
	return r, store.Replace(o.Disk, r)
}

// reapplyLimit sets the limit of a volume whose directory counts to its ID again.
func reapplyLimit(o *pool.Open, r store.Record) error {
	r, err := enough(o, r)
	if err == nil {
		err = o.Limits.Set(r.ID, r.QuotaID, r.Limit())
	}
	if err == nil && r.Enforcing {
		r.Enforcing = false
		err = store.Replace(o.Disk, r)
	}
	if err == nil {
		_, err = o.Reconcile(r)
	}
	return err
}
