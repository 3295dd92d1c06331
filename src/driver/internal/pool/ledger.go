package pool

import (
	"fmt"
	"sync"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/poolfs"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/volume"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/poolspec"
)

// Ledger is a pool's account of records and promised bytes, rebuilt from disk whenever the pool becomes present. One lock
// covers both, so the same bytes are never promised twice.
type Ledger struct {
	spec     poolspec.Pool
	enforced bool

	mu       sync.Mutex
	selected bool
	records  map[string]volume.Record
	reserved map[string]int64
	promised int64 // Σ records and reserved
}

func newLedger(spec poolspec.Pool, enforced bool) *Ledger {
	l := &Ledger{spec: spec, enforced: enforced}
	l.clear()
	return l
}

func (l *Ledger) clear() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.records, l.reserved, l.promised = map[string]volume.Record{}, map[string]int64{}, 0
}

// Reserve takes bytes for a volume that is about to be made.
func (l *Ledger) Reserve(id string, bytes int64, space poolfs.Space) (release func(), err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.selected {
		return nil, fmt.Errorf("%w: pool %s has a nodeSelector that this node's labels do not match, as far as they are known", volume.ErrPoolNotHere, l.spec.Name)
	}
	if _, twice := l.reserved[id]; twice {
		return nil, fmt.Errorf("%w: %s is being made", volume.ErrBusy, id)
	}
	if err := check(l.spec, space, l.promises(), bytes, len(l.records)+len(l.reserved)); err != nil {
		return nil, err
	}
	l.reserved[id] = bytes
	l.promised += bytes
	return func() { l.release(id) }, nil
}

func (l *Ledger) release(id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.promised -= l.reserved[id]
	delete(l.reserved, id)
}

// Put enters a record; a reservation for it becomes the record's promise.
func (l *Ledger) Put(r volume.Record) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.promised += r.Bytes - l.records[r.ID].Bytes - l.reserved[r.ID]
	delete(l.reserved, r.ID)
	l.records[r.ID] = r
}

// Drop takes a record out; none there is fine.
func (l *Ledger) Drop(id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.promised -= l.records[id].Bytes
	delete(l.records, id)
}

// Get gives the record of an id.
func (l *Ledger) Get(id string) (volume.Record, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	r, ok := l.records[id]
	return r, ok
}

// IDs are those of all records, in no particular order.
func (l *Ledger) IDs() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	ids := make([]string, 0, len(l.records))
	for id := range l.records {
		ids = append(ids, id)
	}
	return ids
}

func (l *Ledger) setSelected(selected bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.selected = selected
}

func (l *Ledger) isSelected() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.selected
}

// totals are the number of records, the bytes promised, and the largest volume that could be made now.
func (l *Ledger) totals(space poolfs.Space) (volumes int, promised, room int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	full := l.spec.MaxVolumes > 0 && len(l.records)+len(l.reserved) >= l.spec.MaxVolumes
	if l.selected && !full {
		room = available(l.spec, space, l.promises())
	}
	return len(l.records), l.promised, room
}

// promises needs the lock. No backend of this version measures what volumes use, so each counts in full.
func (l *Ledger) promises() promises {
	return promises{promised: l.promised, used: l.promised, enforced: l.enforced}
}
