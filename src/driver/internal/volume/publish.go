package volume

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/disk"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/pool"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/store"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/logging"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
)

// Publish mounts a volume at a target path; an inline volume is made first. The same request again is fine, anything
// else mounted at the target is not.
func (m *Manager) Publish(ctx context.Context, q PublishRequest) error {
	if err := m.tagProgress(q.ID); err != nil {
		return err
	}
	return m.exclusive(ctx, q.ID, func(ctx context.Context) error { return m.publish(ctx, q) })
}

func (m *Manager) publish(ctx context.Context, q PublishRequest) error {
	if q.Inline == nil {
		return m.publishPersistent(ctx, q)
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
	if !errors.Is(err, store.ErrNotFound) && !errors.Is(err, ErrLost) { // create takes back what an earlier one left
		return err
	}
	if _, err := m.create(ctx, *q.Inline); err != nil {
		return err
	}
	return m.publishInline(ctx, q)
}

// snapshotPrefix begins the ids of snapshots: a directory of that name is published only if a PersistentVolume is found
// that names it.
const snapshotPrefix = "snap-"

// publishPersistent publishes a persistent volume. A directory without a record is published without asking anybody:
// the kubelet only asks for what a PersistentVolume names that may be on this node.
func (m *Manager) publishPersistent(ctx context.Context, q PublishRequest) error {
	do := func(o *pool.Open, r store.Record) error { return m.publishIn(o, r, q) }
	if strings.HasPrefix(q.ID, snapshotPrefix) {
		return m.findOrAdopt(ctx, q.ID, nil, do)
	}
	pv := nodeapi.PersistentVolume{Handle: q.ID, Pool: q.Pool}
	missing := m.findSaid(ctx, store.OfVolume, q.ID, &Said{pv, true}, do)
	in, named := m.Pools.PoolOf(pv)
	if !errors.Is(missing, store.ErrNotFound) && (!named || !errors.Is(missing, pool.ErrAbsent)) {
		return missing
	}
	if named {
		if err := m.Pools.Usable(ctx, in); err != nil {
			return err
		}
	}
	return m.search(ctx, q.ID, func(o *pool.Open) (found bool, err error) {
		if named && o.Name != in {
			return false, nil
		}
		return m.publishUntracked(o, q)
	})
}

// publishUntracked publishes a directory without a record, if there is one. Adoption writes the record.
func (m *Manager) publishUntracked(o *pool.Open, q PublishRequest) (found bool, err error) {
	s, _, err := o.Look(q.ID)
	if err != nil || s.Verdict() != store.Untracked {
		return false, err
	}
	r, ours, err := restore(o, q.ID)
	if err != nil {
		return true, err
	}
	if ours {
		return true, m.publishIn(o, r, q)
	}
	o.NoteUntracked(q.ID)
	info, _, err := store.Directory(o.Disk, q.ID)
	if err != nil {
		return true, err
	}
	return true, m.mount(o, info, q)
}

// publishInline publishes an inline volume that exists. It says itself in which pool it is, so no other pool matters.
func (m *Manager) publishInline(ctx context.Context, q PublishRequest) error {
	return m.Pools.Use(ctx, q.Inline.Pool, func(o *pool.Open) error {
		r, err := store.ReadKind(o.Disk, q.ID, store.OfVolume)
		if err != nil {
			return err
		}
		if !r.Ephemeral {
			return fmt.Errorf("%w: %s is a persistent volume, asked for inline", ErrExists, q.ID)
		}
		r.Pool = o.Name
		return m.publishIn(o, r, q)
	})
}

func (m *Manager) publishIn(o *pool.Open, r store.Record, q PublishRequest) error {
	info, err := dataOf(o, r)
	if err == nil {
		err = cmp.Or(m.whole(r), m.stays(r, q.Target))
	}
	if err != nil {
		return err
	}
	m.seeToLimit(o, r)
	if !q.ReadOnly {
		m.startsPod(r.ID)
	}
	return m.mount(o, info, q)
}

// mount mounts the directory of a volume, unless that is mounted already.
func (m *Manager) mount(o *pool.Open, data disk.Info, q PublishRequest) error {
	mount, err := m.Mounter.Inspect(q.Target)
	switch {
	case err != nil:
		return err
	case mount.Mounted && !sameMount(mount, data):
		return fmt.Errorf("%w: something else than volume %s is mounted at target_path %s", ErrTargetTaken, q.ID,
			q.Target)
	case mount.Mounted && !mount.Meets(q.Options):
		return fmt.Errorf("%w: volume %s is mounted at target_path %s with options %+v, asked for %+v",
			ErrTargetTaken, q.ID, q.Target, mount.Options, q.Options)
	case mount.Mounted:
		m.mounts.Store(mountpoint{q.ID, q.Target}, nil)
		return nil
	}
	if q.SingleWriter {
		at, err := m.mountedAt(q.ID, data, q.Target)
		if err != nil {
			return err
		}
		if at != "" {
			return fmt.Errorf("%w: %s is mounted at %s, and its access mode allows one pod", ErrSingleWriter, q.ID, at)
		}
	}
	return m.bind(o, q)
}

// seeToLimit looks before a pod writes whether a volume is held to its size. A quota in trouble must not keep pods from
// their data: the pool's status warns of it.
func (m *Manager) seeToLimit(o *pool.Open, r store.Record) {
	v, err := o.Reconcile(r)
	if err != nil {
		o.Log.Warn("cannot see to the limit of a volume", logging.KeyID, r.ID, logging.KeyError, err)
	}
	if r.QuotaID != 0 && !v.Counted {
		o.Log.Warn("a pod gets a volume that is not held to its size", logging.KeyID, r.ID)
	}
}

func (m *Manager) bind(o *pool.Open, q PublishRequest) error {
	source, err := o.Disk.Open(q.ID)
	if err != nil {
		return fmt.Errorf("open volume %s for mounting: %w", q.ID, err)
	}
	defer func() { _ = source.Close() }()
	if err := m.Mounter.Bind(source, q.Target, q.Options); err != nil {
		return fmt.Errorf("publish volume %s: %w", q.ID, err)
	}
	m.mounts.Store(mountpoint{q.ID, q.Target}, nil)
	return nil
}

// Unpublish unmounts a volume from a target path and removes the empty directory there. Only an inline volume, which
// its record says, is then deleted. Neither an absent pool nor another's trouble keeps a pod from ending.
func (m *Manager) Unpublish(ctx context.Context, id, target string) error {
	return m.exclusive(ctx, id, func(ctx context.Context) error { return m.unpublish(ctx, id, target) })
}

func (m *Manager) unpublish(ctx context.Context, id, target string) error {
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
		return m.deleted(ctx, store.OfVolume, id)
	case err != nil && !known:
		m.Log.Warn("cannot see whether an unpublished volume was an inline one", logging.KeyID, id, logging.KeyError,
			err)
		return nil
	}
	return err
}

// inlinePrefix begins the ids that the kubelet gives to inline volumes (pkg/volume/csi/csi_mounter.go).
const inlinePrefix = "csi-"

// wasInline reports whether what was published at a target may be an inline volume, and whether that is known. After a
// restart it is not: a pool that hangs must not keep other pods from ending.
func (m *Manager) wasInline(ctx context.Context, id, target string) (inline, known bool, err error) {
	if _, v, known := m.Pools.Find(id); known {
		return v.Ephemeral, true, nil
	}
	if _, tracked, err := m.trackInline(ctx, target, store.Record{ID: id}); tracked || err != nil {
		return tracked, tracked, err
	}
	inline = strings.HasPrefix(id, inlinePrefix) &&
		slices.ContainsFunc(m.Pools.Names(), func(name string) bool { return m.Pools.Spec(name).Inline })
	return inline, false, nil
}

// trackInline writes the record of an untracked directory that is, as the kubelet has noted beside the target, an
// inline volume: another driver made it, for a pod that has outlived that.
func (m *Manager) trackInline(ctx context.Context, target string, r store.Record) (in string, ok bool, err error) {
	for name, ids := range m.Pools.Untracked() {
		if !slices.Contains(ids, r.ID) || !m.IsInline(r.ID, target) {
			continue
		}
		r.Ephemeral = true
		err = m.Pools.Use(ctx, name, func(o *pool.Open) error {
			ok, err = m.track(o, r)
			return err
		})
		return name, ok, err
	}
	return "", false, nil
}
