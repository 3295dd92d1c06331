package pool

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/disk"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/guard"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/store"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/abridge"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/logging"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/poolspec"
)

// Forget makes the node forget a pool's identity: the way out for a disk replaced on purpose, and for
// PersistentVolumes of a pool that this node does not have. A pool that is there is refused (ErrPresent).
func (s *Set) Forget(ctx context.Context, name string) error {
	if !poolspec.ValidName(name) {
		return fmt.Errorf("%w: %q is no pool's name; want 1 to 63 of a-z, 0-9 and -", ErrUnknown, name)
	}
	p := s.find(name)
	if p != nil {
		p.Check(ctx)
	}
	var err error
	switch {
	case p == nil:
		err = s.remember(name, guard.Memory{Forgotten: true})
	case p.spec.Name != name:
		err = fmt.Errorf("%w: pool %s is %s now", ErrPresent, name, p.spec.Name)
	case p.left:
		err = p.forgetLeft()
	default:
		err = p.forget()
	}
	if err != nil {
		return err
	}
	s.Log.Warn("a pool was forgotten", logging.KeyPool, name)
	return nil
}

// forget drops the identity of a configured pool: what is at its path now is adopted. So are those names forgotten that
// it had.
func (p *Pool) forget() error {
	p.use.Lock()
	defer p.use.Unlock()
	known := p.known()
	if known.id != "" {
		return fmt.Errorf("%w: pool %s is there, nothing needs to be forgotten; unmount or move its filesystem first",
			ErrPresent, p.spec.Name)
	}
	if d, f, err := p.decide(); err == nil && f.Belongs != "" { // forgotten both, each would serve the other's volumes
		return fmt.Errorf("%w: %s", ErrPresent, d.Message)
	}
	for name, m := range p.set.remembering(p.set.remembered(p.spec.Name).ID) {
		if m.ID != "" && m.Successor == p.spec.Name {
			if err := p.set.remember(name, guard.Memory{Forgotten: true, Path: m.Path}); err != nil {
				return err
			}
		}
	}
	return p.set.remember(p.spec.Name, guard.Memory{Forgotten: true, Path: p.spec.Path})
}

// empty refuses a pool that has volumes, or directories that may be some. It needs the pool's locks.
func (p *Pool) empty() (err error) {
	d, _, err := guard.Open(p.host, p.spec.Path, p.known().id)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	ids, refused, err := store.List(d)
	if err != nil {
		return err
	}
	entries, err := d.ReadDir(".")
	if err != nil {
		return err
	}
	has := slices.Concat(ids, refused)
	for _, e := range entries {
		if e.Name != disk.MetaDir && nodeapi.ValidateID(e.Name) == nil {
			has = append(has, e.Name)
		}
	}
	if len(has) > 0 {
		slices.Sort(has)
		return fmt.Errorf("%w: pool %s still has volumes in %s/csi: %s; delete their claims first, or move what "+
			"belongs to nobody away", ErrPresent, p.spec.Name, p.spec.Path, abridge.Names(slices.Compact(has)))
	}
	return nil
}

// forgetLeft ends a pool that left the configuration. One that is absent may have volumes: they are given up.
func (p *Pool) forgetLeft() error {
	p.refreshing.Lock()
	defer p.refreshing.Unlock()
	p.use.Lock()
	defer p.use.Unlock()
	if p.known().id != "" {
		if err := p.empty(); err != nil {
			return err
		}
	}
	if err := p.set.remember(p.spec.Name, guard.Memory{Path: p.spec.Path, Forgotten: true}); err != nil {
		return err
	}
	p.close()
	return nil
}
