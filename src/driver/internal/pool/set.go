// Package pool is storage pools at run time: whether each can be used now, what it has, and the loop that watches,
// recovers and purges it. It owns its disk: nobody else keeps a pool open.
package pool

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/disk"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/guard"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/ledger"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/purge"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/quota"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/poolspec"
)

// Errors of pools.
var (
	ErrUnknown   = errors.New("pool is in no configuration") // neither configured nor remembered
	ErrAbsent    = errors.New("pool is absent")              // configured or remembered, not usable now
	ErrNotHere   = errors.New("pool is not used on this node")
	ErrAmbiguous = errors.New("no pool is named")
	ErrSeveral   = errors.New("no class can name these pools")
	ErrPresent   = errors.New("pool is present")
)

// PVs lists the PersistentVolumes of this driver, on all nodes.
type PVs interface {
	List(ctx context.Context) ([]nodeapi.PersistentVolume, error)
}

// Config is what a set is made of; every field but Alone, SystemPaths and OSPaths is required.
type Config struct {
	Specs  []poolspec.Pool
	Host   disk.Host
	State  disk.FS // the open state directory; stays open
	PVs    PVs
	Quotas *quota.Quotas
	Log    *slog.Logger
	Now    func() time.Time
	// Synchronised reports whether the kernel calls the clock so.
	Synchronised func() bool
	// Node names this node's directories in shared pools. Without a controller, Alone, it takes them into use by
	// itself.
	Node  string
	Alone bool
	// SystemPaths are the host's paths whose filesystems are no pool's own: /, the kubelet's and the state directory.
	SystemPaths []string
	// OSPaths are those of them that a full pool would take the node down with: / and the kubelet's directory.
	OSPaths []string
}

// Set is all pools of a node.
type Set struct {
	Config
	state    guard.State
	started  time.Time
	pools    []*Pool     // by name: those configured, and those that left the configuration
	labelled atomic.Bool // the node's labels are known

	// adopting is locked while a pool is first taken into use: two with one directory must not both find it new.
	adopting sync.Mutex
	cache    pvCache

	mu        sync.Mutex
	memory    map[string]guard.Remembered // of pools that the configuration does not have too
	expected  map[string]guard.Expected   // of shared pools
	listeners []chan struct{}
}

func (c Config) complete() bool {
	return c.Host != nil && c.State != nil && c.PVs != nil && c.Quotas != nil && c.Log != nil &&
		c.Now != nil && c.Synchronised != nil && c.Node != ""
}

// New reads what the node remembers. Nothing on a pool's disk is touched before Use and Run.
func New(c Config) (*Set, error) {
	if !c.complete() {
		return nil, errors.New("pool set: a field of its Config is missing")
	}
	state, err := guard.NewState(c.State)
	if err != nil {
		return nil, err
	}
	memory, err := state.All()
	if err != nil {
		return nil, err
	}
	s := &Set{Config: c, state: state, started: c.Now(), memory: memory}
	purger := purge.NewPurger(purge.NewClock(c.Now, c.Synchronised, c.State))
	for _, spec := range c.Specs {
		s.pools = append(s.pools, newPool(s, spec, purger))
	}
	for _, spec := range s.leftPools() {
		p := newPool(s, servedBy(spec), purger)
		p.left = true
		p.ledger.Select(false)
		s.pools = append(s.pools, p)
	}
	slices.SortFunc(s.pools, func(a, b *Pool) int { return strings.Compare(a.spec.Name, b.spec.Name) })
	return s, nil
}

// Use runs do on an open pool, whose marker was just compared. ErrUnknown for a pool of no configuration, ErrAbsent or
// ErrNotHere with the reason where it cannot be used. do must not call Use.
func (s *Set) Use(ctx context.Context, name string, do func(*Open) error) error {
	p := s.find(name)
	if p == nil {
		if _, ok := s.abandoned()[name]; ok {
			return fmt.Errorf("%w: pool %s: %s", ErrAbsent, name, notConfigured(name))
		}
		return fmt.Errorf("%w: storagePool %q; configured are: %s", ErrUnknown, name, s.names())
	}
	o := p.open()
	if o == nil {
		p.refresh(ctx)
		o = p.open()
	}
	if o == nil {
		now, kind := p.known().now, ErrAbsent
		if now.Action == guard.Skip {
			kind = ErrNotHere
		}
		return fmt.Errorf("%w: pool %s: %s", kind, name, p.why(now))
	}
	defer o.close()
	return do(o)
}

// find gives a pool by its name, or by one that it had.
func (s *Set) find(name string) *Pool {
	wanted := []string{name, s.remembered(name).Successor}
	for _, name := range wanted {
		for _, p := range s.pools {
			if p.spec.Name == name && !p.ended() {
				return p
			}
		}
	}
	return nil
}

// Names are those of the pools that can have volumes, sorted: of the configured ones, and of those that have left the
// configuration.
func (s *Set) Names() []string { return s.namesOf((*Pool).ended) }

func (s *Set) namesOf(leaveOut func(*Pool) bool) []string {
	names := make([]string, 0, len(s.pools))
	for _, p := range s.pools {
		if !leaveOut(p) {
			names = append(names, p.spec.Name)
		}
	}
	return names
}

// configuredNames are those of the configured pools, sorted.
func (s *Set) configuredNames() []string { return s.namesOf(func(p *Pool) bool { return p.left }) }

func (s *Set) names() string { return cmp.Or(strings.Join(s.configuredNames(), ", "), "none") }

// Find gives the pool whose ledger has a volume, and what that knows of it.
func (s *Set) Find(id string) (pool string, v ledger.Volume, ok bool) {
	for _, p := range s.pools {
		if v, ok := p.ledger.Get(id); ok && !p.ended() {
			return p.spec.Name, v, true
		}
	}
	return "", v, false
}

// Holders are the pools whose ledgers have a volume.
func (s *Set) Holders(id string) (pools []string) {
	for _, p := range s.pools {
		if _, ok := p.ledger.Get(id); ok && !p.ended() {
			pools = append(pools, p.spec.Name)
		}
	}
	return pools
}

// Each visits the volumes of all ledgers. visit must not call the set.
func (s *Set) Each(visit func(pool, id string, v ledger.Volume)) {
	for _, p := range s.pools {
		p.ledger.Each(func(id string, v ledger.Volume) { visit(p.spec.Name, id, v) })
	}
}

// CopyOf is a copy of a source that is not whole, "" where there is none.
func (s *Set) CopyOf(source string) string {
	for _, p := range s.pools {
		if id := p.ledger.CopyOf(source); id != "" {
			return id
		}
	}
	return ""
}

// remembered is what the node knows of a pool from an earlier adoption.
func (s *Set) remembered(name string) guard.Remembered {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.memory[name]
}

// remember writes what the node is to know of a pool, unless it knows that already.
func (s *Set) remember(name string, m guard.Memory) error {
	if known := s.remembered(name); known.Err == nil && known.Equal(m) {
		return nil
	}
	if err := s.state.Put(name, m); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.memory[name] = guard.Remembered{Memory: m}
	return nil
}

// abandoned is what the node remembers of pools that the configuration no longer has, and that cannot be served because
// it does not remember how they were configured.
func (s *Set) abandoned() map[string]guard.Remembered {
	s.mu.Lock()
	all := maps.Clone(s.memory)
	s.mu.Unlock()
	maps.DeleteFunc(all, func(name string, m guard.Remembered) bool { return m.Forgotten || s.find(name) != nil })
	return all
}

func notConfigured(name string) string {
	return "the configuration no longer has it; put it back, or if its volumes are gone: kubectl hpp pool forget " +
		name + " --node NODE"
}

// Absent says which pools that this node has ever used, or that all nodes have, cannot be used now, and why.
func (s *Set) Absent() []string {
	var absent []string
	for _, p := range s.Status() {
		expected := p.Used || p.Shared && !s.remembered(p.Name).Forgotten && p.Reason != nodeapi.ReasonNotSelected
		if expected && !p.Served() {
			absent = append(absent, fmt.Sprintf("pool %s: %s", p.Name, p.Message))
		}
	}
	slices.Sort(absent)
	return absent
}

// Usable is nil where volumes of a pool can be used now, or are gone because it was forgotten; else it says why not.
func (s *Set) Usable(ctx context.Context, name string) error {
	if s.remembered(name).Forgotten {
		return nil
	}
	if s.find(name) == nil {
		return fmt.Errorf("%w: pool %s is not configured on this node; if its volumes are gone: kubectl hpp pool "+
			"forget %s --node NODE", ErrAbsent, name, name)
	}
	err := s.Use(ctx, name, func(*Open) error { return nil })
	if errors.Is(err, ErrNotHere) {
		return nil
	}
	return err
}

// Changed gives a channel that receives when there is news of whether pools can be used, or of untracked directories.
func (s *Set) Changed() <-chan struct{} {
	listener := make(chan struct{}, 1)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.listeners = append(s.listeners, listener)
	return listener
}

func (s *Set) changed() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, listener := range s.listeners {
		select {
		case listener <- struct{}{}:
		default: // whoever listens has yet to look, and will see this change too
		}
	}
}
