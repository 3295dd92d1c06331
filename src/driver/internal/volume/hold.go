package volume

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/ledger"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/pool"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/quota"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/store"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/logging"
)

// hold gives a volume room for so many bytes that its copies keep, if it has less.
func hold(o *pool.Open, r store.Record, bytes int64) (store.Record, error) {
	if bytes <= r.Held {
		return r, nil
	}
	space, err := o.Disk.Space()
	if err != nil {
		return r, fmt.Errorf("read the filesystem's free space: %w", err)
	}
	release, err := o.Ledger.Grow(r.ID, r.Bytes+bytes, space)
	if err != nil {
		return r, fmt.Errorf("keep what volume %s has while it is overwritten: %w", r.ID, err)
	}
	defer release()
	return setHeld(o, r, bytes)
}

// letGo lowers what a volume holds for copies, where nothing counts to the volume that would then be too much.
func letGo(o *pool.Open, r store.Record, bytes int64) error {
	used, err := usageOfOne(o, r.QuotaID)
	if bytes >= r.Held || used > r.Bytes+bytes || err != nil {
		return err
	}
	_, err = setHeld(o, r, bytes)
	return err
}

func setHeld(o *pool.Open, r store.Record, bytes int64) (store.Record, error) {
	v, ok := o.Ledger.Get(r.ID)
	if !ok {
		return r, fmt.Errorf("%w: %s is being recovered", ErrBusy, r.ID)
	}
	r.Held = bytes
	return r, setSize(o, r, v)
}

// holdsInterval is how often it is looked whether volumes hold room for copies that are gone.
const holdsInterval = 15 * time.Second

// ReleaseHolds lets go of that room until ctx ends.
func (m *Manager) ReleaseHolds(ctx context.Context) {
	tick := time.NewTicker(holdsInterval)
	defer tick.Stop()
	for {
		if err := m.ReleaseHeld(ctx); err != nil && ctx.Err() == nil {
			m.Log.Warn("cannot see what volumes hold for copies", logging.KeyError, err)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// ReleaseHeld does that once, in pools that can be used.
func (m *Manager) ReleaseHeld(ctx context.Context) error {
	holding := map[string][]string{}
	m.Pools.Each(func(pool, id string, v ledger.Volume) {
		if v.Held > 0 && v.Counted && v.Filling == "" {
			holding[pool] = append(holding[pool], id)
		}
	})
	var problems []error
	for name, ids := range holding {
		_, err := pool.Within(ctx, m.Pools, name, listed, func(o *pool.Open) (struct{}, error) {
			return struct{}{}, m.releaseIn(o, ids)
		})
		if !errors.Is(err, pool.ErrAbsent) {
			problems = append(problems, err)
		}
	}
	return errors.Join(problems...)
}

// releaseIn looks at the volumes with their locks, so that no copies are made of them meanwhile. Where there is a
// record that cannot be read, nobody knows what that keeps.
func (m *Manager) releaseIn(o *pool.Open, ids []string) error {
	defer o.KeepTrash()()
	if refused, _ := o.Ledger.Troubled(); len(refused) > 0 || o.ReadOnly {
		return nil
	}
	more, err := holdingMore(o, ids)
	if err != nil {
		return err
	}
	var locked []string
	for id := range more {
		end, err := m.take(change, id)
		if err != nil {
			continue // next time
		}
		defer end()
		locked = append(locked, id)
	}
	if more, err = holdingMore(o, locked); err != nil || len(more) == 0 {
		return err
	}
	if s := o.Backend.Snapshots(o.Disk); s != nil {
		if settled, err := s.Settled(); err != nil || !settled {
			return err
		}
	}
	var problems []error
	for id, kept := range more {
		problems = append(problems, release(o, id, kept))
	}
	return errors.Join(problems...)
}

// holdingMore gives what copies keep, by volume, where the volume holds more for them. A copy on its way into the trash
// is there if it is not in the ledger any more, and none comes back while the trash is kept. What is purged, or undone,
// in between has left neither trace: whether the filesystem has freed that as well is looked at afterwards.
func holdingMore(o *pool.Open, ids []string) (kept map[string]int64, err error) {
	kept, held := map[string]int64{}, map[string]ledger.Volume{}
	for _, id := range ids {
		v, ok := o.Ledger.Get(id)
		if pinned := o.Ledger.Pinned(v.QuotaID); ok && v.Counted && pinned < v.Held {
			kept[id], held[id] = pinned, v
		}
	}
	if len(kept) == 0 {
		return nil, nil
	}
	pins, err := store.PinsInTrash(o.Disk)
	for id, v := range held {
		if kept[id] = max(kept[id], quota.Pinned(pins, v.QuotaID)); kept[id] >= v.Held {
			delete(kept, id)
		}
	}
	return kept, err
}

// release needs the volume's lock.
func release(o *pool.Open, id string, kept int64) error {
	r, err := store.ReadKind(o.Disk, id, store.OfVolume)
	if errors.Is(err, store.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	return letGo(o, r, kept)
}
