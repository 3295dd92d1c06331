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

// catchUpInterval is how often a shared pool is looked through for what other nodes have made and removed.
const catchUpInterval = 30 * time.Second

func (p *Pool) shared() bool { return p.spec.Shared() }

// Tell takes note of what the controller says of shared pools, by name. It replaces what it said before.
func (s *Set) Tell(told map[string]guard.Told) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.told = told
}

func (p *Pool) told() guard.Told {
	p.set.mu.Lock()
	defer p.set.mu.Unlock()
	told := p.set.told[p.spec.Name]
	told.Make = told.Make || p.set.Alone
	return told
}

// Twins are the other nodes that show the marker of a pool which is not shared, as the controller sees it.
func (s *Set) Twins(name string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.told[name].Twins
}

// expects reports whether a pool's id is not another one than the controller says.
func (s *Set) expects(name, id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	told := s.told[name].ID
	return told == "" || told == id
}

// awaitConfirmation reports whether a pool was taken into use that the controller has not confirmed. No volume is made
// there until it has: another controller may have let another node make the pool.
func (p *Pool) awaitConfirmation(id string, f guard.Facts) bool {
	if id == "" || !p.shared() || p.left || p.set.Alone || f.Told.ID != "" {
		return false
	}
	p.ledger.Close("waiting for the controller to say that all nodes have this filesystem")
	return true
}

// idsOf are the ids of a pool's marker, as this node remembers it and as the controller says it.
func (s *Set) idsOf(name string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return []string{s.memory[name].ID, s.told[name].ID}
}

// inherited forgets that a node is gone whose room was cleared: it may return, and the controller be away then.
func (p *Pool) inherited(node string) {
	p.set.mu.Lock()
	defer p.set.mu.Unlock()
	told := p.set.told[p.spec.Name]
	told.Gone = slices.DeleteFunc(slices.Clone(told.Gone), func(gone string) bool { return gone == node })
	p.set.told[p.spec.Name] = told
}

// catchUp takes note of what other nodes have done in an open shared pool, if that is due.
func (p *Pool) catchUp(ctx context.Context, o *Open) {
	if !p.shared() || p.set.Now().Before(p.known().catchUpDue) {
		return
	}
	rooms, err := disk.OtherRooms(o.Disk)
	if err == nil {
		err = cmp.Or(p.count(o), p.keepRoom(o.Disk))
	}
	if err != nil {
		p.log.Warn("cannot see what other nodes have done in a shared pool", logging.KeyError, err)
	}
	for _, node := range p.told().Gone {
		if !slices.Contains(rooms, node) || p.known().space.ReadOnly || !p.owned(o) {
			continue
		}
		if err := p.inherit(ctx, o, node); err != nil {
			p.log.Warn("cannot clear what a node has left in a shared pool", logging.KeyNode, node, logging.KeyError, err)
			continue
		}
		p.inherited(node)
		p.log.Info("cleared what a node had left in a shared pool", logging.KeyNode, node)
		rooms = slices.DeleteFunc(rooms, func(room string) bool { return room == node })
	}
	p.update(func(s *state) { s.rooms, s.catchUpDue = rooms, p.set.Now().Add(catchUpInterval) })
}

// keepRoom makes this node's room again where somebody has removed it.
func (p *Pool) keepRoom(d disk.FS) error {
	for _, dir := range rooms() {
		if _, err := d.Stat(dir); errors.Is(err, fs.ErrNotExist) && !p.known().space.ReadOnly {
			return ensureLayout(d)
		}
	}
	return nil
}

// count makes the ledger one of all volumes.
func (p *Pool) count(o *Open) error {
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

// inherit recovers what a node has left that will not come back, takes over its trash, and removes its room.
func (p *Pool) inherit(ctx context.Context, o *Open, node string) error {
	room := disk.RoomOf(o.Disk, node)
	for _, dir := range rooms() { // one of them may be missing
		if err := room.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	_, err := recovery.Run(ctx, store.Pool{Disk: room, Limits: o.Limits, Backend: o.Backend, Log: p.log})
	if err != nil {
		return err
	}
	entries, err := room.ReadDir(disk.TrashDir)
	for i := 0; i < len(entries) && err == nil; i++ {
		err = p.takeOver(o.Disk, room, path.Join(disk.TrashDir, entries[i].Name), node)
	}
	for _, dir := range rooms() {
		err = cmp.Or(err, room.Remove(dir))
	}
	return err
}

func rooms() []string { return []string{disk.TrashDir, disk.StagingDir} }

// takeOver moves something from another room to the same place in this node's, which has its own spare directory.
func (p *Pool) takeOver(own, room disk.FS, name, node string) error {
	dir, base := path.Split(name)
	err := disk.Whole(own).Rename(path.Join(dir, node, base), path.Join(dir, p.set.Node, base))
	if errors.Is(err, fs.ErrExist) && base == store.SpareName {
		return room.Remove(name)
	}
	return err
}
