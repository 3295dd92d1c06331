package volume

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"syscall"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/names"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/ledger"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/pool"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/quota"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/store"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/poolspec"
)

// createAmong makes a volume in the first of several pools that has room for it.
func (m *Manager) createAmong(ctx context.Context, r store.Record, how maker, pools []string) (v Volume, err error) {
	var refused error
	for _, name := range pools {
		left := false
		err := m.Pools.Use(ctx, name, func(o *pool.Open) (err error) {
			r.Pool = o.Name
			if v, err = createIn(ctx, o, r, how); err != nil {
				s, _, unseen := o.Look(r.ID)
				left = unseen != nil || s.Verdict() != store.Nothing
			}
			return err
		})
		switch {
		case err == nil:
			return v, nil
		case left || !refuses(err): // or a volume could be in two pools
			return Volume{}, err
		case refused == nil:
			refused = err
		default:
			refused = fmt.Errorf("%w; %w", refused, err)
		}
	}
	return Volume{}, refused
}

// refuses reports whether a pool takes no volume now, and another may.
func refuses(err error) bool {
	return isAny(err, pool.ErrAbsent, pool.ErrNotHere, ledger.ErrNoSpace, ledger.ErrClosed, quota.ErrExhausted,
		quota.ErrUnsupported, syscall.ENOSPC, syscall.EDQUOT, syscall.EROFS)
}

func isAny(err error, known ...error) bool {
	return slices.ContainsFunc(known, func(one error) bool { return errors.Is(err, one) })
}

// glance is how long a create waits for another pool than the one that it makes a volume in.
const glance = 2 * time.Second

// poolOf is the pool that has a volume, "" where none is known to. What other nodes have just made in a shared pool the
// ledger does not know yet, nor after a start of the driver what is in a pool that nobody has used since: so a create
// looks into the others where such a one may have the volume, unless they hang. Of several pools, one that is absent
// does not count.
func (m *Manager) poolOf(ctx context.Context, s Spec) string {
	others := slices.Concat(s.Among, m.Pools.Holders(s.ID))
	if len(s.Among) == 0 {
		if found, _, ok := m.Pools.Find(s.ID); ok || !m.Pools.Spec(s.Pool).Shared() {
			return found
		}
		others = slices.DeleteFunc(m.Pools.Names(), func(name string) bool {
			return name == s.Pool || !m.Pools.Spec(name).Shared()
		})
	}
	look := func(o *pool.Open) (bool, error) {
		_, known := o.Ledger.Get(s.ID)
		_, err := store.Read(o.Disk, s.ID)
		return known || err == nil, nil
	}
	for _, name := range others {
		if has, _ := pool.Within(ctx, m.Pools, name, glance, look); has {
			return name
		}
	}
	return ""
}

// isOfSeveral reports whether a volume was made in one of several pools. Then another may have one of its id: the
// request was repeated while this one was absent. That which the PersistentVolume names is the volume.
func isOfSeveral(r store.Record) bool {
	return poolspec.Several(r.Parameters[names.StoragePoolParameter])
}

// poolNamedBy is the pool that a volume's PersistentVolume names, "" where that is none which can have volumes here.
func (m *Manager) poolNamedBy(pv nodeapi.PersistentVolume) string {
	if in, _ := m.Pools.PoolOf(pv); pv.Pool != "" && slices.Contains(m.Pools.Names(), in) {
		return in
	}
	return ""
}

// mayBeTwice reports whether several pools have a volume, or may have it.
func (m *Manager) mayBeTwice(id string) bool {
	return len(m.Pools.Holders(id)) > 1 || len(m.Pools.Absent()) > 0
}

// deleteCopies deletes what pools that can be used, but for one, have of a volume that was made in one of several, and
// says how many that were.
func (m *Manager) deleteCopies(
	ctx context.Context, id, but string, check func(*pool.Open) error,
) (count int, err error) {
	var problems []error
	for _, name := range m.Pools.Holders(id) {
		if name == but {
			continue
		}
		err := m.Pools.Use(ctx, name, func(o *pool.Open) error {
			r, err := store.ReadKind(o.Disk, id, store.OfVolume)
			if err != nil || !isOfSeveral(r) {
				return err
			}
			r.Pool = o.Name
			count++
			if err := check(o); err != nil {
				return err
			}
			return m.delete(ctx, o, r)
		})
		if !errors.Is(err, pool.ErrAbsent) && !errors.Is(err, store.ErrNotFound) {
			problems = append(problems, err)
		}
	}
	return count, errors.Join(problems...)
}

// discardCopies moves what other pools have of a volume into the trash than the one that its PersistentVolume names,
// which has to have it: else somebody may have moved it to where it is.
func (m *Manager) discardCopies(ctx context.Context, id string) (count int, err error) {
	said, err := m.getPV(ctx, id)
	if err != nil || !said.PV.Here || m.poolNamedBy(said.PV) == "" {
		return 0, err
	}
	named := m.poolNamedBy(said.PV)
	missing := m.Pools.Use(ctx, named, func(o *pool.Open) error {
		r, err := store.ReadKind(o.Disk, id, store.OfVolume)
		if err == nil {
			_, err = dataOf(o, r)
		}
		return err
	})
	if missing != nil {
		missing = fmt.Errorf("%w: pool %s, which PersistentVolume %s names, does not have %s, so this may be its only "+
			"data: %v", nodeapi.ErrNamed, named, said.PV.Name, id, missing)
	}
	return m.deleteCopies(ctx, id, named, func(o *pool.Open) error { return cmp.Or(missing, m.requireNoTwin(o)) })
}

// isElsewhere reports whether the pool that a PersistentVolume names, "" for none, has the volume too, so that what was
// found in another one is not meant.
func (m *Manager) isElsewhere(r store.Record, in string) bool {
	return in != "" && in != r.Pool && (isOfSeveral(r) || slices.Contains(m.Pools.Holders(r.ID), in) ||
		slices.Contains(m.Pools.Untracked()[in], r.ID))
}
