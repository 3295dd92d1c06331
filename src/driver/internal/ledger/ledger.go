// Package ledger is a pool's account of its volumes and of the bytes promised to them, in memory.
package ledger

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/disk"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/quota"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/poolspec"
)

// Errors of promises.
var (
	ErrNoSpace = errors.New("no room in the pool")
	ErrClosed  = errors.New("pool creates no volumes on this node")
	ErrBusy    = errors.New("volume is being worked on")
)

// Volume is what the ledger knows of a volume.
type Volume struct {
	Bytes   int64
	Held    int64       // bytes that copies of it keep, promised beside Bytes
	Inodes  int64       // 0 where they are not limited
	QuotaID quota.ID    // 0 where it has none
	Pins    []quota.Pin // what it keeps charged to others, as their copy
	// Counted reports that the volume's directory counts to QuotaID and no older volume's does; else nothing is
	// enforced.
	Counted bool
	// Doubtful reports that it could not be seen what the directory counts to: what was promised stays promised.
	Doubtful  bool
	Ephemeral bool
	Snapshot  bool   // it is no volume: whoever looks for one does not find it
	Filling   string // what it is made of, as a copy that is not whole
	Tagging   bool   // its files are being made part of its ID, or taken out of it
	// Refused reports that the record cannot be used. Its id and its promise stay taken.
	Refused bool
	Created time.Time
}

func (v Volume) isUncounted() bool { return v.QuotaID != 0 && !v.Counted }

// Ledger is one pool's account. One lock covers it, so the same bytes are never promised twice.
type Ledger struct {
	spec poolspec.Pool

	mu        sync.Mutex
	selected  bool
	enforced  bool
	closed    string // why no volume is made, "" where they are
	volumes   map[string]Volume
	owners    map[quota.ID]string
	reserved  map[string]int64
	promised  int64 // Σ volumes and reserved
	unlimited int64 // what of promised are volumes that nothing is enforced on
	other     int64 // bytes used on the filesystem that enforced volumes do not use, as far as is known
	refused   int
	uncounted int
	snapshots int
	copies    int  // that are not whole
	guessed   bool // other is a guess
	short     bool // a request was refused for lack of room that the trash may have
}

// New returns the empty ledger of a pool.
func New(spec poolspec.Pool) *Ledger {
	l := &Ledger{spec: spec}
	l.Reset(false)
	return l
}

// Reset empties the ledger. enforced reports whether the pool's backend holds volumes to their sizes.
func (l *Ledger) Reset(enforced bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.volumes, l.owners, l.reserved = map[string]Volume{}, map[quota.ID]string{}, map[string]int64{}
	l.promised, l.unlimited, l.refused, l.uncounted, l.snapshots, l.copies, l.short = 0, 0, 0, 0, 0, 0, false
	l.enforced, l.other, l.guessed, l.closed = enforced, unknown, true, ""
}

// unknown is other usage until it has been read: as much as is used.
const unknown = int64(1) << 60

// Select says whether this node is selected to make volumes in the pool.
func (l *Ledger) Select(selected bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.selected = selected
}

// Selected reports whether it is.
func (l *Ledger) Selected() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.selected
}

// Close says why no volume is made, "" where they are.
func (l *Ledger) Close(why string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = why
}

// Reserve promises bytes to a volume that is about to be made. release gives them back; after Put of the volume it does
// nothing. ErrNoSpace, ErrClosed, or ErrBusy where the id has a reservation.
func (l *Ledger) Reserve(id string, bytes int64, space disk.Space) (release func(), err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.reserve(id, bytes, space)
}

// Readmit is Reserve for a deleted volume that comes back: what its data takes is used already. used is less than 0
// where that cannot be measured; then it needs no room in a pool that does not count what is promised to such a volume.
// Where there is no room for it nothing is purged: that could be the volume itself.
func (l *Ledger) Readmit(id string, bytes, used int64, space disk.Space) (release func(), err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	lacks := max(0, bytes-max(0, used))
	if used < 0 && (l.enforced || l.spec.Overcommit == 0) {
		lacks = 0
	}
	short := l.short
	release, err = l.reserve(id, lacks, space)
	l.short = short
	return release, err
}

// reserve needs the lock.
func (l *Ledger) reserve(id string, bytes int64, space disk.Space) (release func(), err error) {
	if !l.selected && len(l.spec.NodeSelector) == 0 {
		return nil, fmt.Errorf("%w: the configuration no longer has pool %s", ErrClosed, l.spec.Name)
	}
	if !l.selected {
		return nil, fmt.Errorf("%w: pool %s has a nodeSelector that this node's labels do not match, as far as they "+
			"are known", ErrClosed, l.spec.Name)
	}
	if l.closed != "" {
		return nil, fmt.Errorf("%w: pool %s: %s", ErrClosed, l.spec.Name, l.closed)
	}
	if _, twice := l.reserved[id]; twice {
		return nil, fmt.Errorf("%w: %s is being made", ErrBusy, id)
	}
	count := l.count()
	if l.spec.MaxVolumes > 0 && count >= l.spec.MaxVolumes && !nodeapi.IsSnapshotID(id) {
		return nil, fmt.Errorf("%w: pool %s has %d volumes on this node, maxVolumes is %d",
			ErrNoSpace, l.spec.Name, count, l.spec.MaxVolumes)
	}
	return l.promise(id, bytes, space)
}

// Grow promises what a volume, with what it holds for copies, lacks to so many bytes. release as in Reserve.
func (l *Ledger) Grow(id string, to int64, space disk.Space) (release func(), err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	v, ok := l.volumes[id]
	if _, twice := l.reserved[id]; twice || !ok {
		return nil, fmt.Errorf("%w: %s is being made or recovered", ErrBusy, id)
	}
	return l.promise(id, to-v.Limit().Bytes, space)
}

// promise needs the lock.
func (l *Ledger) promise(id string, bytes int64, space disk.Space) (release func(), err error) {
	if room := allocatable(l.spec, space, l.promises(space)); bytes > room {
		l.short = l.short || bytes <= largest(l.spec, space, l.promises(space))
		return nil, noRoom(l.spec, space, l.promised, room, bytes)
	}
	l.reserved[id] = bytes
	l.promised += bytes
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.release(id)
	}, nil
}

// count is how many volumes exist or are being made. It needs the lock.
func (l *Ledger) count() int {
	n := len(l.volumes) - l.snapshots
	for id := range l.reserved {
		if _, grows := l.volumes[id]; !grows && !nodeapi.IsSnapshotID(id) {
			n++
		}
	}
	return n
}

// release ends a reservation, if there is one. It needs the lock.
func (l *Ledger) release(id string) {
	l.promised -= l.reserved[id]
	delete(l.reserved, id)
}

// Put enters a volume; a reservation for it becomes its promise.
func (l *Ledger) Put(id string, v Volume) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.release(id)
	l.remove(id)
	l.add(v, 1)
	if v.Counted {
		l.owners[v.QuotaID] = id
	}
	l.volumes[id] = v
}

// add enters a volume into the sums, or takes it out with sign -1. It needs the lock.
func (l *Ledger) add(v Volume, sign int) {
	promise := int64(sign) * v.Limit().Bytes
	l.promised += promise
	if !v.Counted && !v.Doubtful {
		l.unlimited += promise
	}
	if v.Snapshot {
		l.snapshots += sign
	}
	if v.Filling != "" {
		l.copies += sign
	}
	if v.Refused {
		l.refused += sign
	} else if v.isUncounted() {
		l.uncounted += sign
	}
}

// Drop takes a volume out; none there is fine. Its data may be in the trash now: until usage is read again, what it was
// promised counts as other usage.
func (l *Ledger) Drop(id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if v, ok := l.remove(id); ok && v.Counted {
		l.other = min(unknown, l.other+v.Limit().Bytes)
		l.guessed = true
	}
}

// remove takes a volume out of the sums. It needs the lock.
func (l *Ledger) remove(id string) (v Volume, ok bool) {
	if v, ok = l.volumes[id]; !ok {
		return v, false
	}
	l.add(v, -1)
	if v.Counted && l.owners[v.QuotaID] == id {
		delete(l.owners, v.QuotaID)
	}
	delete(l.volumes, id)
	return v, true
}

// Get gives the volume of an id.
func (l *Ledger) Get(id string) (Volume, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	v, ok := l.volumes[id]
	return v, ok
}

// Known are those of ids that are in the ledger.
func (l *Ledger) Known(ids []string) (known []string) {
	for _, id := range ids {
		if _, ok := l.Get(id); ok {
			known = append(known, id)
		}
	}
	return known
}

// Troubled are the volumes that Totals counts as refused and as uncounted, in no particular order.
func (l *Ledger) Troubled() (refused, uncounted []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.refused+l.uncounted == 0 {
		return nil, nil
	}
	for id, v := range l.volumes {
		switch {
		case v.Refused:
			refused = append(refused, id)
		case v.isUncounted():
			uncounted = append(uncounted, id)
		}
	}
	return refused, uncounted
}

// Each visits all volumes, in no particular order. visit must not call the ledger.
func (l *Ledger) Each(visit func(id string, v Volume)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for id, v := range l.volumes {
		visit(id, v)
	}
}
