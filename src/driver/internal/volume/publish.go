package volume

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/disk"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/pool"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/recovery"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/store"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/logging"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
)

// Publish mounts a volume at a target path; an inline volume is made first. The same request again is fine, anything
// else mounted at the target is not.
func (m *Manager) Publish(ctx context.Context, q PublishRequest) error {
	if q.Inline == nil {
		return m.findOrAdopt(ctx, q.ID, func(o *pool.Open, r store.Record) error { return m.publish(o, r, q) })
	}
	err := m.publishInline(ctx, q)
	if errors.Is(err, store.ErrNotFound) {
		is := store.Record{ID: q.ID, Bytes: q.Inline.Bytes, Claim: q.Inline.Claim}
		in, tracked, err := m.trackInline(ctx, q.Target, is)
		if err != nil {
			return err
		}
		if tracked {
			inline := *q.Inline
			inline.Pool, q.Inline = in, &inline
			return m.publishInline(ctx, q)
		}
	}
	if !errors.Is(err, store.ErrNotFound) && !errors.Is(err, ErrLost) { // Create takes back what an earlier one left
		return err
	}
	if _, err := m.Create(ctx, *q.Inline); err != nil {
		return err
	}
	return m.publishInline(ctx, q)
}

// publishInline publishes an inline volume that exists. It says itself in which pool it is, so no other pool matters.
func (m *Manager) publishInline(ctx context.Context, q PublishRequest) error {
	return m.Pools.Use(ctx, q.Inline.Pool, func(o *pool.Open) error {
		r, err := store.Read(o.Disk, q.ID)
		if err != nil {
			return err
		}
		if !r.Ephemeral {
			return fmt.Errorf("%w: %s is a persistent volume, asked for inline", ErrExists, q.ID)
		}
		r.Pool = o.Name
		return m.publish(o, r, q)
	})
}

func (m *Manager) publish(o *pool.Open, r store.Record, q PublishRequest) error {
	info, err := dataOf(o, r)
	if err != nil {
		return err
	}
	m.seeToLimit(o, r)
	mount, err := m.Mounter.Inspect(q.Target)
	switch {
	case err != nil:
		return err
	case mount.Mounted && !same(mount, info):
		return fmt.Errorf("%w: something else than volume %s is mounted at target_path %s", ErrTargetTaken, r.ID, q.Target)
	case mount.Mounted && !mount.Meets(q.Options):
		return fmt.Errorf("%w: volume %s is mounted at target_path %s with options %+v, asked for %+v",
			ErrTargetTaken, r.ID, q.Target, mount.Options, q.Options)
	case mount.Mounted:
		m.mounts.Store(mountpoint{r.ID, q.Target}, nil)
		return nil
	}
	if q.SingleWriter {
		at, err := m.mountedAt(r.ID, info, q.Target)
		if err != nil {
			return err
		}
		if at != "" {
			return fmt.Errorf("%w: %s is mounted at %s, and its access mode allows one pod", ErrSingleWriter, r.ID, at)
		}
	}
	return m.bind(o, r.ID, q)
}

// seeToLimit looks before a pod writes whether a volume is held to its size. A quota in trouble must not keep pods from
// their data: it is reported.
func (m *Manager) seeToLimit(o *pool.Open, r store.Record) {
	v, err := o.Enter(r)
	if err != nil {
		o.Log.Warn("cannot see to the limit of a volume", logging.KeyID, r.ID, logging.KeyError, err)
	}
	if r.QuotaID == 0 || v.Counted {
		return
	}
	o.Log.Warn("a pod gets a volume that is not held to its size", logging.KeyID, r.ID)
	if r.Claim.Name != "" && !r.Ephemeral {
		m.Cluster.Tell(r.Claim, "VolumeNotEnforced", notEnforced(o, r))
	}
}

func (m *Manager) bind(o *pool.Open, id string, q PublishRequest) error {
	source, err := o.Disk.Open(id)
	if err != nil {
		return fmt.Errorf("open volume %s for mounting: %w", id, err)
	}
	defer func() { _ = source.Close() }()
	if err := m.Mounter.Bind(source, q.Target, q.Options); err != nil {
		return fmt.Errorf("publish volume %s: %w", id, err)
	}
	m.mounts.Store(mountpoint{id, q.Target}, nil)
	return nil
}

// Unpublish unmounts a volume from a target path and removes the empty directory there. Only an inline volume, which
// its record says, is then deleted. Neither an absent pool nor another's trouble keeps a pod from ending.
func (m *Manager) Unpublish(ctx context.Context, id, target string) error {
	if err := nodeapi.ValidateID(id); err != nil {
		return err
	}
	if err := m.Mounter.Unmount(target); err != nil {
		return fmt.Errorf("unpublish volume %s: %w", id, err)
	}
	m.mounts.Delete(mountpoint{id, target})
	m.checked.Delete(id)
	inline, known, err := m.wasInline(ctx, id, target)
	if err != nil {
		return err
	}
	if !inline || m.Published(id) {
		return nil
	}
	err = m.find(ctx, id, func(o *pool.Open, r store.Record) error {
		if !r.Ephemeral {
			return nil
		}
		return m.delete(ctx, o, r)
	})
	switch {
	case errors.Is(err, store.ErrNotFound):
		return m.deleted(ctx, id)
	case err != nil && !known:
		m.Log.Warn("cannot see whether an unpublished volume was an inline one", logging.KeyID, id, logging.KeyError, err)
		return nil
	}
	return err
}

// targets are where a volume was mounted when that was last looked at.
func (m *Manager) targets(id string) (targets []string) {
	m.mounts.Range(func(key, _ any) bool {
		if at, ok := key.(mountpoint); ok && at.id == id {
			targets = append(targets, at.target)
		}
		return true
	})
	slices.Sort(targets)
	return targets
}

// Published reports whether a volume is mounted anywhere on this node; in doubt it is.
func (m *Manager) Published(id string) bool {
	return slices.ContainsFunc(m.targets(id), func(target string) bool {
		mount, err := m.Mounter.Inspect(target)
		return err != nil || mount.Mounted
	})
}

// mountedAt gives a target, other than one, at which a volume is mounted now; "" where there is none.
func (m *Manager) mountedAt(id string, data disk.Info, other string) (at string, err error) {
	for _, target := range m.targets(id) {
		mount, err := m.Mounter.Inspect(target)
		switch {
		case err != nil:
			return "", fmt.Errorf("see whether volume %s is mounted at %s: %w", id, target, err)
		case !mount.Mounted || !same(mount, data):
			m.mounts.Delete(mountpoint{id, target})
		case at == "" && target != other:
			at = target
		}
	}
	return at, nil
}

// unused refuses a volume that is published.
func (m *Manager) unused(id string, data disk.Info) error {
	at, err := m.mountedAt(id, data, "")
	if at != "" {
		return fmt.Errorf("%w: %s is mounted at %s; delete the pod that uses it first", ErrPublished, id, at)
	}
	return err
}

// Delete moves a volume into its pool's trash. A volume that is certainly not on this node is deleted already; one
// that is published is refused, one whose data is gone is retired.
func (m *Manager) Delete(ctx context.Context, id string) error {
	err := m.findOrAdopt(ctx, id, func(o *pool.Open, r store.Record) error { return m.delete(ctx, o, r) })
	if errors.Is(err, store.ErrNotFound) {
		return m.deleted(ctx, id)
	}
	return err
}

func (m *Manager) delete(ctx context.Context, o *pool.Open, r store.Record) error {
	info, ok, err := store.Directory(o.Disk, r.ID)
	if err != nil {
		return err
	}
	if _, known := o.Ledger.Get(r.ID); !known { // deleted relies on it
		o.Ledger.Put(r.ID, recovery.Volume(r))
	}
	if !ok {
		return m.retire(ctx, o, r)
	}
	m.missing.Delete(r.ID)
	if err := m.unused(r.ID, info); err != nil {
		return err
	}
	if err := o.Discard(r, m.Now()); err != nil {
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
		if err := store.SyncDeletes(o.Disk, id); err != nil {
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

// retire ends a volume without a directory in csi/ as recovery would; where nothing of it is left, its record goes.
func (m *Manager) retire(ctx context.Context, o *pool.Open, r store.Record) error {
	id := r.ID
	s, _, err := o.Look(id)
	if err != nil {
		return err
	}
	switch s.Verdict() {
	case store.LostData:
		if err := m.confirmMissing(o, id); err != nil {
			return err
		}
		o.Log.Warn("retiring the record of a volume whose data is gone", logging.KeyID, id)
		err = o.Retire(id)
	case store.UndoCreate, store.FinishDelete:
		err = o.Settle(ctx, id, s)
	case store.FinishCreate:
		if err := o.Settle(ctx, id, s); err != nil {
			return err
		}
		return m.delete(ctx, o, r)
	default:
		err = fmt.Errorf("%w: somebody else changed csi/%s meanwhile; try again", ErrBusy, id)
	}
	if err == nil {
		m.missing.Delete(id)
		o.Ledger.Drop(id)
	}
	return err
}
