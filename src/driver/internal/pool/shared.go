package pool

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"path"
	"slices"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/disk"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/guard"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/ledger"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/recovery"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/store"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/logging"
)

// rescanInterval is how often a shared pool is looked through for what other nodes have made and removed.
const rescanInterval = 30 * time.Second

func (p *Pool) shared() bool { return p.spec.Shared() }

// SetExpected takes note of what the controller says of shared pools, by name. It replaces what it said before.
func (s *Set) SetExpected(expected map[string]guard.Expected) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.expected = expected
}

func (p *Pool) expected() guard.Expected {
	p.set.mu.Lock()
	defer p.set.mu.Unlock()
	expected := p.set.expected[p.spec.Name]
	expected.Make = expected.Make || p.set.Alone
	return expected
}

// Twins are the other nodes that show the marker of a pool which is not shared, as the controller sees it.
func (s *Set) Twins(name string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.expected[name].Twins
}

// expects reports whether a pool's id is not another one than the controller says.
func (s *Set) expects(name, id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	expected := s.expected[name].ID
	return expected == "" || expected == id
}

// awaitConfirmation reports whether a pool was taken into use that the controller has not confirmed. No volume is made
// there until it has: another controller may have let another node make the pool.
func (p *Pool) awaitConfirmation(id string, f guard.Facts) bool {
	if id == "" || !p.shared() || p.left || p.set.Alone || f.Expected.ID != "" {
		return false
	}
	p.ledger.Close("waiting for the controller to say that all nodes have this filesystem")
	return true
}

// idsOf are the ids of a pool's marker, as this node remembers it and as the controller says it.
func (s *Set) idsOf(name string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return []string{s.memory[name].ID, s.expected[name].ID}
}

// clearGone forgets that a node is gone whose directories were cleared: it may return, and the controller be away then.
func (p *Pool) clearGone(node string) {
	p.set.mu.Lock()
	defer p.set.mu.Unlock()
	expected := p.set.expected[p.spec.Name]
	expected.Gone = leaveOut(expected.Gone, node)
	p.set.expected[p.spec.Name] = expected
}

// rescan takes note of what other nodes have done in an open shared pool, if that is due.
func (p *Pool) rescan(ctx context.Context, o *Open) {
	if !p.shared() || p.set.Now().Before(p.known().rescanDue) {
		return
	}
	others, err := disk.OtherNodes(o.Disk)
	if err == nil {
		err = cmp.Or(p.resyncLedger(o), p.ensureNodeDirs(o.Disk))
	}
	if err != nil {
		p.log.Warn("cannot see what other nodes have done in a shared pool", logging.KeyError, err)
	}
	for _, node := range p.expected().Gone {
		if !slices.Contains(others, node) || p.known().space.ReadOnly || !p.owned(o) {
			continue
		}
		if err := p.recoverNodeDir(ctx, o, node); err != nil {
			p.log.Warn("cannot clear what a node has left in a shared pool", logging.KeyNode, node, logging.KeyError,
				err)
			continue
		}
		p.clearGone(node)
		p.log.Info("cleared what a node had left in a shared pool", logging.KeyNode, node)
		others = leaveOut(others, node)
	}
	p.update(func(s *state) { s.otherNodes, s.rescanDue = others, p.set.Now().Add(rescanInterval) })
}

// ensureNodeDirs makes this node's own directories again where somebody has removed them.
func (p *Pool) ensureNodeDirs(d disk.FS) error {
	for _, dir := range nodeDirs() {
		if _, err := d.Stat(dir); errors.Is(err, fs.ErrNotExist) && !p.known().space.ReadOnly {
			return ensureLayout(d)
		}
	}
	return nil
}

// resyncLedger makes the ledger one of all volumes.
func (p *Pool) resyncLedger(o *Open) error {
	before := map[string]bool{} // what is made from now on is not missing
	p.ledger.Each(func(id string, _ ledger.Volume) { before[id] = true })
	placed, _, err := store.List(o.Disk)
	if err != nil {
		return err
	}
	there := map[string]bool{}
	for _, id := range placed {
		there[id] = true
		if _, known := p.ledger.Get(id); known {
			continue
		}
		if r, err := store.Read(o.Disk, id); err == nil {
			p.ledger.Put(id, recovery.Volume(r))
		}
	}
	for id := range before {
		if !there[id] {
			p.ledger.Drop(id)
		}
	}
	return nil
}

// recoverNodeDir recovers what a node has left that will not come back, adopts its trash, and removes its directories.
func (p *Pool) recoverNodeDir(ctx context.Context, o *Open, node string) error {
	left := disk.NodeView(o.Disk, node)
	for _, dir := range nodeDirs() { // one of them may be missing
		if err := left.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	_, err := recovery.Run(ctx, store.Pool{Disk: left, Limits: o.Limits, Backend: o.Backend, Log: p.log})
	if err != nil {
		return err
	}
	entries, err := left.ReadDir(disk.TrashDir)
	for i := 0; i < len(entries) && err == nil; i++ {
		err = p.adoptTrash(o.Disk, left, path.Join(disk.TrashDir, entries[i].Name), node)
	}
	for _, dir := range nodeDirs() {
		err = cmp.Or(err, left.Remove(dir))
	}
	return err
}

func nodeDirs() []string { return []string{disk.TrashDir, disk.StagingDir} }

// adoptTrash moves an entry of another node's trash to the same place in this node's, which has its own spare
// directory.
func (p *Pool) adoptTrash(own, from disk.FS, name, node string) error {
	dir, base := path.Split(name)
	err := disk.AllNodes(own).Rename(path.Join(dir, node, base), path.Join(dir, p.set.Node, base))
	if errors.Is(err, fs.ErrExist) && base == store.SpareName {
		return from.Remove(name)
	}
	return err
}
