package pool

import (
	"fmt"
	"sync"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/poolfs"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/volume"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/poolspec"
)

// Ledger is a pool's account of records, promised bytes and numbers, rebuilt from disk whenever the pool becomes present. One lock
// covers them, so the same bytes are never promised twice.
type Ledger struct {
	spec poolspec.Pool

	mu       sync.Mutex
	selected bool
	enforced bool
	closed   string // why no volume is made, "" where they are
	records  map[string]volume.Record
	holders  holders
	reserved map[string]int64
	growing  int   // how many of reserved are volumes that exist
	promised int64 // Σ records and reserved
	loose    int64 // what of promised are volumes that nothing is enforced on
	foreign  int64 // bytes on the filesystem that enforced volumes do not hold, as far as is known
	dirty    bool  // foreign is a guess
	numbers  numbers

	first      uint32          // of the range of numbers that the pool gives, 0 where it has none
	disclaimed map[uint32]bool // numbers that records have and something else on the filesystem counts to
}

func newLedger(spec poolspec.Pool) *Ledger {
	l := &Ledger{spec: spec}
	l.clear()
	return l
}

func (l *Ledger) clear() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.records, l.reserved, l.growing = map[string]volume.Record{}, map[string]int64{}, 0
	l.promised, l.loose, l.foreign, l.holders = 0, 0, 0, holders{}
	l.numbers, l.first, l.disclaimed = numbers{}, 0, map[uint32]bool{}
}

// Reserve takes bytes, and where sizes are enforced a number, for a volume that is about to be made.
func (l *Ledger) Reserve(id string, bytes int64, space poolfs.Space) (volume.Reservation, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var none volume.Reservation
	if !l.selected {
		return none, fmt.Errorf("%w: pool %s has a nodeSelector that this node's labels do not match, as far as they are known", volume.ErrPoolNotHere, l.spec.Name)
	}
	if l.closed != "" {
		return none, fmt.Errorf("%w: pool %s: %s", volume.ErrPoolNotHere, l.spec.Name, l.closed)
	}
	if _, twice := l.reserved[id]; twice {
		return none, fmt.Errorf("%w: %s is being made", volume.ErrBusy, id)
	}
	if err := check(l.spec, space, l.promises(space), bytes, l.volumes()); err != nil {
		return none, err
	}
	number := uint32(0)
	if l.enforced {
		var ok bool
		if number, ok = l.numbers.take(); !ok {
			return none, fmt.Errorf("%w: pool %s has no number for another volume in the filesystem's quota", volume.ErrNoSpace, l.spec.Name)
		}
	}
	l.holders.add(number, id)
	l.reserved[id] = bytes
	l.promised += bytes
	return volume.Reservation{Number: number, Release: func() { l.release(id) }}, nil
}

// Grow takes what a volume lacks to a size.
func (l *Ledger) Grow(id string, to int64, space poolfs.Space) (release func(), err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, twice := l.reserved[id]; twice {
		return nil, fmt.Errorf("%w: %s is being made", volume.ErrBusy, id)
	}
	r, ok := l.records[id]
	if !ok {
		return nil, fmt.Errorf("%w: %s has not been recovered", volume.ErrBusy, id)
	}
	more := to - r.Bytes
	if room := available(l.spec, space, l.promises(space)); more > room {
		return nil, noRoom(l.spec, space, l.promised, fmt.Sprintf("pool %s has room for %d bytes more", l.spec.Name, room), more)
	}
	l.reserved[id] = more
	l.growing++
	l.promised += more
	return func() { l.release(id) }, nil
}

// volumes counts those that exist or are being made. The lock is held.
func (l *Ledger) volumes() int { return len(l.records) + len(l.reserved) - l.growing }

func (l *Ledger) release(id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.unreserve(id)
}

// unreserve ends a reservation, if there is one. The lock is held.
func (l *Ledger) unreserve(id string) {
	bytes, ok := l.reserved[id]
	if !ok {
		return
	}
	l.promised -= bytes
	delete(l.reserved, id)
	if _, exists := l.records[id]; exists {
		l.growing--
	}
}

// Put enters a record; a reservation for it becomes the record's promise.
func (l *Ledger) Put(r volume.Record) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.unreserve(r.ID)
	l.remove(r.ID)
	l.promised += r.Bytes
	if r.ProjectID == 0 {
		l.loose += r.Bytes
	}
	l.records[r.ID] = r
	l.holders.add(r.ProjectID, r.ID)
	l.numbers.hold(r.ProjectID)
}

// Drop takes a record out; none there is fine. What the volume held may be in the trash now: until somebody has looked, that counts
// as foreign.
func (l *Ledger) Drop(id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if r, ok := l.remove(id); ok && r.ProjectID != 0 {
		l.foreign = min(unknown, l.foreign+min(unknown, r.Bytes))
		l.dirty = true
	}
}

// remove takes a record out of the sums. The lock is held.
func (l *Ledger) remove(id string) (r volume.Record, ok bool) {
	if r, ok = l.records[id]; !ok {
		return r, false
	}
	l.promised -= r.Bytes
	if r.ProjectID == 0 {
		l.loose -= r.Bytes
	}
	delete(l.records, id)
	return r, true
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

// whyClosed says why no volume is made, "" where they are.
func (l *Ledger) whyClosed() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.closed
}

// enforce says whether the backend holds volumes to their size, which numbers it has for them, and why no volume is to be made, if so.
func (l *Ledger) enforce(enforced bool, n numbers, closed string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, r := range l.records {
		n.hold(r.ProjectID)
	}
	l.enforced, l.numbers, l.closed = enforced, n, closed
	if n.first != 0 {
		l.first = n.first
	}
	l.foreign, l.dirty = unknown, true
}

// unknown is what is foreign until it has been counted: as much as is used.
const unknown = int64(1) << 60

// observe takes note of what the accounts of a pool use, all in bytes, and of how much is used on the filesystem. What no
// account of a volume holds is foreign: other files, the trash, and volumes that nothing is enforced on.
func (l *Ledger) observe(used int64, accounts map[uint32]int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	own := int64(0)
	for number := range l.holders {
		own += min(accounts[number], l.records[l.owner(number)].Bytes) // what is past its size was promised to nobody
	}
	l.foreign, l.dirty = max(0, used-own), false
}

// distrust forgets what volumes hold, for the filesystem has lost count: all that is used counts as foreign.
func (l *Ledger) distrust() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.foreign, l.dirty = unknown, true
}

// guessing tells that what is foreign has to be counted again.
func (l *Ledger) guessing() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.dirty
}
