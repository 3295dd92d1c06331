package volume

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/disk"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/ledger"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/pool"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/quota"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/records"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/recovery"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/kernel/bindmount"
)

// Mounter publishes directories below the kubelet's directory; bindmount.Tree has the details.
type Mounter interface {
	Inspect(target string) (bindmount.Mount, error)
	Bind(source disk.Handle, target string, o bindmount.Options) error
	Unmount(target string) error
	Published() (map[string][]string, error)
}

// Cluster is what the manager asks Kubernetes. ErrClusterUnknown where the API does not answer.
type Cluster interface {
	// Get finds the PersistentVolume of this driver whose volumeHandle is id; ok is false where there is none.
	Get(ctx context.Context, id string) (pv pool.PersistentVolume, ok bool, err error)
	// List gives all PersistentVolumes of this driver.
	List(ctx context.Context) ([]pool.PersistentVolume, error)
	// Tell puts an event on a claim.
	Tell(claim records.Claim, reason, message string)
}

// Config is what a manager is made of; every field is required.
type Config struct {
	Pools   *pool.Set
	Mounter Mounter
	Cluster Cluster
	Log     *slog.Logger
	Now     func() time.Time
}

// Manager does the work on volumes. It takes no locks: calls for one id must not overlap, which Locked sees to.
type Manager struct {
	Config
	targets *targets
}

// New returns a manager that knows what is published on this node already.
func New(c Config) (*Manager, error) {
	if c.Pools == nil || c.Mounter == nil || c.Cluster == nil || c.Log == nil || c.Now == nil {
		return nil, errors.New("volume manager: a field of its Config is missing")
	}
	published, err := c.Mounter.Published()
	if err != nil {
		return nil, fmt.Errorf("learn what is published on this node: %w", err)
	}
	return &Manager{Config: c, targets: newTargets(published)}, nil
}

// find runs do on the open pool that has a volume's record, those first that know it. records.ErrNotFound where every
// pool that can be used was asked; pool.ErrAbsent where one that this node has used cannot be.
func (m *Manager) find(ctx context.Context, id string, do func(*pool.Open, records.Record) error) error {
	if err := records.ValidateID(id); err != nil {
		return err
	}
	names := m.Pools.Names()
	if known, _, ok := m.Pools.Find(id); ok {
		slices.SortStableFunc(names, func(a, b string) int { return rank(b, known) - rank(a, known) })
	}
	var troubles []error
	for _, name := range names {
		found := false
		err := m.Pools.Use(ctx, name, func(o *pool.Open) error {
			r, err := records.Read(o.Disk, id)
			if err != nil {
				return err
			}
			found, r.Pool = true, o.Name // the pool's name in the configuration may have changed since
			return do(o, r)
		})
		switch {
		case found:
			return err
		case errors.Is(err, pool.ErrAbsent), errors.Is(err, pool.ErrNotHere), errors.Is(err, records.ErrNotFound):
		default:
			troubles = append(troubles, err)
		}
	}
	if len(troubles) > 0 {
		return errors.Join(troubles...)
	}
	if absent := m.Pools.Absent(); len(absent) > 0 {
		return fmt.Errorf("%w: volume %s may be in a pool that cannot be used now: %s",
			pool.ErrAbsent, id, strings.Join(absent, "; "))
	}
	return fmt.Errorf("%w: no pool on this node has %s", records.ErrNotFound, id)
}

func rank(name, known string) int {
	if name == known {
		return 1
	}
	return 0
}

// findOrAdopt is find, and where there is no record a look at the PersistentVolume: it may name a directory that
// another driver made, or a pool that cannot be used here.
func (m *Manager) findOrAdopt(ctx context.Context, id string, do func(*pool.Open, records.Record) error) error {
	err := m.find(ctx, id, do)
	if !errors.Is(err, records.ErrNotFound) {
		return err
	}
	pv, ok, apiErr := m.Cluster.Get(ctx, id)
	if apiErr != nil {
		return fmt.Errorf("see whether a PersistentVolume names %s: %w", id, apiErr)
	}
	if !ok {
		return err
	}
	adopted, adoptErr := m.adoptNamed(ctx, pv)
	switch {
	case adoptErr != nil:
		return adoptErr
	case !adopted:
		return err
	}
	return m.find(ctx, id, do)
}

// Get answers what a volume is and how it is.
func (m *Manager) Get(ctx context.Context, id string) (v Volume, h Health, err error) {
	err = m.find(ctx, id, func(o *pool.Open, r records.Record) error {
		_, ok, err := recovery.Directory(o.Disk, id)
		v, h = answer(o, r), health(o, r, ok)
		return err
	})
	return v, h, err
}

func answer(o *pool.Open, r records.Record) Volume {
	return Volume{Record: r, Enforcement: o.Enforcement(r.ID)}
}

func health(o *pool.Open, r records.Record, hasData bool) Health {
	switch {
	case !hasData:
		return Health{Condition: DataLoss, Reason: "DirectoryMissing", Message: lost(r).Error()}
	case r.QuotaID != 0 && o.Enforcement(r.ID) == quota.None:
		return Health{Condition: Degraded, Reason: "VolumeNotEnforced", Message: notEnforced(o, r)}
	default:
		return Health{Condition: Healthy, Reason: "Healthy", Message: "the volume's directory is there"}
	}
}

// notEnforced says why a volume that has an ID is not held to its size, and what to do.
func notEnforced(o *pool.Open, r records.Record) string {
	if !o.Backend.Enforces() {
		return fmt.Sprintf("the quota that kept volume %s to its size is off: %s", r.ID, o.Backend.Reason)
	}
	return fmt.Sprintf("nothing keeps volume %s to its size: its directory, which was copied or restored, does not "+
		"count to its ID; once no pod uses it: driver volume enforce %s", r.ID, r.ID)
}

func lost(r records.Record) error {
	return fmt.Errorf("%w: the record of %s is there but its directory csi/%s in pool %s is gone; restore it, or delete "+
		"the claim",
		ErrLost, r.ID, r.ID, r.Pool)
}

// List gives up to limit volumes (0: all) whose id comes after the one given, by id; next is the last id where there
// are more. A volume that vanishes meanwhile is left out.
func (m *Manager) List(ctx context.Context, after string, limit int) (volumes []Volume, next string, err error) {
	in := map[string]string{}
	var ids []string
	m.Pools.Each(func(pool, id string, v ledger.Volume) {
		if id > after && !v.Refused {
			in[id] = pool
			ids = append(ids, id)
		}
	})
	slices.Sort(ids)
	if limit > 0 && len(ids) > limit {
		ids = ids[:limit]
		next = ids[limit-1]
	}
	for _, name := range m.Pools.Names() {
		here := slices.DeleteFunc(slices.Clone(ids), func(id string) bool { return in[id] != name })
		if len(here) == 0 {
			continue
		}
		err := m.Pools.Use(ctx, name, func(o *pool.Open) error {
			for _, id := range here {
				if r, err := records.Read(o.Disk, id); err == nil {
					r.Pool = name
					volumes = append(volumes, answer(o, r))
				}
			}
			return nil
		})
		if err != nil && !errors.Is(err, pool.ErrAbsent) {
			return nil, "", err
		}
	}
	slices.SortFunc(volumes, func(a, b Volume) int { return strings.Compare(a.ID, b.ID) })
	return volumes, next, nil
}

// Stats is the use of a volume published at a path (any path where it is mounted).
func (m *Manager) Stats(ctx context.Context, id, path string) (s Stats, err error) {
	err = m.find(ctx, id, func(o *pool.Open, r records.Record) error {
		info, ok, err := recovery.Directory(o.Disk, id)
		if err != nil {
			return err
		}
		mount, err := m.Mounter.Inspect(path)
		if err != nil {
			return err
		}
		if !mount.Mounted || (ok && !same(mount, info)) {
			return fmt.Errorf("%w: volume %s is not published at volume_path %s", records.ErrNotFound, id, path)
		}
		s, err = stats(o, r)
		return err
	})
	return s, err
}

// stats is a volume's own use where it is held to its size. What it may take in addition ends
// where the filesystem does.
func stats(o *pool.Open, r records.Record) (Stats, error) {
	space, err := o.Disk.Space()
	if err != nil {
		return Stats{}, fmt.Errorf("read the filesystem's use: %w", err)
	}
	if o.Enforcement(r.ID) == quota.None {
		return Stats{
			Bytes: space.Size, BytesUsed: space.Used, BytesAvailable: space.Free,
			Inodes: space.Inodes, InodesUsed: space.InodesUsed, InodesAvailable: space.InodesFree,
		}, nil
	}
	if _, err := o.Limits.Check(r.ID, r.QuotaID); err != nil { // brings nested subvolumes back into the count
		return Stats{}, err
	}
	usage, err := o.Limits.Usage([]quota.ID{r.QuotaID})
	if err != nil {
		return Stats{}, fmt.Errorf("read the use of volume %s: %w", r.ID, err)
	}
	use := usage[r.QuotaID]
	s := Stats{
		Bytes: r.Bytes, BytesUsed: use.Bytes, BytesAvailable: min(space.Free, max(0, r.Bytes-use.Bytes)),
		Inodes: space.Inodes, InodesUsed: use.Inodes, InodesAvailable: space.InodesFree,
	}
	if r.Inodes > 0 {
		s.Inodes, s.InodesAvailable = r.Inodes, min(space.InodesFree, max(0, r.Inodes-use.Inodes))
	}
	return s, nil
}

func same(mount bindmount.Mount, info disk.Info) bool {
	return mount.Dev == info.Dev && mount.Ino == info.Ino
}
