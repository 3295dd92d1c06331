package pool

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"sync"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/disk"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/guard"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/ledger"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/quota"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/records"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/recovery"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/trash"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/logging"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/poolspec"
)

// Pool is one pool of this node.
type Pool struct {
	set    *Set
	spec   poolspec.Pool
	ledger *ledger.Ledger
	worker *trash.Worker
	log    *slog.Logger

	// use is locked shared while an operation has the pool open, exclusively while it is recovered; refreshing while it is
	// decided whether the pool can be used.
	use        sync.RWMutex
	refreshing sync.Mutex

	mu         sync.Mutex // guards what follows
	now        guard.Decision
	id         string // of the marker, while the pool is present; else ""
	remembered *guard.Memory
	memoryErr  error
	backend    quota.Backend
	lost       bool // sizes were enforced, and are not any more
	report     recovery.Result
	wanted     answer
	seen       seen
	orphans    orphans
	usage      usage
	cleaning   retry
}

// notChecked is the reason of a pool that has not been looked at yet.
const notChecked = "NotChecked"

func newPool(set *Set, spec poolspec.Pool, purger *trash.Purger) *Pool {
	log := set.Log.With(logging.KeyPool, spec.Name, logging.KeyPath, spec.Path)
	return &Pool{
		set: set, spec: spec, ledger: ledger.New(spec), worker: purger.For(spec, set.Now, set.Log), log: log,
		now:     guard.Absent(notChecked, "the pool has not been looked at yet"),
		backend: quota.Backend{Name: quota.Plain, Enforcement: quota.None},
	}
}

// Open is a pool for the length of one operation.
type Open struct {
	Name    string
	Disk    disk.FS
	Limits  quota.Limits
	Backend quota.Backend
	Ledger  *ledger.Ledger
	Log     *slog.Logger

	pool *Pool
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

// Enter takes a volume into the ledger as it is on the disk now, and sees that its limit is that of its record. What
// was promised to it stays promised after an error.
func (o *Open) Enter(r records.Record) (ledger.Volume, error) {
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

// Leftover says that a limit of an interrupted create could not be removed; it is tried again.
func (o *Open) Leftover() {
	o.pool.mu.Lock()
	defer o.pool.mu.Unlock()
	o.pool.report.Leftovers++
}

// Tracked says that a directory is no longer untracked.
func (o *Open) Tracked(id string) { o.pool.tracked(id) }

// open gives the pool if it is present and its marker is still the one that was recovered; else nil.
func (p *Pool) open() *Open {
	p.use.RLock()
	if id := p.presentID(); id != "" {
		if d, _, err := p.openMarked(id); err == nil {
			return p.opened(d)
		}
	}
	p.use.RUnlock()
	return nil
}

func (p *Pool) opened(d disk.FS) *Open {
	p.mu.Lock()
	defer p.mu.Unlock()
	return &Open{
		Name: p.spec.Name, Disk: d, Limits: p.backend.On(d), Backend: p.backend, Ledger: p.ledger, Log: p.log, pool: p,
	}
}

// openMarked opens the pool if it has the marker of an id; nothing is changed on a disk that came in between.
func (p *Pool) openMarked(id string) (disk.FS, *guard.Marker, error) {
	d, err := p.set.Host.Open(p.spec.Path)
	if err != nil {
		return nil, nil, err
	}
	m, err := readMarker(d)
	if err == nil && (m == nil || m.ID != id) {
		err = errChanged
	}
	if err != nil {
		return nil, nil, errors.Join(err, d.Close())
	}
	return d, m, nil
}

var errChanged = errors.New("another filesystem was mounted there just now")

func (p *Pool) presentID() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.id
}

// unusable is the error for a pool that is not present.
func (p *Pool) unusable() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	kind := ErrAbsent
	if p.now.Action == guard.StayAside {
		kind = ErrNotHere
	}
	return fmt.Errorf("%w: pool %s: %s", kind, p.spec.Name, p.now.Message)
}

// missed says why a pool that this node has used is not there, "" where it is, or never was.
func (p *Pool) missed() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	used := p.memoryErr != nil || (p.remembered != nil && p.remembered.ID != "")
	if p.id != "" || !used {
		return ""
	}
	return p.now.Message
}

func (p *Pool) memory() (*guard.Memory, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.remembered, p.memoryErr
}

func (p *Pool) remember(m *guard.Memory) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.remembered, p.memoryErr = m, nil
}

// readMarker gives the marker of an open pool, nil where there is none.
func readMarker(d disk.FS) (*guard.Marker, error) {
	data, err := d.ReadFile(disk.MarkerFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var m guard.Marker
	if err := json.Unmarshal(data, &m); err != nil {
		return nil, fmt.Errorf("it is damaged: %w", err)
	}
	if m.Version != guard.MarkerVersion || m.ID == "" {
		return nil, fmt.Errorf("it has version %d and id %q, and this driver reads version %d; install the driver that "+
			"wrote it", m.Version, m.ID, guard.MarkerVersion)
	}
	return &m, nil
}

// writeMarker makes a marker durable, which must be new or an update of one that is there.
func writeMarker(d disk.FS, m guard.Marker, write func(disk.FS, string, []byte) error) error {
	data, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return fmt.Errorf("encode the pool's marker: %w", err)
	}
	if err := write(d, disk.MarkerFile, append(data, '\n')); err != nil {
		return fmt.Errorf("mark the pool: %w", err)
	}
	return nil
}

// ensureLayout makes the driver's directories, those that are missing, and closes csi/ to everyone but root:
// volumes may be world-writable inside.
func ensureLayout(d disk.FS) error {
	info, err := d.Stat(".")
	if err != nil {
		return fmt.Errorf("look at csi/: %w", err)
	}
	if info.Mode.Perm() != 0o700 {
		if err := d.Own(".", info.UID, info.GID, 0o700); err != nil {
			return fmt.Errorf("close csi/ to other users: %w", err)
		}
	}
	for _, dir := range []string{disk.MetaDir, disk.VolumesDir, disk.StagingDir, disk.TrashDir} {
		if err := d.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return fmt.Errorf("make csi/%s: %w", dir, err)
		}
	}
	// Not for what was just made alone: a driver that was killed in the last step of a delete is asked again,
	// finds nothing and says that it is done. On btrfs the move out of csi/ is on the disk only with this;
	// elsewhere it was before the record moved.
	if err := disk.SyncAll(d, ".", disk.MetaDir); err != nil {
		return err
	}
	return trash.EnsureSpare(d)
}

// retry is when something that failed is tried again: later each time, at most a minute.
type retry struct {
	pause time.Duration
	next  time.Time
}

func (r *retry) due(now time.Time) bool { return !now.Before(r.next) }

func (r *retry) failed(now time.Time) {
	r.pause = min(max(interval, 2*r.pause), time.Minute)
	r.next = now.Add(r.pause)
}
