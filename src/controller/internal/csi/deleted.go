package csi

import (
	"maps"
	"sync"
	"time"
)

const (
	// deletedMemory is how long a deletion is remembered, deletedMost how many are. A provisioner often deletes twice:
	// the second time nobody has the volume, and without the memory all nodes are asked, and the API for all it has.
	deletedMemory = 10 * time.Minute
	deletedMost   = 4096
)

// deletions are the volumes that were deleted lately, by id.
type deletions struct {
	Config

	mu  sync.Mutex
	all map[string]*deletion
}

// deletion is one that is under way, or that a node has confirmed.
type deletion struct {
	pv   string    // UID of the PersistentVolume, "" without one
	done time.Time // zero while it is under way
}

// begin notes that a volume is being deleted, and reports whether it was already, and nothing has come in its place:
// the PersistentVolume that is known is the same, or gone.
func (d *deletions) begin(id string) (begun *deletion, done bool) {
	pv := ""
	known := d.Cluster.Known(id)
	if len(known) > 0 {
		pv = known[0].UID
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	now := d.Fleet.Now()
	if was := d.all[id]; was != nil && !was.done.IsZero() && now.Sub(was.done) < deletedMemory &&
		(len(known) == 0 || was.pv == pv) {
		return was, true
	}
	if len(d.all) >= deletedMost {
		maps.DeleteFunc(d.all, func(_ string, was *deletion) bool { return now.Sub(was.done) >= deletedMemory })
	}
	begun = &deletion{pv: pv}
	if pv != "" && len(d.all) < deletedMost { // without one, nothing says which volume is meant
		d.all[id] = begun
	}
	return begun, false
}

// end remembers a deletion that the volume's node has confirmed, unless a volume of that id was asked for meanwhile.
func (d *deletions) end(id string, begun *deletion) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.all[id] == begun {
		begun.done = d.Fleet.Now()
	}
}

// forget is for a volume that is made: whoever deletes it next means this one.
func (d *deletions) forget(id string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.all, id)
}
