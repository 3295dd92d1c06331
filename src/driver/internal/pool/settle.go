package pool

import (
	"fmt"
	"sync"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/backend"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/poolfs"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/logging"
)

// longestPause is how long a pool whose quota could not be settled waits at most before that is tried again: somebody who has
// made room should not have to wait longer for the next volume.
const longestPause = time.Minute

// unsettled says why the numbers of a present pool are not in order, and when that is tried again. The zero value is a pool where they are.
type unsettled struct {
	err   error
	pause time.Duration
	next  time.Time
}

// after is what is unsettled after another attempt.
func (u unsettled) after(err error, now time.Time) unsettled {
	if err == nil {
		return unsettled{}
	}
	pause := min(max(interval, 2*u.pause), longestPause)
	return unsettled{err: err, pause: pause, next: now.Add(pause)}
}

func (u unsettled) due(now time.Time) bool { return u.err != nil && !now.Before(u.next) }

// settleQuota puts the numbers of a recovered pool in order: those that records, the trash or a directory hold are taken, a
// limit that none of them holds is cleared, all others can be given. What fails costs new volumes, not those that are there, and
// is tried again.
func (p *Pool) settleQuota(disk poolfs.FS, m *marker) {
	q, before := p.quotaNow(), p.ledger.whyClosed()
	if backend.Enforces(q.Backend) {
		p.settleNumbers(disk, m)
	} else {
		p.ledger.enforce(false, numbers{}, q.closed(p.spec))
		p.noteBackend(disk, m, q)
		p.setUnsettled(unsettled{})
	}
	if p.ledger.whyClosed() != before {
		p.set.tellChanged()
	}
}

func (p *Pool) settleNumbers(disk poolfs.FS, m *marker) {
	n, err := p.countNumbers(disk, m)
	is := p.unsettledNow().after(err, p.set.Now())
	was := p.setUnsettled(is)
	if err != nil {
		p.ledger.enforce(true, numbers{}, fmt.Sprintf(
			"the numbers of the filesystem's quota cannot be put in order: %v; make room there, or repair the disk; it is tried again by itself", err))
	} else {
		p.ledger.enforce(true, n, "")
		p.restartCount()
		p.countUse(disk)
	}
	p.announceSettling(was, is)
}

// announceSettling tells that no volume can be made any more, or again. An attempt that changes nothing is not worth a line.
func (p *Pool) announceSettling(was, is unsettled) {
	switch {
	case is.err != nil && was.err == nil:
		p.set.Log.Error("no volume can be made: the numbers of the filesystem's quota cannot be put in order; make room there, or repair the disk",
			logging.KeyPool, p.spec.Name, logging.KeyPath, p.spec.Path, logging.KeyError, is.err)
		p.set.Events.Warning("QuotaUnsettled", fmt.Sprintf("pool %s: volumes are served, and none can be made: %s", p.spec.Name, p.ledger.whyClosed()))
	case is.err == nil && was.err != nil:
		p.set.Log.Info("volumes can be made again", logging.KeyPool, p.spec.Name, logging.KeyPath, p.spec.Path)
		p.set.Events.Normal("QuotaSettled", fmt.Sprintf("pool %s: volumes can be made again", p.spec.Name))
	}
}

// settleAgain tries what failed again, when that is due. Nothing is made or deleted meanwhile, as in a recovery: what moves
// between directories could be missed, and its limit taken for nobody's.
func (p *Pool) settleAgain() {
	if !p.unsettledNow().due(p.set.Now()) {
		return
	}
	p.use.Lock()
	defer p.use.Unlock()
	disk, m, err := p.openMarked(p.presentID())
	if err != nil {
		return // the next look at the pool finds out why
	}
	defer func() { _ = disk.Close() }()
	p.settleQuota(disk, m)
}

func (p *Pool) unsettledNow() unsettled {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.unsettled
}

func (p *Pool) setUnsettled(u unsettled) (was unsettled) {
	p.mu.Lock()
	defer p.mu.Unlock()
	was, p.unsettled = p.unsettled, u
	return was
}

// countNumbers finds the pool's range and what is taken of it.
func (p *Pool) countNumbers(disk poolfs.FS, m *marker) (numbers, error) {
	if err := p.ensureRange(disk, m); err != nil {
		return numbers{}, err
	}
	taken, unread := backend.Counted(disk)
	inTrash, err := p.set.Purger.Numbers(disk)
	if err != nil {
		return numbers{}, err
	}
	p.ledger.addTrash(inTrash)
	p.ledger.addNumbers(taken)
	if unread != nil { // then every limit on the disk may be somebody's
		p.set.Log.Warn("cannot read back all numbers from directories", logging.KeyPool, p.spec.Name, logging.KeyError, unread)
		all, err := backend.Usage(disk, m.FirstNumber)
		for number := range all {
			taken[number] = struct{}{}
		}
		return newNumbers(m.FirstNumber, taken), err
	}
	stay, err := backend.DropOthers(disk, m.FirstNumber, taken)
	if err != nil {
		p.set.Log.Warn("cannot clear limits that no volume has", logging.KeyPool, p.spec.Name, logging.KeyError, err)
	}
	for _, number := range stay {
		taken[number] = struct{}{}
	}
	p.noteLeftovers(stay)
	return newNumbers(m.FirstNumber, taken), nil
}

// ranges are the first numbers of this node's pools, by the pool's name.
type ranges struct {
	mu sync.Mutex
	by map[string]uint32
}

// claim takes a range for a pool, unless it is another's. A pool has one: what it claimed before is free, or attempts that
// fail would use them up.
func (r *ranges) claim(first uint32, pool string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for owner, claimed := range r.by {
		if claimed == first && owner != pool {
			return false
		}
	}
	if r.by == nil {
		r.by = map[string]uint32{}
	}
	r.by[pool] = first
	return true
}

// hasRange tells whether the range that a marker names is the pool's own.
func (p *Pool) hasRange(m *marker) bool {
	return backend.ValidRange(m.FirstNumber) && p.set.ranges.claim(m.FirstNumber, p.spec.Name)
}

// ensureRange sees to it that the marker has a range of numbers and the present backend, durably.
func (p *Pool) ensureRange(disk poolfs.FS, m *marker) error {
	if !p.hasRange(m) {
		first, err := backend.FreeRange(disk, func(first uint32) bool { return !p.set.ranges.claim(first, p.spec.Name) })
		if err != nil {
			return err
		}
		m.FirstNumber, m.Backend = first, ""
	}
	q := p.quotaNow()
	if m.Backend == q.Name() && m.Enforcement == q.Enforcement() {
		return syncMarker(disk) // an earlier attempt may have failed at this
	}
	m.Backend, m.Enforcement = q.Name(), q.Enforcement()
	return updateMarker(disk, *m)
}

// noteBackend notes in the marker that nothing is enforced. A lost quota stays noted, so that it is still called lost after a restart.
func (p *Pool) noteBackend(disk poolfs.FS, m *marker, q quota) {
	if q.lost || (m.Backend == q.Name() && m.Enforcement == q.Enforcement()) {
		return
	}
	m.Backend, m.Enforcement = q.Name(), q.Enforcement()
	if err := updateMarker(disk, *m); err != nil {
		p.set.Log.Warn("cannot note the backend in the pool's marker", logging.KeyPool, p.spec.Name, logging.KeyError, err)
	}
}
