package pool

import (
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/disk"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/guard"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/ledger"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/purge"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/quota"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/recovery"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/store"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/logging"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/poolspec"
)

// Pool is one pool of this node.
type Pool struct {
	set    *Set
	spec   poolspec.Pool
	host   disk.Host
	ledger *ledger.Ledger
	worker *purge.Worker
	log    *slog.Logger
	left   bool // the configuration no longer has it; spec is what the node remembers

	// use is locked shared while an operation has the pool open, exclusively while it is recovered; refreshing while it
	// is decided whether the pool can be used.
	use        sync.RWMutex
	refreshing sync.Mutex
	givenUp    atomic.Int32 // calls that Within has left

	mu sync.Mutex // guards state
	state
}

// state is what was last found out about a pool. Lists in it are shared: a change makes another list.
type state struct {
	now     guard.Decision
	id      string // of the marker, while the pool is present; else ""
	backend quota.Backend
	lost    bool // sizes were enforced, and are not any more
	report  recovery.Result
	// asked reports that the cluster was asked about a pool that is not selected here and was never used; served that
	// it has volumes that are to be served all the same.
	asked, served bool

	seen   time.Time // the last look at the disk, which gave:
	space  disk.Space
	withOS *bool // on a filesystem of the operating system; nil where that cannot be seen
	trash  purge.Summary

	usageRead, usageDue time.Time // what volumes use: when it was read last, and when it may be read again
	cleanDue            time.Time // what interrupted creates left: when removing it is tried again
	cleanPause          time.Duration

	// unconfirmed reports that this node has taken a shared pool into use and was not told since that it is the right
	// one.
	unconfirmed bool
	otherNodes  []string  // that have directories of their own in a shared pool
	rescanDue   time.Time // when it is looked at again

	lacking          []string           // volumes that PersistentVolumes name and the pool lacked when it was adopted
	remembersMissing bool               // a shared pool's mount options let this node overlook what others make
	changes          []nodeapi.Warning  // what the driver did to the filesystem when it took it into use
	shown            nodeapi.PoolStatus // the status when it was last computed, from which it is dated
}

// known is a snapshot of the state.
func (p *Pool) known() state {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.state
}

func (p *Pool) update(change func(*state)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change(&p.state)
}

func newPool(set *Set, spec poolspec.Pool, purger *purge.Purger) *Pool {
	p := &Pool{
		set: set, spec: spec, host: set.Host, ledger: ledger.New(spec),
		log: set.Log.With(logging.KeyPool, spec.Name, logging.KeyPath, spec.Path),
	}
	p.worker = purger.For(spec, set.Log, p.ledger)
	if p.shared() {
		p.host = disk.Shared(set.Host, set.Node)
	}
	p.now = guard.Absent(nodeapi.ReasonNotChecked, "the pool has not been looked at yet")
	p.backend = quota.Backend{Name: quota.Plain, Enforcement: quota.None}
	p.ledger.Select(len(spec.NodeSelector) == 0)
	return p
}

// Open is a pool for the length of one operation.
type Open struct {
	store.Pool
	Name   string
	Ledger *ledger.Ledger

	pool   *Pool
	marker *guard.Marker
}

// open gives the pool if it is present and its marker is still the one that was recovered; else nil.
func (p *Pool) open() *Open {
	p.use.RLock()
	known := p.known()
	if known.id != "" && p.set.expects(p.spec.Name, known.id) {
		if d, marker, err := p.openOwn(known.id); err == nil {
			b := known.backend
			files := store.Pool{
				Disk: d, Limits: b.On(d), Backend: b, ReadOnly: known.space.ReadOnly, Log: p.log,
				NoteLeftover: func() { p.update(func(s *state) { s.report.Leftovers++ }) },
			}
			return &Open{Pool: files, Name: p.spec.Name, Ledger: p.ledger, pool: p, marker: marker}
		}
	}
	p.use.RUnlock()
	return nil
}

// patience is how long operations that began before may keep a pool open until others have to wait for them as well: a
// snapshot writes all that its volume has in memory.
const patience, tryAgain = time.Minute, 10 * time.Millisecond

// lockAll waits for the operations that have the pool open.
func (p *Pool) lockAll() {
	for begin := time.Now(); time.Since(begin) < patience; time.Sleep(tryAgain) {
		if p.use.TryLock() {
			return
		}
	}
	p.use.Lock()
}

func (o *Open) close() {
	_ = o.Disk.Close() // closing a directory says nothing about the work done through it
	o.pool.use.RUnlock()
}

// Enforcement is how far the volume of an id is held to its size.
func (o *Open) Enforcement(id string) quota.Enforcement {
	if v, ok := o.Ledger.Get(id); ok && v.Counted {
		return o.Backend.Enforcement
	}
	return quota.None
}

// Reconcile takes a volume into the ledger as it is on the disk now, and sees that its limit is that of its record.
// What was promised to it stays promised after an error.
func (o *Open) Reconcile(r store.Record) (ledger.Volume, error) {
	if r.QuotaID != 0 {
		r.Held = max(r.Held, o.Ledger.Pinned(r.QuotaID))
	}
	v := recovery.Volume(r)
	var err error
	if r.QuotaID != 0 && o.Backend.Enforces() && r.Backend == o.Backend.Name {
		var state quota.State
		state, err = o.Limits.Check(r.ID, r.QuotaID)
		owner := o.Ledger.Owner(r.QuotaID)
		v.Counted = err == nil && state.ID == r.QuotaID && (owner == "" || owner == r.ID)
		v.Doubtful = err != nil
		if v.Counted && state.Limit != r.Limit() {
			err = o.Limits.Set(r.ID, r.QuotaID, r.Limit())
		}
	}
	o.Ledger.Put(r.ID, v)
	return v, err
}

// KeepTrash lets no purge begin in the pool until it is ended.
func (o *Open) KeepTrash() (end func()) {
	o.pool.worker.Deciding.Lock()
	return o.pool.worker.Deciding.Unlock
}

// NoteUntracked has a directory without a record adopted, if a PersistentVolume names it.
func (o *Open) NoteUntracked(id string) {
	o.pool.update(func(s *state) {
		if !slices.Contains(s.report.Untracked, id) {
			s.report.Untracked = append(slices.Clip(s.report.Untracked), id)
		}
	})
	o.pool.set.changed()
}

// MarkTracked says that a directory is no longer untracked.
func (o *Open) MarkTracked(id string) {
	o.pool.update(func(s *state) {
		s.report.Untracked = leaveOut(s.report.Untracked, id)
	})
}

// leaveOut is another list without one of its ids.
func leaveOut(ids []string, id string) []string {
	return slices.DeleteFunc(slices.Clone(ids), func(other string) bool { return other == id })
}
