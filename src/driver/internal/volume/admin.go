package volume

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/disk"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/ledger"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/pool"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/quota"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/recovery"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/store"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/logging"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
)

// adoptNamed adopts the directory that a PersistentVolume names, if it has none of ours yet. A pool that the
// PersistentVolume names and that cannot be used here is an error: the volume may be there.
func (m *Manager) adoptNamed(ctx context.Context, pv nodeapi.PersistentVolume) (adopted bool, err error) {
	names := m.Pools.Names()
	if name, ok := m.Pools.PoolOf(pv); ok {
		if err := m.Pools.Usable(ctx, name); err != nil {
			return false, err
		}
		names = []string{name}
	}
	var troubles []error
	for _, name := range names {
		adopted, err := m.adopt(ctx, name, pv)
		switch {
		case adopted:
			return true, nil
		case errors.Is(err, pool.ErrAbsent) && m.Pools.Usable(ctx, name) == nil: // it was forgotten
		case err != nil && !errors.Is(err, pool.ErrNotHere) && !errors.Is(err, pool.ErrUnknown):
			troubles = append(troubles, err)
		}
	}
	return false, errors.Join(troubles...)
}

// adopt writes the record of a directory that another driver made and a PersistentVolume names. The directory stays
// as it is. One that a PersistentVolume of another node names is not this node's to adopt, unless all nodes have it.
func (m *Manager) adopt(ctx context.Context, name string, pv nodeapi.PersistentVolume) (adopted bool, err error) {
	if !pv.Here && len(pv.Nodes) > 0 && !m.Pools.Spec(name).Shared() {
		return false, nil
	}
	r := store.Record{ID: pv.Handle, Bytes: pv.Bytes, OnDelete: store.Disposal(pv.OnDelete), Claim: pv.Claim}
	err = m.Pools.Use(ctx, name, func(o *pool.Open) error {
		adopted, err = m.track(o, r)
		return err
	})
	return adopted, err
}

// track completes and writes the record of an untracked directory; ok is false where there is no such directory.
func (m *Manager) track(o *pool.Open, r store.Record) (ok bool, err error) {
	s, _, err := o.Look(r.ID)
	if err != nil || s.Verdict() != store.Untracked {
		return false, err
	}
	if prepared, err := store.ReadPrepared(o.Disk, r.ID); err == nil && prepared.ID == r.ID {
		return true, restore(o, prepared)
	}
	info, _, err := store.Directory(o.Disk, r.ID)
	if err != nil {
		return false, err
	}
	if r.OnDelete == "" {
		r.OnDelete = store.Trash
	}
	r.Version, r.Pool, r.Backend, r.Adopted, r.Created = store.Version, o.Name, quota.Plain, true, m.Now().UTC()
	r.Mode, r.UID, r.GID = store.POSIXMode(info.Mode), info.UID, info.GID
	if err := o.Adopt(r); err != nil {
		return false, fmt.Errorf("adopt volume %s: %w", r.ID, err)
	}
	o.Ledger.Put(r.ID, recovery.Volume(r))
	o.Tracked(r.ID)
	o.Log.Info("adopted a volume", logging.KeyID, r.ID)
	return true, nil
}

// restore puts a record in place that was never put there, or that the repair of a damaged filesystem has left: it is
// all that is known of the directory.
func restore(o *pool.Open, r store.Record) error {
	if err := store.Add(o.Disk, r); err != nil { // written again: what was prepared may not be durable
		return err
	}
	_, err := o.Enter(r)
	o.Tracked(r.ID)
	o.Log.Warn("put the record of a volume in its place that had none", logging.KeyID, r.ID)
	return err
}

// Adopt gives the record of a volume for which an admin wants a PersistentVolume made. A directory without a record
// gets one of a size in bytes. It is refused while a PersistentVolume names the id.
func (m *Manager) Adopt(ctx context.Context, id string, bytes int64) (r store.Record, err error) {
	if err := m.unnamed(ctx, id, ""); err != nil {
		return r, err
	}
	has := func(o *pool.Open, is store.Record) error {
		r = is
		if is.Ephemeral {
			return fmt.Errorf("%w: %s is an inline volume, which ends with its pod", ErrUnsupported, id)
		}
		_, err := dataOf(o, is)
		return err
	}
	if err = m.find(ctx, id, has); !errors.Is(err, store.ErrNotFound) {
		return r, err
	}
	for name, ids := range m.Pools.Untracked() {
		if !slices.Contains(ids, id) {
			continue
		}
		size, err := WholeBlocks(bytes, 0)
		if err != nil {
			return r, fmt.Errorf("%w: csi/%s in pool %s has no record; say how large the volume is with --size",
				ErrInvalid, id, name)
		}
		if _, err = m.adopt(ctx, name, nodeapi.PersistentVolume{Handle: id, Bytes: size}); err == nil {
			err = m.find(ctx, id, has)
		}
		return r, err
	}
	return r, err
}

// Discard moves a volume into the trash that no PersistentVolume names, but for one that names the node given.
func (m *Manager) Discard(ctx context.Context, id, node string) error {
	if err := m.unnamed(ctx, id, node); err != nil {
		return err
	}
	err := m.find(ctx, id, func(o *pool.Open, r store.Record) error {
		if o.Shared() && node != "" {
			return fmt.Errorf("%w: pool %s is on all nodes: the volume is the one that the PersistentVolume of node %s names",
				nodeapi.ErrNamed, o.Name, node)
		}
		if twins := m.Pools.Twins(o.Name); len(twins) > 0 {
			return fmt.Errorf("%w: node %s has pool %s on the same filesystem: the volume may be the one that is used "+
				"there; give each node a filesystem of its own, or the pool the scope shared",
				nodeapi.ErrNamed, strings.Join(twins, ", "), o.Name)
		}
		return m.delete(ctx, o, r)
	})
	if _, _, known := m.Pools.Find(id); known && errors.Is(err, store.ErrNotFound) {
		return m.deleted(ctx, id)
	}
	return err
}

// unnamed refuses an id that a PersistentVolume names, unless that is one of another node, which is given.
func (m *Manager) unnamed(ctx context.Context, id, node string) error {
	if err := nodeapi.ValidateID(id); err != nil {
		return err
	}
	pv, ok, err := m.Cluster.Get(ctx, id)
	if err != nil {
		return fmt.Errorf("see whether a PersistentVolume names %s: %w", id, err)
	}
	if !ok || (node != "" && !pv.Here && len(pv.Nodes) == 1 && pv.Nodes[0] == node) {
		return nil
	}
	return fmt.Errorf("%w: %s names %s (nodes %q); delete that PersistentVolume first, its reclaim policy being Retain",
		nodeapi.ErrNamed, pv.Name, id, pv.Nodes)
}

// slice is how long Enforce keeps a pool open at a time.
const slice = 500 * time.Millisecond

var errSliceOver = errors.New("slice over")

// Enforce makes everything in a volume count to its ID again, and sets its limit: for a directory that was copied or
// restored. The volume must not be published. It works in slices, and says after each how many files it has seen.
// inodes other than nil is the volume's inode limit from then on, 0 for none; that of a volume that counts is set at
// once, published or not.
func (m *Manager) Enforce(ctx context.Context, id string, inodes *int64, progress func(files int64)) error {
	var r store.Record
	walk := true
	err := m.find(ctx, id, func(o *pool.Open, is store.Record) (err error) {
		r = is
		if walk = inodes == nil || o.Enforcement(id) == quota.None; walk {
			r, err = m.prepareEnforce(o, r)
		}
		if err == nil && inodes != nil {
			r, err = setInodes(o, r, *inodes)
		}
		return err
	})
	var cursor disk.Cursor
	for more := walk; more && err == nil; {
		more = false
		err = m.Pools.Use(ctx, r.Pool, func(o *pool.Open) error {
			end := m.Now().Add(slice)
			err := o.Backend.Enforce(ctx, o.Disk, quota.Tree{Name: id, ID: r.QuotaID, Cursor: &cursor},
				func(ctx context.Context) error {
					if m.Now().After(end) {
						return errSliceOver
					}
					return ctx.Err()
				})
			if more = errors.Is(err, errSliceOver); more {
				return ctx.Err()
			}
			if err == nil {
				err = hold(o, r)
			}
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
func (m *Manager) prepareEnforce(o *pool.Open, r store.Record) (store.Record, error) {
	info, err := dataOf(o, r)
	switch {
	case err != nil:
		return r, err
	case r.QuotaID == 0:
		return r, fmt.Errorf("%w: it was adopted, or made while no quota was on, and has no ID; copy its data into a new "+
			"volume", ErrUnsupported)
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
