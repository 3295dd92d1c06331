package volume

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/pool"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/records"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/recovery"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/kernel/bindmount"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/logging"
)

// Publish mounts a volume at a target path; an inline volume is made first. The same request again is fine, anything
// else mounted at the target is not.
func (m *Manager) Publish(ctx context.Context, q PublishRequest) error {
	if q.Inline == nil {
		return m.findOrAdopt(ctx, q.ID, func(o *pool.Open, r records.Record) error { return m.publish(o, r, q) })
	}
	err := m.publishInline(ctx, q)
	if !errors.Is(err, records.ErrNotFound) && !errors.Is(err, ErrLost) { // Create takes back what an earlier one left
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
		r, err := records.Read(o.Disk, q.ID)
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

func (m *Manager) publish(o *pool.Open, r records.Record, q PublishRequest) error {
	info, ok, err := recovery.Directory(o.Disk, r.ID)
	if err != nil {
		return err
	}
	if !ok {
		return lost(r)
	}
	m.seeToLimit(o, r)
	mount, err := m.Mounter.Inspect(q.Target)
	switch {
	case err != nil:
		return err
	case mount.Mounted && !same(mount, info):
		return fmt.Errorf("%w: something else than volume %s is mounted at target_path %s", ErrTargetTaken, r.ID, q.Target)
	case mount.Mounted && !satisfies(mount.Options, q.Options):
		return fmt.Errorf("%w: volume %s is mounted at target_path %s with options %+v, asked for %+v",
			ErrTargetTaken, r.ID, q.Target, mount.Options, q.Options)
	case mount.Mounted:
		m.targets.add(r.ID, q.Target)
		return nil
	}
	if q.SingleWriter {
		live, err := m.publishedAt(r.ID, info)
		if err != nil {
			return err
		}
		if i := slices.IndexFunc(live, func(t string) bool { return t != q.Target }); i >= 0 {
			return fmt.Errorf("%w: %s is mounted at %s, and its access mode allows one pod", ErrSingleWriter, r.ID, live[i])
		}
	}
	return m.bind(o, r.ID, q)
}

// seeToLimit looks before a pod writes whether a volume is held to its size. A quota in trouble must not keep pods from
// their data: it is reported.
func (m *Manager) seeToLimit(o *pool.Open, r records.Record) {
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
	m.targets.add(id, q.Target)
	return nil
}

// inlinePrefix begins the ids that the kubelet gives to inline volumes (makeVolumeHandle,
// pkg/volume/csi/csi_mounter.go).
const inlinePrefix = "csi-"

// Unpublish unmounts a volume from a target path and removes the empty directory there. Only an inline volume, which
// its record says, is then deleted. Neither an absent pool nor another's trouble keeps a pod from ending.
func (m *Manager) Unpublish(ctx context.Context, id, target string) error {
	if err := records.ValidateID(id); err != nil {
		return err
	}
	if err := m.Mounter.Unmount(target); err != nil {
		return fmt.Errorf("unpublish volume %s: %w", id, err)
	}
	m.targets.remove(id, target)
	_, v, known := m.Pools.Find(id)
	inline := v.Ephemeral
	if !known { // after a restart: a pool that hangs must not keep other pods from ending
		inline = strings.HasPrefix(id, inlinePrefix) && slices.ContainsFunc(m.Pools.Names(), m.Pools.Inline)
	}
	if !inline || m.Published(id) {
		return nil
	}
	err := m.find(ctx, id, func(o *pool.Open, r records.Record) error {
		if !r.Ephemeral {
			return nil
		}
		return m.delete(ctx, o, r)
	})
	switch {
	case errors.Is(err, records.ErrNotFound):
		return m.deleted(ctx, id)
	case err != nil && !known:
		m.Log.Warn("cannot see whether an unpublished volume was an inline one", logging.KeyID, id, logging.KeyError, err)
		return nil
	}
	return err
}

// satisfies reports whether a mount has the options asked for. It may have more than those: a bind mount inherits the
// flags of the filesystem's own mount, except that read-only must be as asked.
func satisfies(is, asked bindmount.Options) bool {
	return is.ReadOnly == asked.ReadOnly &&
		(is.NoSUID || !asked.NoSUID) && (is.NoDev || !asked.NoDev) && (is.NoExec || !asked.NoExec) &&
		(asked.Atime == "" || is.Atime == asked.Atime)
}

// targets remembers where volumes are mounted, so that no call reads the mount table. What it
// has is verified when used.
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
