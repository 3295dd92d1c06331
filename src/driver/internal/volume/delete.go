package volume

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/disk"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/pool"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/recovery"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/store"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/logging"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
)

// Delete moves a volume into its pool's trash. A volume that is certainly not on this node is deleted already; one
// that is published is refused, one whose data is gone is retired. said may be nil.
func (m *Manager) Delete(ctx context.Context, id string, said *Said) error {
	if err := m.stopFill(ctx, store.OfVolume, id); err != nil {
		return err
	}
	return m.exclusive(ctx, id, func(ctx context.Context) error {
		err := m.findOrAdopt(ctx, id, said, func(o *pool.Open, r store.Record) error { return m.delete(ctx, o, r) })
		missing := errors.Is(err, store.ErrNotFound)
		if err == nil || missing {
			_, err = m.deleteCopies(ctx, id, "", func(*pool.Open) error { return nil })
		}
		if err == nil && missing {
			err = m.deleted(ctx, store.OfVolume, id)
		}
		return err
	})
}

// Discard moves a volume into the trash that no PersistentVolume names, but for one that names the node given; or what
// other pools have of a volume than the one that its PersistentVolume names. With keep it stays there for that long at
// least, whatever its class and its pool say.
func (m *Manager) Discard(ctx context.Context, id, node string, keep time.Duration) error {
	if keep < 0 || keep > longestKeep {
		return fmt.Errorf("%w: keep_seconds: want at most %s, in seconds", ErrInvalid, longestKeep)
	}
	if err := m.stopFill(ctx, store.OfVolume, id); err != nil {
		return err
	}
	return m.exclusive(ctx, id, func(ctx context.Context) error { return m.discard(ctx, id, node, keep) })
}

// leftBehind is how long what a move has left is kept at least.
const leftBehind = 24 * time.Hour

// longestKeep is how long a volume may be kept in the trash against what its class and its pool say.
const longestKeep = 30 * 24 * time.Hour

func (m *Manager) discard(ctx context.Context, id, node string, keep time.Duration) error {
	err := m.requireNoPV(ctx, id, node)
	if errors.Is(err, nodeapi.ErrNamed) {
		if count, err := m.discardCopies(ctx, id); count > 0 || err != nil {
			return err
		}
	}
	if err != nil {
		return err
	}
	err = m.find(ctx, id, func(o *pool.Open, r store.Record) error {
		keep, err := m.mayDiscard(o, r, node, keep)
		if err == nil && keep > 0 && !r.Filling() {
			r, err = o.KeepInTrash(r, keep)
		}
		if err != nil {
			return err
		}
		return m.delete(ctx, o, r)
	})
	if _, v, known := m.Pools.Find(id); known && !v.Snapshot && errors.Is(err, store.ErrNotFound) {
		return m.deleted(ctx, store.OfVolume, id)
	}
	return err
}

// mayDiscard refuses what somebody else may use or wait for, and says how long it is kept. What is kept for a while is
// what a move leaves behind, and so is what left for the node that the only PersistentVolume may be of: the move may
// have lost sight of it.
func (m *Manager) mayDiscard(o *pool.Open, r store.Record, node string, keep time.Duration) (time.Duration, error) {
	if o.Shared() && node != "" {
		return 0, fmt.Errorf("%w: pool %s is on all nodes: the volume is the one that the PersistentVolume of node %s "+
			"names", nodeapi.ErrNamed, o.Name, node)
	}
	err := cmp.Or(m.requireNoTwin(o), m.settled(r))
	if errors.Is(err, ErrLeaving) && (keep > 0 || r.Leaving.To == node) {
		return max(keep, leftBehind), nil
	}
	return keep, err
}

// requireNoTwin refuses a pool that another node may have on the same filesystem.
func (m *Manager) requireNoTwin(o *pool.Open) error {
	if twins := m.Pools.Twins(o.Name); len(twins) > 0 {
		return fmt.Errorf("%w: node %s has pool %s on the same filesystem: the volume may be the one that is used "+
			"there; give each node a filesystem of its own, or the pool the scope shared",
			nodeapi.ErrNamed, strings.Join(twins, ", "), o.Name)
	}
	return nil
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
	if err := cmp.Or(m.unread(r), m.unused(r.ID, info)); err != nil {
		return err
	}
	if err := o.Discard(r, m.Now()); err != nil {
		return fmt.Errorf("delete volume %s: %w", r.ID, err)
	}
	o.Ledger.Drop(r.ID)
	return nil
}

// deleted ends what is certainly gone. One that a ledger has was deleted by a request that failed at its
// very last step: that may not be on the disk. Recovery has synced csi/, and other ids cost nothing.
func (m *Manager) deleted(ctx context.Context, kind store.Kind, id string) error {
	name, v, known := m.Pools.Find(id)
	if !known || v.Snapshot != (kind == store.OfSnapshot) {
		if kind == store.OfVolume {
			m.Pools.DropMissing(id)
		}
		return nil
	}
	err := m.Pools.Use(ctx, name, func(o *pool.Open) error {
		s, _, err := o.Look(id)
		if err == nil && s.Verdict() != store.Nothing { // the pool came back while the others were asked
			err = fmt.Errorf("%w: it is there; ask again", ErrBusy)
		}
		if err == nil {
			err = store.SyncDeletes(o.Disk, id)
		}
		if err != nil {
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
	case store.Filling:
		m.begun.Delete(id)
		err = o.Abandon(r, m.Now())
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

// missingFor is how long the directory of a volume of a shared pool must be missing before its record goes: NFS clients
// remember for up to a minute that a name is not there (acdirmax in nfs(5)), and another node may have just made it.
const missingFor = time.Minute

// missedFor is how long a look counts that did not find a directory: csi-provisioner asks again within five minutes.
const missedFor = 15 * time.Minute

// confirmMissing is nil once a directory that could not be found is surely not there. In a shared pool it takes two
// looks more than a minute apart, and no more than missedFor; each lists csi/ too, which is answered from elsewhere
// than a look for a name.
func (m *Manager) confirmMissing(o *pool.Open, id string) error {
	if !o.Shared() {
		return nil
	}
	entries, err := o.Disk.ReadDir(".")
	if err != nil {
		return fmt.Errorf("look for csi/%s: %w", id, err)
	}
	if slices.ContainsFunc(entries, func(e disk.Entry) bool { return e.Name == id }) {
		m.missing.Delete(id)
		return fmt.Errorf("%w: csi/%s is listed, and a look for it says that it is not there; if that stays so, mount "+
			"the filesystem with lookupcache=positive", ErrUncertain, id)
	}
	first, _ := m.missing.LoadOrStore(id, m.Now())
	since, _ := first.(time.Time)
	ago := m.Now().Sub(since)
	if ago > missedFor { // somebody may have seen it since
		m.missing.Store(id, m.Now())
	}
	if ago <= missingFor || ago > missedFor {
		return fmt.Errorf("%w: csi/%s is not there; its record goes if it is still missing after %s",
			ErrUncertain, id, missingFor)
	}
	return nil
}
