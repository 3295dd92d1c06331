package volume

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/poolfs"
)

// Block is what sizes are rounded up to, in bytes: the block size of every filesystem that volumes live on.
const Block = 4096

// Config is what a manager is made of; every field is required.
type Config struct {
	Pools   Pools
	Records Records
	Bin     Bin
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
	if c.Pools == nil || c.Records == nil || c.Bin == nil || c.Mounter == nil || c.Cluster == nil || c.Log == nil || c.Now == nil {
		return nil, errors.New("volume manager: a field of its Config is missing")
	}
	published, err := c.Mounter.Published()
	if err != nil {
		return nil, fmt.Errorf("learn what is published on this node: %w", err)
	}
	return &Manager{Config: c, targets: newTargets(published)}, nil
}

// located is a volume where it was found, its pool open.
type located struct {
	pool Pool
	disk poolfs.FS
	Record
}

// Close ends the use of the pool. An error of closing a directory tells nothing about the work done through it.
func (l located) Close() {
	if l.disk != nil {
		_ = l.disk.Close()
	}
}

// look says what a search may do besides reading.
type look bool

const (
	only     look = false // nothing: the caller holds no lock on the id
	adopting look = true  // make a record for a directory that a PersistentVolume names
)

// locate finds a volume by its record in whichever pool can be used, those first that know it. ErrNotFound is certain: no pool was
// absent when it was asked, and every one that could hold the volume was.
func (m *Manager) locate(ctx context.Context, id string, how look) (located, error) {
	if err := ValidateID(id); err != nil {
		return located{}, err
	}
	pools := m.Pools.All()
	slices.SortStableFunc(pools, func(a, b Pool) int { return knows(b, id) - knows(a, id) })
	var troubles []error
	absent := m.Pools.TakenOut()
	for _, p := range pools {
		found, err := m.lookIn(ctx, p, id, how)
		switch {
		case err == nil:
			return found, nil
		case errors.Is(err, ErrPoolAbsent):
			absent = append(absent, err.Error())
		case !errors.Is(err, ErrNotFound):
			troubles = append(troubles, err)
		}
	}
	switch {
	case len(troubles) > 0:
		return located{}, errors.Join(troubles...)
	case len(absent) > 0:
		return located{}, fmt.Errorf("%w: volume %s may be in a pool that cannot be used now: %s", ErrPoolAbsent, id, strings.Join(absent, "; "))
	default:
		return located{}, fmt.Errorf("%w: no pool on this node holds %s", ErrNotFound, id)
	}
}

func knows(p Pool, id string) int {
	if _, ok := p.Ledger().Get(id); ok {
		return 1
	}
	return 0
}

// lookIn looks for a volume in one pool.
func (m *Manager) lookIn(ctx context.Context, p Pool, id string, how look) (l located, err error) {
	disk, err := p.Open(ctx)
	if errors.Is(err, ErrPoolNotHere) { // never used on this node
		return located{}, ErrNotFound
	}
	if err != nil {
		return located{}, err
	}
	found := false
	defer func() {
		if !found {
			err = errors.Join(err, disk.Close())
		}
	}()
	r, err := m.Records.Read(disk, id)
	if errors.Is(err, ErrNotFound) && how == adopting {
		r, err = m.adopt(ctx, p, disk, id)
	}
	if err != nil {
		return located{}, err
	}
	r.Pool = p.Name() // the pool's name in the configuration may have changed since
	found = true
	return located{pool: p, disk: disk, Record: r}, nil
}

// exists tells whether a name below csi/ is a directory; anything else of that name is an error.
func exists(disk poolfs.FS, name string) (poolfs.Info, bool, error) {
	info, err := disk.Stat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return info, false, nil
	case err != nil:
		return info, false, fmt.Errorf("look at csi/%s: %w", name, err)
	case !info.Mode.IsDir():
		return info, false, fmt.Errorf("%w: csi/%s is no directory (%s); find out who put it there and move it away",
			ErrBroken, name, info.Mode.Type())
	}
	return info, true, nil
}

// Get answers what a volume is and how it is.
func (m *Manager) Get(ctx context.Context, id string) (Volume, Health, error) {
	l, err := m.locate(ctx, id, only)
	if err != nil {
		return Volume{}, Health{}, err
	}
	defer l.Close()
	_, ok, err := exists(l.disk, id)
	if err != nil {
		return Volume{}, Health{}, err
	}
	return m.answer(l.pool, l.Record), health(l.pool, l.Record, ok), nil
}

func (m *Manager) answer(p Pool, r Record) Volume {
	v := Volume{Record: r, Enforcement: None}
	// A volume that was made while no quota was on has no number, nor has an adopted one.
	if b := p.Backend(); r.ProjectID != 0 && r.Backend == b.Name() && owns(p, r) == nil {
		v.Enforcement = b.Enforcement()
	}
	return v
}

func health(p Pool, r Record, hasData bool) Health {
	err := owns(p, r)
	switch {
	case hasData && err != nil:
		return Health{Condition: Degraded, Reason: "NumberShared", Message: err.Error()}
	case hasData:
		return Health{Condition: Healthy, Reason: "Healthy", Message: "the volume's directory is there"}
	}
	return Health{
		Condition: DataLoss, Reason: "DirectoryMissing",
		Message: fmt.Sprintf("the record of volume %s is in pool %s but its directory csi/%s is gone; restore the directory, or delete the claim",
			r.ID, r.Pool, r.ID),
	}
}

// List gives up to limit volumes (0: all) whose id comes after the one given, by id; next is the last id where there are more.
func (m *Manager) List(_ context.Context, after string, limit int) (volumes []Volume, next string, err error) {
	holder := map[string]Pool{}
	var ids []string
	for _, p := range m.Pools.All() {
		for _, id := range p.Ledger().IDs() {
			if id > after {
				holder[id] = p
				ids = append(ids, id)
			}
		}
	}
	slices.Sort(ids)
	if limit > 0 && len(ids) > limit {
		ids = ids[:limit]
		next = ids[limit-1]
	}
	for _, id := range ids {
		if r, ok := holder[id].Ledger().Get(id); ok {
			volumes = append(volumes, m.answer(holder[id], r))
		}
	}
	return volumes, next, nil
}

// Stats is the use of a volume published at a path (any path where it is mounted), with the volume's health.
func (m *Manager) Stats(ctx context.Context, id, path string) (Stats, Health, error) {
	l, err := m.locate(ctx, id, only)
	if err != nil {
		return Stats{}, Health{}, err
	}
	defer l.Close()
	info, ok, err := exists(l.disk, id)
	if err != nil {
		return Stats{}, Health{}, err
	}
	mount, err := m.Mounter.Inspect(path)
	if err != nil {
		return Stats{}, Health{}, err
	}
	if !mount.Mounted || (ok && !same(mount, info)) {
		return Stats{}, Health{}, fmt.Errorf("%w: volume %s is not published at volume_path %s", ErrNotFound, id, path)
	}
	r := l.Record
	if owns(l.pool, r) != nil {
		r.ProjectID = 0 // what counts to it is another volume's
	}
	stats, err := l.pool.Backend().Stats(l.disk, id, r)
	return stats, health(l.pool, l.Record, ok), err
}

func same(mount Mount, info poolfs.Info) bool { return mount.Dev == info.Dev && mount.Ino == info.Ino }
