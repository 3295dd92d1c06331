package pool

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/guard"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/logging"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/poolspec"
)

// forever is a retention that does not end.
const forever = poolspec.Duration(100 * 365 * 24 * time.Hour)

// servedBy is the configuration by which a pool is served that was remembered with one. Deleted volumes that were to be
// kept for some time are kept: whoever took the pool out of the configuration did not say for how long.
func servedBy(spec poolspec.Pool) poolspec.Pool {
	spec.NodeSelector, spec.Trash.PurgeWhenFull = nil, false
	if spec.Trash.Retention > 0 {
		spec.Trash.Retention = forever
	}
	return spec
}

// leftPools are those that this node remembers with their configuration, and the driver's own does not have.
func (s *Set) leftPools() (specs []poolspec.Pool) {
	for name, m := range s.memory {
		if spec := m.Served(name); spec != nil && s.find(name) == nil {
			specs = append(specs, *spec)
		}
	}
	return specs
}

// ended reports whether a pool that left the configuration is no more: it was forgotten, or renamed.
func (p *Pool) ended() bool {
	if !p.left {
		return false
	}
	m := p.set.remembered(p.spec.Name)
	return m.ID == "" || (m.Successor != "" && p.set.has(m.Successor))
}

// has reports whether a pool is configured, or remembered and served.
func (s *Set) has(name string) bool {
	for _, p := range s.pools {
		if p.spec.Name == name {
			return !p.left || s.remembered(name).ID != ""
		}
	}
	return false
}

// succeed notes that a configured pool has the marker of others that are not configured: it was renamed. Theirs is the
// filesystem no longer, before anything is done there under its new name.
func (p *Pool) succeed(id string) error {
	configured := p.set.configuredNames()
	for name, m := range p.set.remembering(id) {
		if slices.Contains(configured, name) || m.Successor == p.spec.Name {
			continue
		}
		m.Successor = p.spec.Name
		if err := p.set.remember(name, m.Memory); err != nil {
			return err
		}
		p.log.Info("a pool was renamed", logging.KeyMessage, name+" is "+p.spec.Name+" now")
	}
	for _, other := range p.set.pools {
		if other.ended() && other.known().id != "" {
			other.retire()
		}
	}
	return nil
}

func (s *Set) remembering(id string) map[string]guard.Remembered {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := maps.Clone(s.memory)
	maps.DeleteFunc(all, func(_ string, m guard.Remembered) bool { return m.ID != id })
	return all
}

// retire waits for what is under way in a pool, and ends it.
func (p *Pool) retire() {
	p.refreshing.Lock()
	defer p.refreshing.Unlock()
	p.use.Lock()
	defer p.use.Unlock()
	p.close()
}

// close makes a pool one that is not there. It needs the pool's locks.
func (p *Pool) close() {
	p.ledger.Reset(false)
	p.update(func(s *state) {
		s.id, s.now = "", guard.Absent(nodeapi.ReasonNotConfigured, "the configuration no longer has it")
	})
}

// note remembers a pool that is used, with its configuration.
func (p *Pool) note(id string) error {
	m := p.set.remembered(p.spec.Name).Memory
	if !p.left {
		m = guard.Memory{ID: id, Path: p.spec.Path, Spec: &p.spec}
	}
	if p.shared() {
		m.Owner = p.owner()
	}
	return p.set.remember(p.spec.Name, m)
}

// why is the message of a decision against a pool, with what that means for one that left the configuration.
func (p *Pool) why(d guard.Decision) string {
	if p.left && d.Action == guard.Refuse {
		return d.Message + "; " + notConfigured(p.spec.Name)
	}
	return d.Message
}

// served says what becomes of a pool that left the configuration.
func (p *Pool) served() string {
	return fmt.Sprintf("the configuration no longer has it: its volumes at %s are served, no new ones are made; put "+
		"it back, or once its volumes are deleted: kubectl hpp pool forget %s --node NODE", p.spec.Path, p.spec.Name)
}
