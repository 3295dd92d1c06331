// Package pool is storage pools at run time: the mount guard that decides whether a pool can be used now, the ledger of
// what is promised in it, and the loop that watches, recovers and purges.
package pool

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/backend"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/poolfs"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/trash"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/volume"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/logging"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/poolspec"
)

// Pool is one pool of this node. It implements volume.Pool.
type Pool struct {
	set    *Set
	spec   poolspec.Pool
	ledger *Ledger
	purger *trash.Worker

	// use is held shared while an operation has the pool open, exclusively while the guard changes its mind and recovers.
	use sync.RWMutex

	mu         sync.Mutex // guards what follows
	now        decision
	id         string // of the marker, while the pool is present; else ""
	remembered *memory
	report     volume.Report
	recovered  time.Time // when report was made
	// A pool that is not selected and was never used may hold volumes all the same: once the cluster has told, one of these is set.
	aside, served bool
	trash         trash.Summary
	orphans       []string
	quota         quota
	count         count
	unsettled     unsettled
	leftovers     leftovers
	recount       recount
}

// notChecked is the reason of a pool that the guard has not looked at yet.
const notChecked = "NotChecked"

func newPool(set *Set, spec poolspec.Pool, remembered *memory) *Pool {
	p := &Pool{
		set: set, spec: spec, ledger: newLedger(spec), remembered: remembered,
		now:   decision{action: refuse, reason: notChecked, message: "the pool has not been looked at yet"},
		quota: quota{Backend: backend.Plain{}},
	}
	p.purger = set.Purger.For(time.Duration(spec.Trash.Retention), p.purged)
	return p
}

// Name is the pool's name in the configuration.
func (p *Pool) Name() string { return p.spec.Name }

// Ledger is the pool's account.
func (p *Pool) Ledger() volume.Ledger { return p.ledger }

// Backend makes the pool's volumes. It stays the same while the pool is open.
func (p *Pool) Backend() volume.Backend { return p.quotaNow().Backend }

// Held implements volume.Pool. The report may be shared, so it gets another list.
func (p *Pool) Held(id string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if slices.Contains(p.report.Unheld, id) {
		p.report.Unheld = slices.DeleteFunc(slices.Clone(p.report.Unheld), func(other string) bool { return other == id })
		p.set.Log.Info("a volume's limit is held again", logging.KeyID, id, logging.KeyPool, p.spec.Name)
	}
}

// session is an open pool; closing it ends its use.
type session struct {
	poolfs.FS
	done func() // once
}

// Close closes the directory and lets the guard work again.
func (s session) Close() error {
	defer s.done()
	return s.FS.Close()
}

// Release lets the guard work again before that (poolfs.Release).
func (s session) Release() { s.done() }

// Unwrap is the directory itself (poolfs.QuotasOf).
func (s session) Unwrap() poolfs.FS { return s.FS }

// Open gives the pool's csi/ for one operation, after comparing the marker. volume.ErrPoolAbsent or ErrPoolNotHere, with
// the reason, where the pool cannot be used.
func (p *Pool) Open(ctx context.Context) (poolfs.FS, error) {
	if disk := p.open(); disk != nil {
		return disk, nil
	}
	p.refresh(ctx)
	if disk := p.open(); disk != nil {
		return disk, nil
	}
	return nil, p.unusable()
}

// open gives the pool if it is present and its marker is still the one that was recovered; else nil.
func (p *Pool) open() poolfs.FS {
	p.use.RLock()
	if id := p.presentID(); id != "" {
		if disk, err := p.set.Disk.Open(p.spec.Path); err == nil {
			if m, err := readMarker(disk); err == nil && m != nil && m.ID == id {
				return session{FS: disk, done: sync.OnceFunc(p.use.RUnlock)}
			}
			_ = disk.Close()
		}
	}
	p.use.RUnlock()
	return nil
}

func (p *Pool) presentID() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.id
}

// unusable is the error for a pool that is not present.
func (p *Pool) unusable() error {
	d := p.decision()
	if d.action == stayAside {
		return fmt.Errorf("%w: pool %s: %s", volume.ErrPoolNotHere, p.spec.Name, d.message)
	}
	return fmt.Errorf("%w: pool %s: %s", volume.ErrPoolAbsent, p.spec.Name, d.message)
}

func (p *Pool) decision() decision {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.now
}

// refresh lets the guard look again, and recovers the pool where it comes back.
func (p *Pool) refresh(ctx context.Context) {
	p.use.Lock()
	defer p.use.Unlock()
	ctx = context.WithoutCancel(ctx) // whoever happened to find the pool changed may leave; the work is for all
	d, id, err := p.look(ctx)
	if err != nil {
		d, id = absent("Failed", "%s: %v", p.spec.Path, err), ""
	}
	if id != "" && (id != p.presentID() || p.unchecked() || p.quotaChanged(id)) {
		report, err := p.recover(ctx, id)
		switch refusal, ok := errors.AsType[*refusalError](err); {
		case ok:
			d, id = refusal.decision, ""
		case err != nil:
			d, id = absent("RecoveryFailed", "%v", err), ""
		}
		p.mu.Lock()
		p.report, p.recovered = report, p.set.Now()
		p.mu.Unlock()
	}
	if id == "" {
		p.ledger.clear()
		p.setUnsettled(unsettled{})
	}
	p.mu.Lock()
	before := p.now
	p.now, p.id = d, id
	p.mu.Unlock()
	p.announce(before, d)
}

// unchecked tells that directories wait for the Kubernetes API to say whose they are, and that it is time to ask again:
// recovery reads every record of the pool, and nothing else can be done there meanwhile.
func (p *Pool) unchecked() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.report.Unchecked && p.set.Now().Sub(p.recovered) >= askAgain
}

// recover empties the ledger and fills it again from disk.
func (p *Pool) recover(ctx context.Context, id string) (report volume.Report, err error) {
	disk, m, err := p.openMarked(id)
	if err != nil {
		return report, err
	}
	defer func() { err = errors.Join(err, disk.Close()) }()
	if err := ensureLayout(disk); err != nil {
		return report, err
	}
	if err := p.chooseBackend(disk, *m); err != nil {
		return report, err
	}
	p.ledger.clear()
	if backend.Enforces(p.Backend()) && p.hasRange(m) { // one that enforces nothing must not keep others from their numbers
		p.ledger.expect(m.FirstNumber)
	}
	if report, err = p.set.recoverer.Recover(ctx, p, disk); err != nil {
		return report, err
	}
	p.settleQuota(disk, m)
	return report, nil
}

// openMarked opens the pool if it still has a marker; nothing is changed on a disk that came in between.
func (p *Pool) openMarked(id string) (poolfs.FS, *marker, error) {
	disk, err := p.set.Disk.Open(p.spec.Path)
	if err != nil {
		return nil, nil, err
	}
	m, err := readMarker(disk)
	if err == nil && (m == nil || m.ID != id) {
		err = errors.New("another filesystem was mounted there just now")
	}
	if err != nil {
		return nil, nil, errors.Join(err, disk.Close())
	}
	return disk, m, nil
}

// look decides and does what the decision says; id is the marker's where the pool can be used.
func (p *Pool) look(ctx context.Context) (d decision, id string, err error) {
	if m := p.memory(); m == nil || m.ID == "" {
		// Two pools that lead to one directory must not both find it new.
		p.set.adopting.Lock()
		defer p.set.adopting.Unlock()
	}
	s, err := p.see()
	if err != nil {
		return d, "", err
	}
	d = decide(p.spec, s)
	switch d.action {
	case use:
		return d, s.marker.ID, nil
	case adopt, create:
		return p.first(ctx, s, d)
	case stayAside:
		return p.stay(ctx, s, d)
	default:
		return d, "", nil
	}
}

// see gathers what the guard decides from.
func (p *Pool) see() (sight, error) {
	facts, err := p.set.Disk.Inspect(p.spec.Path)
	if err != nil {
		return sight{}, err
	}
	shared, err := p.set.isOn(facts.Dev, p.set.SystemPaths)
	if err != nil {
		return sight{}, err
	}
	s := sight{
		facts: facts, shared: shared, selected: p.ledger.isSelected() || p.isServed(), unknown: p.set.unlabelled(p.spec), remembered: p.memory(),
	}
	if facts.CSI {
		disk, err := p.set.Disk.Open(p.spec.Path)
		if err != nil {
			return sight{}, err
		}
		s.marker, s.markerErr = readMarker(disk)
		if err := disk.Close(); err != nil {
			return sight{}, err
		}
	}
	if s.marker != nil {
		s.twin = p.set.twin(p, s.marker.ID)
	}
	return s, nil
}

func (p *Pool) memory() *memory {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.remembered
}

// remember makes a marker's id the only one that will do from now on.
func (p *Pool) remember(id string) error {
	m := memory{ID: id, Path: p.spec.Path}
	if err := p.set.state.put(p.spec.Name, m); err != nil {
		return err
	}
	p.setMemory(&m)
	return nil
}

func (p *Pool) setMemory(m *memory) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.remembered = m
}
