package volume

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/disk"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/hostdir"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/pool"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/store"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/transfer"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/kernel/bindmount"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
)

// Mounter publishes directories below the kubelet's directory; bindmount.Tree has the details.
type Mounter interface {
	Inspect(target string) (bindmount.Mount, error)
	Bind(source disk.Handle, target string, o bindmount.Options) error
	Unmount(target string) error
	Published() (map[string][]string, error)
}

// Cluster is what the manager asks Kubernetes; nodeapi.ErrClusterUnknown where the API does not answer.
type Cluster interface {
	// Get finds the PersistentVolume of this driver whose volumeHandle is id; ok is false where there is none.
	Get(ctx context.Context, id string) (pv nodeapi.PersistentVolume, ok bool, err error)
	// List gives all PersistentVolumes of this driver.
	List(ctx context.Context) ([]nodeapi.PersistentVolume, error)
	// OfOtherDriver gives the name of a PersistentVolume of another driver whose volumeHandle is id, "" without one.
	OfOtherDriver(ctx context.Context, id string) (name string, err error)
}

// Config is what a manager is made of; every field is required.
type Config struct {
	Pools   *pool.Set
	Mounter Mounter
	Cluster Cluster
	Log     *slog.Logger
	Now     func() time.Time
	// IsInline reports whether the kubelet has noted that an id is that of an inline volume at a target.
	IsInline func(id, target string) bool
	// Paths opens what is in no pool, on this Node.
	Paths disk.Host
	Node  hostdir.Node
	// CopyBytesPerSecond bounds what all copies that are made file by file read; 0 does not.
	CopyBytesPerSecond int64
}

// Manager does the work on volumes. What changes one takes its id's lock in the public method; what is private is
// called with the lock. Until an operation is done, every other one on the id is ErrBusy.
type Manager struct {
	Config
	busy    sync.Map // of operation
	running sync.WaitGroup

	pace *rate.Limiter
	// measuring bounds the milliseconds that all measurements work in a second.
	measuring *rate.Limiter
	readings  sync.Map // of *reading: under way
	fills     sync.Map // of *fill by id: under way
	slots     chan struct{}
	// begun are the copies of what is on another node that nothing was written to yet, by id.
	begun sync.Map
	// failed has by id what a copy failed with, for who asks for it again.
	failed sync.Map

	mounts sync.Map // of mountpoint: remembered, so that no call reads the mount table, and verified when used
	// checked has by id when Stats last looked whether all that is in a volume counts to it.
	checked sync.Map
	// taggings are those under way, tagFailed has the sentence that the last one ended with, both by id; tag asks for
	// more.
	taggings, tagFailed sync.Map
	tag                 chan struct{}
	// missing is when a directory of a shared pool was first looked for in vain, by id.
	missing sync.Map
}

type mountpoint struct{ id, target string }

func (c Config) complete() bool {
	return c.Pools != nil && c.Mounter != nil && c.Cluster != nil && c.Log != nil && c.Now != nil &&
		c.IsInline != nil && c.Paths != nil && c.Node.Root != ""
}

// New returns a manager that knows what is published on this node already.
func New(c Config) (*Manager, error) {
	if !c.complete() {
		return nil, errors.New("volume manager: a field of its Config is missing")
	}
	published, err := c.Mounter.Published()
	if err != nil {
		return nil, fmt.Errorf("see what is published on this node: %w", err)
	}
	m := &Manager{
		Config: c, pace: rate.NewLimiter(rate.Inf, 2*transfer.BatchSize), slots: make(chan struct{}, fillsAtOnce),
		measuring: rate.NewLimiter(measureShare, measureShare),
		tag:       make(chan struct{}, 1),
	}
	if c.CopyBytesPerSecond > 0 {
		m.pace.SetLimit(rate.Limit(c.CopyBytesPerSecond))
	}
	for id, targets := range published {
		for _, target := range targets {
			m.mounts.Store(mountpoint{id, target}, nil)
		}
	}
	return m, nil
}

// find runs do on the open pool that has a volume's record. Errors as of search.
func (m *Manager) find(ctx context.Context, id string, do func(*pool.Open, store.Record) error) error {
	return m.findKind(ctx, store.OfVolume, id, do)
}

// findKind is find for what is of a kind.
func (m *Manager) findKind(
	ctx context.Context, kind store.Kind, id string, do func(*pool.Open, store.Record) error,
) error {
	return m.findSaid(ctx, kind, id, nil, do)
}

// findSaid is findKind for who knows of the PersistentVolume. Where two pools may have the volume, that names the right
// one: the cluster is asked for it unless it was said.
func (m *Manager) findSaid(
	ctx context.Context, kind store.Kind, id string, said *Said, do func(*pool.Open, store.Record) error,
) error {
	unsure, in := false, ""
	if said != nil {
		in = m.poolNamedBy(said.PV)
	}
	err := m.search(ctx, id, func(o *pool.Open) (bool, error) {
		r, err := store.ReadKind(o.Disk, id, kind)
		if err != nil {
			return false, err
		}
		r.Pool = o.Name // the pool's name in the configuration may have changed since
		switch {
		case isOfSeveral(r) && said == nil && m.mayBeTwice(id):
			unsure = true
			return true, nil
		case m.isElsewhere(r, in):
			return false, nil
		}
		return true, do(o, r)
	})
	if err != nil || !unsure {
		return err
	}
	if said, err = m.getPV(ctx, id); err != nil {
		return err
	}
	return m.findSaid(ctx, kind, id, said, do)
}

// getPV asks the cluster for the PersistentVolume of a volume.
func (m *Manager) getPV(ctx context.Context, id string) (*Said, error) {
	pv, named, err := m.Cluster.Get(ctx, id)
	if err != nil {
		return nil, fmt.Errorf("see whether a PersistentVolume names %s: %w", id, err)
	}
	return &Said{pv, named}, nil
}

// search runs look on open pools until it has found a volume, on those first that know it. store.ErrNotFound where
// every pool that can be used was asked; pool.ErrAbsent where one that this node has used cannot be.
func (m *Manager) search(ctx context.Context, id string, look func(*pool.Open) (found bool, err error)) error {
	if err := nodeapi.ValidateID(id); err != nil {
		return err
	}
	names := m.Pools.Names()
	if known, _, ok := m.Pools.Find(id); ok {
		i := slices.Index(names, known)
		names = slices.Insert(slices.Delete(names, i, i+1), 0, known)
	}
	var troubles []error
	for _, name := range names {
		found := false
		err := m.Pools.Use(ctx, name, func(o *pool.Open) (err error) {
			found, err = look(o)
			return err
		})
		switch {
		case found:
			return err
		case err == nil, errors.Is(err, pool.ErrAbsent), errors.Is(err, pool.ErrNotHere),
			errors.Is(err, store.ErrNotFound):
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
	return fmt.Errorf("%w: no pool on this node has %s", store.ErrNotFound, id)
}

// findOrAdopt is find, and where there is no record a look at the PersistentVolume: it may name a directory that
// another driver made, or a pool that cannot be used here. The cluster is asked for it unless it was said.
func (m *Manager) findOrAdopt(
	ctx context.Context, id string, said *Said, do func(*pool.Open, store.Record) error,
) error {
	missing := m.findSaid(ctx, store.OfVolume, id, said, do)
	if !errors.Is(missing, store.ErrNotFound) {
		return missing
	}
	if said == nil {
		var err error
		if said, err = m.getPV(ctx, id); err != nil {
			return err
		}
	}
	if !said.Named {
		return missing
	}
	if adopted, err := m.adoptNamed(ctx, said.PV); err != nil || !adopted {
		return cmp.Or(err, missing)
	}
	return m.findSaid(ctx, store.OfVolume, id, said, do)
}

// dataOf looks at the directory of a volume, which must be there.
func dataOf(o *pool.Open, r store.Record) (disk.Info, error) {
	if r.Filling() {
		return disk.Info{}, fmt.Errorf("%w: %s is a copy of %s", ErrFilling, r.ID, r.Source)
	}
	info, ok, err := store.Directory(o.Disk, r.ID)
	if err == nil && !ok {
		err = lostError(r)
	}
	return info, err
}

func lostError(r store.Record) error {
	return fmt.Errorf("%w: the record of %s is there but its directory csi/%s in pool %s is gone; restore it, or "+
		"delete the claim", ErrLost, r.ID, r.ID, r.Pool)
}
