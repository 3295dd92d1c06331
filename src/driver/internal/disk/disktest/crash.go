package disktest

import (
	"bytes"
	"maps"
	"math/rand/v2"
	"slices"
)

// Crash is the disk as the machine finds it when it is up again and everything not synced is forgotten. The disk itself
// stays as it is, so that several ends of one story can be tried. What is mounted stays mounted.
func (d *Disk) Crash() *Disk {
	return d.after(func(n *node) state { return n.disk })
}

// CrashKeepingAll is the disk after a crash that came when everything had just been written back.
func (d *Disk) CrashKeepingAll() *Disk {
	return d.after(func(n *node) state { return n.now })
}

// Killed ends a crash of the driver alone and returns the disk itself: the kernel knows everything, and what was not
// synced can be lost later.
func (d *Disk) Killed() *Disk {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.faults.crash, d.faults.crashed = 0, false
	return d
}

// CrashRandom is the disk after a crash that lost some of what was not synced: each entry of a directory on its own,
// the owner and mode of each inode, the data of each file, of which also a part may be left. The two halves of a rename
// between directories may survive together, or only the new name (both names then lead to the same inode), or neither;
// that only the removal of the old name survives is possible when its directory was synced before the other one.
func (d *Disk) CrashRandom(rng *rand.Rand) *Disk {
	survives := d.toss(rng)
	return d.after(func(n *node) state { return chance(rng, n, survives) })
}

// home is one entry of a directory.
type home struct {
	dir  *node
	name string
}

// toss decides for every entry that is not on the disk as it is whether its change survives. The journal of a
// filesystem never has the old name of a renamed inode gone without the new one there, unless somebody made only the
// first durable; so where the new name does not survive, the removal of the old one does not either.
func (d *Disk) toss(rng *rand.Rand) map[home]bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	survives := map[home]bool{}
	var entries []home
	homes := map[*node]home{} // where each inode is to be seen before the crash
	for _, n := range d.nodes() {
		for name, child := range n.now.entries {
			homes[child] = home{n, name}
		}
		for _, name := range changed(n) {
			entries = append(entries, home{n, name})
			survives[home{n, name}] = coin(rng)
		}
	}
	for again := true; again; {
		again = false
		for _, h := range entries {
			to, moved := homes[h.dir.disk.entries[h.name]]
			if addition, undecided := survives[to]; survives[h] && moved && undecided && !addition {
				survives[h], again = false, true
			}
		}
	}
	return survives
}

// chance is what is left of one inode.
func chance(rng *rand.Rand, n *node, survives map[home]bool) state {
	left := n.disk.clone()
	if coin(rng) {
		left.mode, left.uid, left.gid = n.now.mode, n.now.uid, n.now.gid
	}
	if !bytes.Equal(n.now.data, n.disk.data) && coin(rng) {
		left.data = slices.Clone(n.now.data[:rng.IntN(len(n.now.data)+1)])
		if coin(rng) {
			left.data = slices.Clone(n.now.data)
		}
	}
	for _, name := range changed(n) {
		if !survives[home{n, name}] {
			continue
		}
		if child, ok := n.now.entries[name]; ok {
			left.entries[name] = child
		} else {
			delete(left.entries, name)
		}
	}
	return left
}

// changed lists the names whose entries are not on the disk as they are, in a fixed order so that a seed repeats a
// crash.
func changed(n *node) []string {
	var names []string
	for name, child := range n.now.entries {
		if n.disk.entries[name] != child {
			names = append(names, name)
		}
	}
	for name := range n.disk.entries {
		if _, ok := n.now.entries[name]; !ok {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

func coin(rng *rand.Rand) bool { return rng.IntN(2) == 0 }

// nodes lists every inode that is reachable in either version, by ino. d.mu is held.
func (d *Disk) nodes() []*node {
	found := map[*node]bool{}
	var visit func(*node)
	visit = func(n *node) {
		if found[n] {
			return
		}
		found[n] = true
		for _, stack := range d.mounts[n] {
			visit(stack.root)
		}
		for _, child := range n.now.entries {
			visit(child)
		}
		for _, child := range n.disk.entries {
			visit(child)
		}
	}
	visit(d.root.root)
	for _, dev := range d.parked {
		visit(dev.root)
	}
	for _, n := range d.away {
		visit(n)
	}
	return slices.SortedFunc(maps.Keys(found), func(a, b *node) int { return int(a.ino) - int(b.ino) })
}

// after copies the disk, with each inode as survive says and with no faults planned.
func (d *Disk) after(survive func(*node) state) *Disk {
	d.mu.Lock()
	defer d.mu.Unlock()
	c := copier{nodes: map[*node]*node{}, devices: map[*device]*device{}}
	all := d.nodes()
	for _, n := range all {
		c.nodes[n] = &node{ino: n.ino, on: c.device(n.on), kind: n.kind, target: n.target}
	}
	for _, n := range all {
		left := survive(n).clone()
		for name, child := range left.entries {
			left.entries[name] = c.nodes[child]
		}
		c.nodes[n].now, c.nodes[n].disk = left, left.clone()
	}
	for old, dev := range c.devices {
		dev.root = c.nodes[old.root]
	}
	up := New()
	up.root, up.lastIno, up.lastDev = c.devices[d.root], d.lastIno, d.lastDev
	for n, stack := range d.mounts {
		for _, dev := range stack {
			up.mounts[c.nodes[n]] = append(up.mounts[c.nodes[n]], c.device(dev))
		}
	}
	for path, dev := range d.parked {
		up.parked[path] = c.device(dev)
	}
	for path, n := range d.away {
		up.away[path] = c.nodes[n]
	}
	return up
}

type copier struct {
	nodes   map[*node]*node
	devices map[*device]*device
}

func (c copier) device(old *device) *device {
	if dev, ok := c.devices[old]; ok {
		return dev
	}
	dev := &device{dev: old.dev, space: old.space, kind: old.kind, full: old.full, readOnly: old.readOnly}
	c.devices[old] = dev
	return dev
}
