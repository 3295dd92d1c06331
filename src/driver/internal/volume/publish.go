package volume

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/poolfs"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/logging"
)

// Publish mounts a volume at a target path; an inline volume is made first. The same request again is fine, anything else
// mounted at the target is not. The end of ctx ends a long count of what was put back, which the next request goes on with, and nothing else.
func (m *Manager) Publish(ctx context.Context, q PublishRequest) error {
	l, err := m.toPublish(context.WithoutCancel(ctx), q)
	if err != nil {
		return err
	}
	defer func() { l.Close() }()
	info, loose, err := m.ready(l)
	if err == nil && loose {
		if l, err = m.gathered(ctx, l); err != nil {
			return err
		}
		info, loose, err = m.ready(l) // nothing kept others from it meanwhile
	}
	switch {
	case err != nil:
		return err
	case loose:
		return fmt.Errorf("%w: somebody else put another directory in the place of csi/%s meanwhile; try again", ErrBusy, q.ID)
	}
	mount, err := m.Mounter.Inspect(q.Target)
	if err != nil {
		return err
	}
	if mount.Mounted {
		return m.alreadyThere(q, mount, same(mount, info))
	}
	if err := m.singleWriter(q, l); err != nil {
		return err
	}
	return m.bind(q, l)
}

// ready looks at a volume before a pod writes: its directory is there, and its limit is seen to. loose tells that what is in it does
// not count to it yet.
func (m *Manager) ready(l located) (info poolfs.Info, loose bool, err error) {
	info, ok, err := exists(l.disk, l.ID)
	if err != nil {
		return info, false, err
	}
	if !ok {
		return info, false, lost(l.Record)
	}
	enrol(l)
	if err := m.warnUnlessHeld(l); err != nil {
		return info, false, err
	}
	loose, err = l.pool.Backend().Loose(l.disk, l.ID, l.Record)
	return info, loose, err
}

// warnUnlessHeld sees to a volume's limit before a pod writes. Only a volume that counts elsewhere, or whose number is another's, is
// refused: a quota in trouble must not keep pods from their data.
func (m *Manager) warnUnlessHeld(l located) error {
	err := hold(l.pool, l.disk, l.Record)
	switch {
	case err == nil:
		l.pool.Held(l.ID)
	case errors.Is(err, ErrBroken):
		return err
	default:
		m.Log.Warn("cannot see to the limit of a volume", logging.KeyID, l.ID, logging.KeyPool, l.Pool, logging.KeyError, err)
	}
	return nil
}

// toPublish finds the volume of a request. An inline volume says itself in which pool it is, so no other pool matters, and
// is made where it does not exist.
func (m *Manager) toPublish(ctx context.Context, q PublishRequest) (located, error) {
	if q.Inline == nil {
		return m.locate(ctx, q.ID, adopting)
	}
	p, err := m.Pools.Get(q.Inline.Pool)
	if err != nil {
		return located{}, err
	}
	l, err := m.lookIn(ctx, p, q.ID, only)
	if errors.Is(err, ErrNotFound) {
		if _, err := m.Create(ctx, *q.Inline); err != nil {
			return located{}, err
		}
		l, err = m.lookIn(ctx, p, q.ID, only)
	}
	if err == nil && !l.Ephemeral {
		l.Close()
		return located{}, fmt.Errorf("%w: %s is a persistent volume, asked for inline", ErrExists, q.ID)
	}
	return l, err
}

// alreadyThere judges what is mounted at the target already.
func (m *Manager) alreadyThere(q PublishRequest, mount Mount, isOurs bool) error {
	if !isOurs {
		return fmt.Errorf("%w: something else than volume %s is mounted at target_path %s", ErrTargetTaken, q.ID, q.Target)
	}
	if !mount.satisfies(q.MountOptions) {
		return fmt.Errorf("%w: volume %s is mounted at target_path %s with options %+v, asked for %+v",
			ErrTargetTaken, q.ID, q.Target, mount.MountOptions, q.MountOptions)
	}
	m.targets.add(q.ID, q.Target)
	return nil
}

func (m *Manager) singleWriter(q PublishRequest, l located) error {
	if !q.SingleWriter {
		return nil
	}
	info, _, err := exists(l.disk, q.ID)
	if err != nil {
		return err
	}
	live, err := m.publishedAt(q.ID, info)
	if err != nil {
		return err
	}
	if i := slices.IndexFunc(live, func(t string) bool { return t != q.Target }); i >= 0 {
		return fmt.Errorf("%w: %s is mounted at %s, and its access mode allows one pod", ErrSingleWriter, q.ID, live[i])
	}
	return nil
}

func (m *Manager) bind(q PublishRequest, l located) error {
	source, err := l.disk.Handle(q.ID)
	if err != nil {
		return fmt.Errorf("open volume %s for mounting: %w", q.ID, err)
	}
	defer func() { _ = source.Close() }()
	if err := m.Mounter.Bind(source, q.Target, q.MountOptions); err != nil {
		return fmt.Errorf("publish volume %s: %w", q.ID, err)
	}
	m.targets.add(q.ID, q.Target)
	return nil
}

// Unpublish unmounts a volume from a target path and removes the empty directory there. Only an inline volume, which its
// record says, is then deleted. Neither an absent pool nor another's trouble keeps a pod from ending.
func (m *Manager) Unpublish(ctx context.Context, id, target string) error {
	if err := ValidateID(id); err != nil {
		return err
	}
	if err := m.Mounter.Unmount(target); err != nil {
		return fmt.Errorf("unpublish volume %s: %w", id, err)
	}
	m.targets.remove(id, target)
	r, known := m.recorded(id)
	if known && !r.Ephemeral {
		return nil
	}
	l, err := m.locate(ctx, id, only)
	switch {
	case err == nil:
		l.Close()
	case known: // an inline volume that is there and cannot be reached: the kubelet calls again
		return err
	default:
		if !errors.Is(err, ErrNotFound) {
			m.Log.Warn("cannot tell whether an unpublished volume was an inline one", logging.KeyID, id, logging.KeyError, err)
		}
		return nil
	}
	if !l.Ephemeral || m.Published(id) {
		return nil
	}
	return m.Delete(ctx, id)
}

// recorded gives a volume's record from memory.
func (m *Manager) recorded(id string) (Record, bool) {
	for _, p := range m.Pools.All() {
		if r, ok := p.Ledger().Get(id); ok {
			return r, true
		}
	}
	return Record{}, false
}

// satisfies tells whether a mount has the options asked for. It may have more than those: a bind mount inherits the flags
// of the filesystem's own mount, except that read-only must be as asked.
func (is MountOptions) satisfies(asked MountOptions) bool {
	return is.ReadOnly == asked.ReadOnly &&
		(is.NoSUID || !asked.NoSUID) && (is.NoDev || !asked.NoDev) && (is.NoExec || !asked.NoExec) &&
		(asked.Atime == "" || is.Atime == asked.Atime)
}

// targets remembers where volumes are mounted, so that no call reads the mount table. What it holds is verified when used.
type targets struct {
	mu sync.Mutex
	by map[string][]string
}

func newTargets(published map[string][]string) *targets {
	t := &targets{by: map[string][]string{}}
	for id, paths := range published {
		t.by[id] = slices.Clone(paths)
	}
	return t
}

func (t *targets) of(id string) []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.by[id])
}

func (t *targets) add(id, target string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !slices.Contains(t.by[id], target) {
		t.by[id] = append(t.by[id], target)
	}
}

func (t *targets) remove(id, target string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	left := slices.DeleteFunc(t.by[id], func(s string) bool { return s == target })
	if len(left) == 0 {
		delete(t.by, id)
		return
	}
	t.by[id] = left
}
