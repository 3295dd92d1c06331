package pool

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/poolfs"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/trash"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/volume"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/logging"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/poolspec"
)

// Events tells people what happened to a pool, on the Node object.
type Events interface {
	Normal(reason, message string)
	Warning(reason, message string)
}

// Recoverer puts a pool in order when it becomes present.
type Recoverer interface {
	Recover(ctx context.Context, p volume.Pool, disk poolfs.FS) (volume.Report, error)
	// Published tells whether a volume is mounted anywhere on this node.
	Published(id string) bool
}

// Config is what a set is made of; every field but SystemPaths and OSPaths is required.
type Config struct {
	Specs   []poolspec.Pool
	Disk    poolfs.Disk
	State   poolfs.FS // the open state directory; stays open
	Cluster volume.Cluster
	Events  Events
	Purger  *trash.Purger
	Log     *slog.Logger
	Now     func() time.Time
	// SystemPaths are paths on the host whose filesystems are no pool's own: /, the kubelet's directory, the state directory.
	SystemPaths []string
	// OSPaths are those of them that a full pool would take the node down with: / and the kubelet's directory.
	OSPaths []string
}

// Set is all pools of a node. It implements volume.Pools.
type Set struct {
	Config
	recoverer Recoverer
	state     state
	pools     []*Pool // by name

	// changed says that a pool has come, gone, or been looked at for the first time.
	changed chan struct{}

	// adopting is held while a pool is taken into use for the first time.
	adopting sync.Mutex
	known    known
	ranges   ranges

	mu       sync.Mutex
	memory   map[string]memory // pools that the configuration no longer holds
	labelled bool              // the node's labels are known
}

func (c Config) incomplete() bool {
	return c.Disk == nil || c.State == nil || c.Cluster == nil || c.Events == nil || c.Purger == nil || c.Log == nil || c.Now == nil
}

// New reads what the node remembers. Nothing on a pool's disk is touched before Use and Run.
func New(c Config) (*Set, error) {
	if c.incomplete() {
		return nil, errors.New("pool set: a field of its Config is missing")
	}
	st, err := newState(c.State)
	if err != nil {
		return nil, err
	}
	remembered, err := st.all()
	if err != nil {
		return nil, err
	}
	s := &Set{Config: c, state: st, memory: remembered, changed: make(chan struct{}, 1)}
	for _, spec := range c.Specs {
		var m *memory
		if known, ok := remembered[spec.Name]; ok {
			m = &known
			delete(remembered, spec.Name)
		}
		s.pools = append(s.pools, newPool(s, spec, m))
	}
	slices.SortFunc(s.pools, func(a, b *Pool) int { return strings.Compare(a.spec.Name, b.spec.Name) })
	s.selectBy(nil)
	return s, nil
}

// Use names who recovers pools; it must come before any pool is opened.
func (s *Set) Use(r Recoverer) { s.recoverer = r }

// SetNodeLabels decides anew in which pools this node makes volumes. Until it is first called, a pool with a nodeSelector that was
// never used here is absent.
func (s *Set) SetNodeLabels(labels map[string]string) {
	s.selectBy(labels)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.labelled = true
}

// unlabelled tells that nobody knows yet whether this node is selected.
func (s *Set) unlabelled(spec poolspec.Pool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(spec.NodeSelector) > 0 && !s.labelled
}

// selectBy compares the labels with every pool's nodeSelector.
func (s *Set) selectBy(labels map[string]string) {
	for _, p := range s.pools {
		selected := true
		for key, value := range p.spec.NodeSelector {
			has, ok := labels[key]
			selected = selected && ok && has == value
		}
		p.ledger.setSelected(selected)
	}
}

// Get finds a pool by name.
func (s *Set) Get(name string) (volume.Pool, error) {
	if p := s.find(name); p != nil {
		return p, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.memory[name]; ok {
		return nil, fmt.Errorf("%w: pool %s: %s", volume.ErrPoolAbsent, name, takenOut(name))
	}
	return nil, fmt.Errorf("%w: storagePool %q; configured are: %s", volume.ErrPoolUnknown, name, s.names())
}

func takenOut(name string) string {
	return "it was taken out of the configuration; put it back, or if its volumes are gone: driver pool forget " + name
}

func (s *Set) find(name string) *Pool {
	for _, p := range s.pools {
		if p.spec.Name == name {
			return p
		}
	}
	return nil
}

func (s *Set) names() string {
	if len(s.pools) == 0 {
		return "none"
	}
	var names []string
	for _, p := range s.pools {
		names = append(names, p.spec.Name)
	}
	return strings.Join(names, ", ")
}

// All are the configured pools.
func (s *Set) All() []volume.Pool {
	all := make([]volume.Pool, 0, len(s.pools))
	for _, p := range s.pools {
		all = append(all, p)
	}
	return all
}

// Inline tells whether a pool takes CSI inline ephemeral volumes.
func (s *Set) Inline(name string) bool {
	p := s.find(name)
	return p != nil && p.spec.Inline
}

// TakenOut names the pools that only this node remembers, each with the way out.
func (s *Set) TakenOut() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var names []string
	for name := range s.memory {
		names = append(names, fmt.Sprintf("pool %s: %s", name, takenOut(name)))
	}
	slices.Sort(names)
	return names
}

// Capacity is the room in a pool, for growth too, and the largest volume that could be made there, in bytes. That is 0 where
// none can be made: not selected here, maxVolumes reached. Both are 0 where a quota that is required is off, because volumes do not grow there
// either, and where the pool is absent or unknown, because an error would leave an old number standing in the cluster.
func (s *Set) Capacity(ctx context.Context, name string) (room, maximum int64, err error) {
	p := s.find(name)
	if p == nil {
		return 0, 0, nil
	}
	disk, err := p.Open(ctx)
	if errors.Is(err, volume.ErrPoolAbsent) || errors.Is(err, volume.ErrPoolNotHere) {
		return 0, 0, nil
	}
	if err != nil {
		return 0, 0, err
	}
	defer func() { _ = disk.Close() }()
	space, err := disk.Space()
	if err != nil {
		s.Log.Error("cannot read a pool's free space", logging.KeyPool, name, logging.KeyError, err)
		return 0, 0, nil
	}
	p.countUse(disk)
	t := p.ledger.totals(space)
	return t.room, t.largest, nil
}

// Forget makes the node forget a pool's identity: the way out for a disk replaced on purpose. A pool that is there is refused.
func (s *Set) Forget(ctx context.Context, name string) error {
	if p := s.find(name); p != nil {
		return p.forget(ctx)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.memory[name]; !ok {
		return fmt.Errorf("%w: this node remembers no pool %q", volume.ErrPoolUnknown, name)
	}
	if err := s.state.remove(name); err != nil {
		return err
	}
	delete(s.memory, name)
	s.Log.Warn("a pool was forgotten", logging.KeyPool, name)
	return nil
}

func (p *Pool) forget(ctx context.Context) error {
	p.Check(ctx)
	p.use.Lock()
	defer p.use.Unlock()
	if p.presentID() != "" {
		return fmt.Errorf("%w: pool %s is present, there is nothing to forget; unmount or move its filesystem first", volume.ErrInvalid, p.spec.Name)
	}
	m := memory{Path: p.spec.Path, Forgotten: true}
	if err := p.set.state.put(p.spec.Name, m); err != nil {
		return err
	}
	p.setMemory(&m)
	p.set.Log.Warn("a pool was forgotten; what is at its path now is adopted", logging.KeyPool, p.spec.Name)
	return nil
}

// isOn tells whether a device holds one of the host's paths. Not to know is an error: a pool that requires a mount must
// not be made on the root filesystem for it.
func (s *Set) isOn(dev uint64, paths []string) (bool, error) {
	for _, path := range paths {
		system, err := s.Disk.Device(path)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return false, fmt.Errorf("see which filesystem %s is on: %w", path, err)
		}
		if err == nil && system == dev {
			return true, nil
		}
	}
	return false, nil
}

// twin names another configured pool that has the same marker.
func (s *Set) twin(p *Pool, id string) string {
	for _, other := range s.pools {
		if m := other.memory(); other != p && m != nil && m.ID == id {
			return other.spec.Name
		}
	}
	return ""
}
