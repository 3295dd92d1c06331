package pool

import (
	"context"
	"sync"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/disk"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/recovery"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/trash"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/logging"
)

const (
	// interval is how often pools are looked at: external-provisioner asks for capacity every 5 s, and a change has to be
	// published within 10.
	interval = 2 * time.Second
	// usageInterval is how old the reading of what volumes use may be, and usageShare how many times longer than a reading
	// took the next one waits at least: it never costs more than 2 % of a core.
	usageInterval, usageShare = 5 * time.Second, 50
)

// Run watches all pools until ctx ends: each pool on its own, so that one that hangs keeps no other from its work,
// and the search for orphans. published reports whether a volume is mounted anywhere on this node.
func (s *Set) Run(ctx context.Context, published func(id string) bool) {
	var all sync.WaitGroup
	for _, p := range s.pools {
		all.Go(func() { p.watch(ctx) })
	}
	all.Go(func() { s.watchOrphans(ctx, published) })
	all.Wait()
}

func (p *Pool) watch(ctx context.Context) {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		p.Check(ctx)
		for p.Purge(ctx) && ctx.Err() == nil {
			select { // a large removal keeps the pool from being checked no longer than its slices
			case <-tick.C:
				p.Check(ctx)
			default:
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// Check compares the marker and the quota, and decides anew where one has changed. Otherwise
// it looks at the pool's figures.
func (p *Pool) Check(ctx context.Context) {
	o := p.open()
	if o == nil {
		p.refresh(ctx)
		return
	}
	readOnly, turned := p.look(o.Disk)
	changed := p.quotaChanged(o.Disk)
	p.readUsage(o)
	o.close()
	if changed || (turned && !readOnly) { // recovery may have met it read-only, and have done nothing
		p.refresh(ctx)
	} else if !readOnly {
		p.clean(ctx)
	}
}

// seen is what the last look at a pool's disk gave.
type seen struct {
	at     time.Time
	space  disk.Space
	withOS *bool // on a filesystem of the operating system; nil where that cannot be seen
	trash  trash.Summary
}

// look takes a snapshot of an open pool's figures, from which everybody is answered who asks for them.
func (p *Pool) look(d disk.FS) (readOnly, turned bool) {
	space, err := d.Space()
	if err != nil {
		p.log.Warn("cannot read a pool's free space", logging.KeyError, err)
		return false, false
	}
	withOS := p.withOS(d)
	p.mu.Lock()
	turned = p.seen.space.ReadOnly != space.ReadOnly
	p.seen.at, p.seen.space, p.seen.withOS = p.set.Now(), space, withOS
	p.mu.Unlock()
	if turned {
		p.announceReadOnly(space.ReadOnly)
	}
	return space.ReadOnly, turned
}

// withOS looks anew each time: a disk may be mounted over the kubelet's directory as well as over the pool's.
func (p *Pool) withOS(d disk.FS) *bool {
	info, err := d.Stat(".")
	var shared bool
	if err == nil {
		shared, err = p.set.isOn(info.Dev, p.set.OSPaths)
	}
	if err != nil {
		p.log.Warn("cannot see whether a pool shares its filesystem with the operating system", logging.KeyError, err)
		return nil
	}
	return &shared
}

// usage is when what the volumes use was read last, and when it may be read again.
type usage struct{ at, next time.Time }

// readUsage reads what the volumes of an open pool use, if that is due: one pass over the filesystem's quota for all.
// The filesystem's own figure is read before and after, and the larger one counts: what volumes write or remove
// meanwhile must not make others' data disappear.
func (p *Pool) readUsage(o *Open) {
	now := p.set.Now()
	p.mu.Lock()
	due := o.Backend.Enforces() && !now.Before(p.usage.next) &&
		(now.Sub(p.usage.at) >= usageInterval || p.ledger.Guessed())
	p.mu.Unlock()
	if !due {
		return
	}
	before, err := o.Disk.Space()
	if err == nil {
		usage, usageErr := o.Limits.Usage(o.Ledger.QuotaIDs())
		after, spaceErr := o.Disk.Space()
		if err = usageErr; err == nil {
			err = spaceErr
		}
		if err == nil {
			o.Ledger.Observe(max(before.Used, after.Used), usage)
		}
	}
	if err != nil {
		p.log.Warn("cannot read what volumes use", logging.KeyError, err)
	}
	end := p.set.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.usage = usage{at: now, next: end.Add(usageShare * end.Sub(now))}
}

// clean removes what interrupted creates left and could not remove yet. Nothing is made meanwhile:
// what is prepared then is nobody's.
func (p *Pool) clean(ctx context.Context) {
	p.mu.Lock()
	due := p.report.Leftovers > 0 && p.cleaning.due(p.set.Now())
	id, backend := p.id, p.backend
	p.mu.Unlock()
	if !due {
		return
	}
	p.use.Lock()
	defer p.use.Unlock()
	d, _, err := p.openMarked(id)
	if err != nil {
		return // the next check finds out why
	}
	defer func() { _ = d.Close() }()
	left, err := recovery.Clean(ctx, d, backend.On(d))
	if err != nil {
		p.log.Warn("cannot remove what an interrupted create left", logging.KeyError, err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.report.Leftovers = left; left > 0 {
		p.cleaning.failed(p.set.Now())
	} else {
		p.cleaning = retry{}
	}
}

// Purge works off one slice of the trash and reports whether another is due at once. One call at a time.
func (p *Pool) Purge(ctx context.Context) (more bool) {
	o := p.open()
	if o == nil {
		return false
	}
	defer o.close()
	p.mu.Lock()
	readOnly := p.seen.space.ReadOnly
	p.mu.Unlock()
	if readOnly {
		return false
	}
	full := p.ledger.Short()
	var summary trash.Summary
	var err error
	trash.Idle(func() { summary, err = p.worker.Purge(ctx, o.Disk, o.Limits, full) })
	if err != nil && ctx.Err() == nil {
		p.log.Error("cannot purge the trash", logging.KeyError, err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.seen.trash = summary
	return summary.More
}
