package volume

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/pool"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/quota"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/recovery"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/store"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/logging"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
)

// askAgain is how soon the Kubernetes API is asked again about untracked directories when it did not answer, and how
// long a pool that hangs is waited for.
const askAgain = 30 * time.Second

// AdoptAll adopts untracked directories that PersistentVolumes name, whenever a pool comes or changes, until ctx ends.
func (m *Manager) AdoptAll(ctx context.Context) {
	changed := m.Pools.Changed()
	for {
		var again <-chan time.Time
		brief, cancel := context.WithTimeout(ctx, askAgain)
		err := m.AdoptUntracked(brief)
		cancel()
		if err != nil && ctx.Err() == nil {
			m.Log.Warn("cannot adopt untracked directories yet", logging.KeyError, err)
			again = time.After(askAgain)
		}
		select {
		case <-ctx.Done():
			return
		case <-changed:
		case <-again:
		}
	}
}

// AdoptUntracked does that once, with one list of PersistentVolumes, in all pools at once. It leaves a pool that hangs
// when ctx ends.
func (m *Manager) AdoptUntracked(ctx context.Context) error {
	untracked := m.Pools.Untracked()
	if len(untracked) == 0 {
		return nil
	}
	pvs, err := m.Cluster.List(ctx)
	if err != nil {
		return err
	}
	byHandle := make(map[string]nodeapi.PersistentVolume, len(pvs))
	for _, pv := range pvs {
		byHandle[pv.Handle] = pv
	}
	done := make(chan error, len(untracked))
	for name, ids := range untracked {
		go func() { done <- m.adoptIn(ctx, name, ids, byHandle) }()
	}
	var problems []error
	for range untracked {
		select {
		case err := <-done:
			problems = append(problems, err)
		case <-ctx.Done():
			return errors.Join(append(problems, context.Cause(ctx))...)
		}
	}
	return errors.Join(problems...)
}

// adoptIn adopts what PersistentVolumes name of the untracked directories of a pool. ErrBusy while it does already.
func (m *Manager) adoptIn(
	ctx context.Context, name string, ids []string, pvs map[string]nodeapi.PersistentVolume,
) error {
	end, err := m.take("adopt untracked directories of pool", name)
	if err != nil {
		return err
	}
	defer end()
	var problems []error
	for _, id := range ids {
		pv, named := pvs[id]
		if in, ok := m.Pools.PoolOf(pv); !named || (ok && in != name) {
			continue
		}
		if ctx.Err() != nil {
			break
		}
		problems = append(problems, m.exclusive(context.WithoutCancel(ctx), id, func(ctx context.Context) error {
			_, err := m.adopt(ctx, name, pv)
			return err
		}))
	}
	return errors.Join(problems...)
}

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
	if _, ours, err := restore(o, r.ID); ours {
		return true, err
	}
	info, _, err := store.Directory(o.Disk, r.ID)
	if err != nil {
		return false, err
	}
	if r.OnDelete == "" {
		r.OnDelete = store.Trash
	}
	r.Pool, r.Backend, r.Adopted, r.Created = o.Name, quota.Plain, true, m.Now().UTC()
	r.Mode, r.UID, r.GID = store.POSIXMode(info.Mode), info.UID, info.GID
	if err := o.Adopt(r); err != nil {
		return false, fmt.Errorf("adopt volume %s: %w", r.ID, err)
	}
	o.Ledger.Put(r.ID, recovery.Volume(r))
	o.MarkTracked(r.ID)
	o.Log.Info("adopted a volume", logging.KeyID, r.ID)
	return true, nil
}

// restore puts a record in place that was never put there, or that the repair of a damaged filesystem has left: it is
// all that is known of the directory. One without such a record is not ours.
func restore(o *pool.Open, id string) (r store.Record, ours bool, err error) {
	r, err = store.ReadPrepared(o.Disk, id)
	if err != nil || r.ID != id {
		return r, false, nil //nolint:nilerr // what cannot be read describes nothing
	}
	if err := store.Add(o.Disk, r); err != nil { // written again: what was prepared may not be durable
		return r, true, err
	}
	_, err = o.Reconcile(r)
	o.MarkTracked(id)
	o.Log.Warn("put the record of a volume in its place that had none", logging.KeyID, id)
	return r, true, err
}

// Adopt gives the record of a volume for which an admin wants a PersistentVolume made. A directory without a record
// gets one of a size in bytes. It is refused while a PersistentVolume names the id.
func (m *Manager) Adopt(ctx context.Context, id string, bytes int64) (store.Record, error) {
	return result(ctx, m, id, func(ctx context.Context) (store.Record, error) { return m.adoptByHand(ctx, id, bytes) })
}

func (m *Manager) adoptByHand(ctx context.Context, id string, bytes int64) (r store.Record, err error) {
	if err := m.requireNoPV(ctx, id, ""); err != nil {
		return r, err
	}
	has := func(o *pool.Open, is store.Record) error {
		r = is
		if is.Ephemeral {
			return fmt.Errorf("%w: %s is an inline volume, which ends with its pod", ErrUnsupported, id)
		}
		if is.Returning { // one that is being moved may be adopted: without its PersistentVolume no move can be aborted
			return m.whole(is)
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
		if bytes == 0 {
			return r, fmt.Errorf("%w: csi/%s in pool %s has no record; say how large the volume is with --size",
				ErrInvalid, id, name)
		}
		size, err := WholeBlocks(bytes, 0)
		if err != nil {
			return r, fmt.Errorf("--size: %w", err)
		}
		if _, err = m.adopt(ctx, name, nodeapi.PersistentVolume{Handle: id, Bytes: size}); err == nil {
			err = m.find(ctx, id, has)
		}
		return r, err
	}
	return r, err
}

// requireNoPV refuses an id that a PersistentVolume names, unless that is one of another node, which is given.
func (m *Manager) requireNoPV(ctx context.Context, id, node string) error {
	if err := nodeapi.ValidateID(id); err != nil {
		return err
	}
	pv, ok, err := m.Cluster.Get(ctx, id)
	all := []nodeapi.PersistentVolume{pv}
	if err == nil && ok && node != "" { // which may not be the only one
		all, err = m.Cluster.List(ctx)
	}
	if err != nil {
		return fmt.Errorf("see whether a PersistentVolume names %s: %w", id, err)
	}
	i := slices.IndexFunc(all, func(pv nodeapi.PersistentVolume) bool {
		return pv.Handle == id && (node == "" || pv.Here || len(pv.Nodes) != 1 || pv.Nodes[0] != node)
	})
	if !ok || i < 0 {
		return m.requireNoOtherDriver(ctx, id)
	}
	pv = all[i]
	return fmt.Errorf("%w: %s names %s (nodes %q); delete that PersistentVolume first, its reclaim policy being Retain",
		nodeapi.ErrNamed, pv.Name, id, pv.Nodes)
}

// requireNoOtherDriver refuses an id that a PersistentVolume of another driver names: where two drivers have one
// directory as their pool, the volume is that driver's.
func (m *Manager) requireNoOtherDriver(ctx context.Context, id string) error {
	name, err := m.Cluster.OfOtherDriver(ctx, id)
	if err != nil {
		return fmt.Errorf("see whether a PersistentVolume of another driver names %s: %w", id, err)
	}
	if name != "" {
		return fmt.Errorf("%w: %s, of another driver, names %s; two drivers must not have one directory as their "+
			"pool: take it out of one of them, or delete that PersistentVolume first, its reclaim policy being Retain",
			nodeapi.ErrNamed, name, id)
	}
	return nil
}
