package volume

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/disk"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/ledger"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/pool"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/quota"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/store"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/kernel/bindmount"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/logging"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
)

// Get answers what a volume is and how it is, without the lock, which an operation that takes its time would have, but
// for one caller at a time: a pool that hangs keeps no more. What is missing only because an operation is under way is
// not called lost.
func (m *Manager) Get(ctx context.Context, id string) (v Volume, h Health, err error) {
	end, err := m.take("get", id)
	if err != nil {
		return v, h, err
	}
	defer end()
	err = m.find(ctx, id, func(o *pool.Open, r store.Record) error {
		_, ok, err := store.Directory(o.Disk, id)
		v = answer(o, r)
		switch {
		case r.Filling():
			h = Health{Inaccessible, "Filling", m.progress(id)}
		case !ok:
			h = Health{DataLoss, "DataLost", lostError(r).Error()}
		case r.QuotaID != 0 && v.Enforcement == quota.None:
			h = Health{Degraded, "VolumeNotEnforced", notEnforced(o, r)}
		default:
			h = Health{Healthy, "Healthy", "the volume's directory is there"}
		}
		return err
	})
	if _, busy := m.busy.Load(operation{change, id}); busy && err == nil && h.Condition == DataLoss {
		return Volume{}, Health{}, fmt.Errorf("%w: an operation on %s is under way; ask again", ErrBusy, id)
	}
	return v, h, err
}

// Has reports whether anything of a volume is on this node: its record, its directory, what an interrupted create left,
// or an operation under way; and in which pool, "" while that is not known. pool.ErrAbsent where it is unknown because
// a pool cannot be used, ErrBusy while an earlier question about the id is not answered.
func (m *Manager) Has(ctx context.Context, id string) (in string, found bool, err error) {
	end, err := m.take("has", id)
	if err != nil {
		return "", false, err
	}
	defer end()
	if in, found = m.knows(id); found {
		return in, true, nil
	}
	err = m.search(ctx, id, func(o *pool.Open) (bool, error) {
		in = o.Name
		s, r, err := o.Look(id)
		return err == nil && s.Verdict() != store.Nothing && r.Kind == store.OfVolume, err
	})
	if err == nil {
		return in, true, nil
	}
	if in, found = m.knows(id); found { // an operation may have begun meanwhile
		return in, true, nil
	}
	if errors.Is(err, store.ErrNotFound) {
		return "", false, nil
	}
	return "", false, err
}

// knows reports whether an operation on an id is under way, or has entered it into the ledger of a pool.
func (m *Manager) knows(id string) (in string, known bool) {
	_, busy := m.busy.Load(operation{change, id})
	in, v, known := m.Pools.Find(id)
	if v.Snapshot {
		return "", busy
	}
	return in, busy || known
}

func answer(o *pool.Open, r store.Record) Volume {
	return Volume{Record: r, Enforcement: o.Enforcement(r.ID)}
}

// notEnforced says why a volume that has an ID is not held to its size, and what to do.
func notEnforced(o *pool.Open, r store.Record) string {
	if !o.Backend.Enforces() {
		return fmt.Sprintf("the quota that kept volume %s to its size is off: %s", r.ID, o.Backend.Reason)
	}
	return fmt.Sprintf("nothing keeps volume %s to its size: its directory, which was copied or restored, does not "+
		"count to its ID; once no pod uses it: kubectl hpp enforce %s", r.ID, r.ID)
}

// Stats is the use of a volume published at a path (any path where it is mounted), for one caller at a time.
func (m *Manager) Stats(ctx context.Context, id, path string) (s Stats, err error) {
	end, err := m.take("stats", id)
	if err != nil {
		return s, err
	}
	defer end()
	elsewhere := false
	err = m.search(ctx, id, func(o *pool.Open) (bool, error) {
		r, err := store.ReadKind(o.Disk, id, store.OfVolume)
		if err != nil {
			return false, err
		}
		published, err := m.isPublished(o, id, path)
		if elsewhere = err == nil && !published; elsewhere {
			return !isOfSeveral(r), nil // or another pool has the volume that is mounted
		}
		if err == nil {
			s, err = m.stats(o, r)
		}
		return true, err
	})
	if elsewhere && (err == nil || errors.Is(err, store.ErrNotFound)) {
		err = fmt.Errorf("%w: volume %s is not published at volume_path %s", store.ErrNotFound, id, path)
	}
	return s, err
}

// isPublished reports whether the volume of an open pool is what is mounted at a path. One whose directory is gone may
// be.
func (m *Manager) isPublished(o *pool.Open, id, path string) (bool, error) {
	info, ok, err := store.Directory(o.Disk, id)
	if err != nil {
		return false, err
	}
	mount, err := m.Mounter.Inspect(path)
	return mount.Mounted && (!ok || sameMount(mount, info)), err
}

// checkAgain is how long Stats does not look again whether all that is in a volume counts to it: with many nested
// subvolumes that takes some time, and the kubelet asks each minute.
const checkAgain = 5 * time.Minute

// stats is the use of a volume held to its size, whose room ends with the filesystem's, else of the whole filesystem.
func (m *Manager) stats(o *pool.Open, r store.Record) (Stats, error) {
	space, err := o.Disk.Space()
	if err != nil {
		return Stats{}, fmt.Errorf("read the filesystem's use: %w", err)
	}
	s := Stats{space.Size, space.Used, space.Free, space.Inodes, space.InodesUsed, space.InodesFree}
	if o.Enforcement(r.ID) == quota.None {
		return s, nil
	}
	checked, _ := m.checked.Load(r.ID)
	if last, ok := checked.(time.Time); !ok || m.Now().Sub(last).Abs() >= checkAgain {
		if _, err := o.Limits.Check(r.ID, r.QuotaID); err != nil { // brings nested subvolumes back into the count
			return Stats{}, err
		}
		m.checked.Store(r.ID, m.Now())
	}
	usage, err := o.Limits.Usage([]quota.ID{r.QuotaID})
	if err != nil {
		return Stats{}, fmt.Errorf("read the use of volume %s: %w", r.ID, err)
	}
	use := usage[r.QuotaID]
	// What copies keep counts as well, and nobody knows how much of it the volume has still.
	s.Bytes, s.BytesUsed = r.Bytes, min(use.Bytes, r.Bytes)
	s.BytesAvailable = min(space.Free, r.Bytes, max(0, r.Limit().Bytes-use.Bytes))
	s.InodesUsed = use.Inodes
	if r.Inodes > 0 {
		s.Inodes, s.InodesAvailable = r.Inodes, min(space.InodesFree, max(0, r.Inodes-use.Inodes))
	}
	return s, nil
}

func sameMount(mount bindmount.Mount, info disk.Info) bool {
	return mount.Dev == info.Dev && mount.Ino == info.Ino
}

// List gives up to limit volumes (0: all) whose id comes after the one given, by id; next is the last id where there
// are more. A volume that vanishes meanwhile is left out.
func (m *Manager) List(ctx context.Context, after string, limit int) (volumes []Volume, next string, err error) {
	in := m.recorded(store.OfVolume)
	ids := slices.Concat(slices.Collect(maps.Values(in))...)
	ids = slices.DeleteFunc(ids, func(id string) bool { return id <= after })
	slices.Sort(ids)
	if ids = slices.Compact(ids); limit > 0 && len(ids) > limit {
		next = ids[limit-1]
	}
	for name, here := range in {
		here = slices.DeleteFunc(here, func(id string) bool { return id <= after || next != "" && id > next })
		found, err := m.read(ctx, name, store.OfVolume, here)
		if err != nil {
			return nil, "", err
		}
		volumes = append(volumes, found...)
	}
	slices.SortFunc(volumes, func(a, b Volume) int { return strings.Compare(a.ID, b.ID) })
	return volumes, next, nil
}

// atOnce is how many records are read while a pool is open, and listed how long a list waits for that.
const atOnce, listed = 100, 10 * time.Second

// Each visits all volumes in pools that can be used, by pool and id, then all snapshots, and ends with the first error
// of visit. No pool is open meanwhile. What vanishes is left out. A pool that hangs is an error once the others are
// visited.
func (m *Manager) Each(ctx context.Context, visit func(nodeapi.VolumeStatus) error) error {
	var hanging []error
	for _, kind := range []store.Kind{store.OfVolume, store.OfSnapshot} {
		in := m.recorded(kind)
		for _, name := range slices.Sorted(maps.Keys(in)) {
			slices.Sort(in[name])
			err := m.eachIn(ctx, name, kind, in[name], visit)
			if err != nil && (!errors.Is(err, context.DeadlineExceeded) || ctx.Err() != nil) {
				return err
			}
			hanging = append(hanging, err)
		}
	}
	return errors.Join(hanging...)
}

func (m *Manager) eachIn(
	ctx context.Context, name string, kind store.Kind, ids []string, visit func(nodeapi.VolumeStatus) error,
) error {
	usage, err := pool.Within(ctx, m.Pools, name, listed, func(o *pool.Open) (map[quota.ID]quota.Use, error) {
		return usageOf(o), nil // read once, for all
	})
	if errors.Is(err, pool.ErrAbsent) {
		return nil
	}
	for some := range slices.Chunk(ids, atOnce) {
		var volumes []Volume
		if err == nil {
			volumes, err = m.read(ctx, name, kind, some)
		}
		for i := 0; i < len(volumes) && err == nil; i++ {
			v := volumes[i]
			s := nodeapi.VolumeStatus{
				ID: v.ID, Pool: v.Pool, Claim: v.Claim.String(), Bytes: v.Bytes, Held: v.Held, Used: -1,
				Enforcement: string(v.Enforcement),
				Created:     v.Created, Ephemeral: v.Ephemeral, Published: m.Published(v.ID),
				Copying: m.unfinished(v.ID),
			}
			if kind == store.OfSnapshot {
				s.SnapshotOf = v.Source.ID
			}
			if use, known := usage[v.QuotaID]; known && v.Enforcement != quota.None {
				s.Used = use.Bytes
			}
			err = visit(s)
		}
	}
	return err
}

// usageOf is what counts to the IDs of a pool's volumes; nothing where that cannot be read.
func usageOf(o *pool.Open) map[quota.ID]quota.Use {
	usage, err := o.Limits.Usage(o.Ledger.QuotaIDs())
	if err != nil {
		o.Log.Warn("cannot read what volumes use", logging.KeyError, err)
		return map[quota.ID]quota.Use{}
	}
	return usage
}

// recorded gives by pool the ids of what is of a kind and has a record that can be used.
func (m *Manager) recorded(kind store.Kind) map[string][]string {
	in := map[string][]string{}
	m.Pools.Each(func(pool, id string, v ledger.Volume) {
		if !v.Refused && v.Snapshot == (kind == store.OfSnapshot) {
			in[pool] = append(in[pool], id)
		}
	})
	return in
}

// read gives what a pool has of a kind, but not what has vanished: nothing where the pool is absent.
func (m *Manager) read(ctx context.Context, name string, kind store.Kind, ids []string) ([]Volume, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	found, err := pool.Within(ctx, m.Pools, name, listed, func(o *pool.Open) (found []Volume, _ error) {
		for _, id := range ids {
			if r, err := store.ReadKind(o.Disk, id, kind); err == nil {
				r.Pool = name
				found = append(found, answer(o, r))
			}
		}
		return found, ctx.Err()
	})
	if errors.Is(err, pool.ErrAbsent) {
		return nil, nil
	}
	return found, err
}
