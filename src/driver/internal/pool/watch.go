package pool

import (
	"cmp"
	"context"
	"sync"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/disk"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/guard"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/purge"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/quota"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/store"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/logging"
)

const (
	// interval is how often pools are looked at: a change has to be published within 10 s.
	interval = 2 * time.Second
	// usageInterval is how old the reading of what volumes use may be, and usageShare how many times longer than a
	// reading took the next one waits at least: it never costs more than 2 % of a core.
	usageInterval, usageShare = 5 * time.Second, 50
)

// Run watches all pools until ctx ends: each pool on its own, so that one that hangs keeps no other from its work.
func (s *Set) Run(ctx context.Context) {
	var all sync.WaitGroup
	for _, p := range s.pools {
		all.Go(func() { p.watch(ctx) })
	}
	<-ctx.Done() // there may be no pools
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

// Check compares marker and quota and decides anew where one has changed; else it looks at the pool's figures.
func (p *Pool) Check(ctx context.Context) {
	if p.ended() {
		return
	}
	defer p.status() // which dates what has changed, while nobody asks
	o := p.open()
	if o == nil {
		p.refresh(ctx)
		return
	}
	readOnly, turned := p.look(o.Disk)
	quotaNow, err := p.set.Quotas.Detect(o.Disk, p.spec.Quota, false)
	changed := err == nil && !quotaNow.Same(o.Backend) // in doubt it is not
	p.readUsage(o)
	p.own(o)
	p.rescan(ctx, o)
	o.close()
	confirmed := p.known().unconfirmed && p.expected().ID != ""
	if changed || confirmed || (turned && !readOnly) { // recovery may have met it read-only, and have done nothing
		p.refresh(ctx)
	} else if !readOnly {
		p.clean(ctx)
	}
}

// look takes a snapshot of an open pool's figures, from which everybody is answered who asks for them.
func (p *Pool) look(d disk.FS) (readOnly, turned bool) {
	space, err := d.Space()
	if err != nil {
		p.log.Warn("cannot read a pool's free space", logging.KeyError, err)
		return false, false
	}
	withOS := p.withOS(d)
	p.update(func(s *state) {
		turned = s.space.ReadOnly != space.ReadOnly
		s.seen, s.space, s.withOS = p.set.Now(), space, withOS
	})
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
		shared, err = guard.IsOn(p.set.Host, info.Dev, p.set.OSPaths)
	}
	if err != nil {
		p.log.Warn("cannot see whether a pool shares its filesystem with the operating system", logging.KeyError, err)
		return nil
	}
	return &shared
}

// readUsage reads what the volumes of an open pool use, if that is due: one pass over the filesystem's quota for all.
// The filesystem's own figure is read before and after, and the larger one counts: what volumes write or remove
// meanwhile must not make others' data disappear.
func (p *Pool) readUsage(o *Open) {
	start, known := p.set.Now(), p.known()
	recent := start.Sub(known.usageRead) < usageInterval && !o.Ledger.Guessed()
	if !o.Backend.Enforces() || start.Before(known.usageDue) || recent {
		return
	}
	before, err := o.Disk.Space()
	if err == nil {
		usage, usageErr := o.Limits.Usage(o.Ledger.QuotaIDs())
		after, spaceErr := o.Disk.Space()
		if err = cmp.Or(usageErr, spaceErr); err == nil {
			o.Ledger.Observe(max(before.Used, after.Used), usage)
		}
	}
	if err != nil {
		p.log.Warn("cannot read what volumes use", logging.KeyError, err)
	}
	end := p.set.Now()
	p.update(func(s *state) { s.usageRead, s.usageDue = start, end.Add(usageShare*end.Sub(start)) })
}

// clean removes what interrupted creates left. Nothing is made meanwhile: what is prepared then is nobody's.
func (p *Pool) clean(ctx context.Context) {
	known := p.known()
	if known.report.Leftovers == 0 || p.set.Now().Before(known.cleanDue) {
		return
	}
	if !p.use.TryLock() { // the next look does it
		return
	}
	defer p.use.Unlock()
	d, _, err := guard.Open(p.host, p.spec.Path, known.id)
	if err != nil {
		return // the next check finds out why
	}
	defer func() { _ = d.Close() }()
	left, err := store.Pool{Disk: d, Limits: known.backend.On(d)}.Clean(ctx)
	if err != nil {
		p.log.Warn("cannot remove what an interrupted create left", logging.KeyError, err)
	}
	p.update(func(s *state) {
		if s.report.Leftovers = left; left == 0 {
			s.cleanDue, s.cleanPause = time.Time{}, 0
			return
		}
		s.cleanPause = min(max(interval, 2*s.cleanPause), time.Minute)
		s.cleanDue = p.set.Now().Add(s.cleanPause)
	})
}

// Purge works off one slice of the trash and reports whether another is due at once. One call at a time.
func (p *Pool) Purge(ctx context.Context) (more bool) {
	o := p.open()
	if o == nil {
		return false
	}
	defer o.close()
	if o.ReadOnly || !p.owned(o) {
		return false
	}
	full := p.ledger.Short()
	var summary purge.Summary
	var err error
	purge.Idle(func() { summary, err = p.worker.Purge(ctx, o.Disk, o.Limits, full) })
	if err != nil && ctx.Err() == nil {
		p.log.Error("cannot purge the trash", logging.KeyError, err)
	}
	p.update(func(s *state) { s.trash = summary })
	return summary.More
}

// conclude takes note of what was decided about a pool, and of what is doubtful about one that can be used.
func (p *Pool) conclude(now guard.Decision, id string, f guard.Facts, lacking []string) {
	unconfirmed, before := p.awaitConfirmation(id, f), p.known()
	p.update(func(s *state) {
		s.now, s.id, s.unconfirmed = now, id, unconfirmed
		s.remembersMissing = p.shared() && f.RemembersMissing
		if id != "" && now.Action != guard.Use {
			s.lacking = lacking
		}
	})
	if id != "" && len(lacking) > 0 {
		p.log.Error("PersistentVolumes name volumes that the adopted pool does not have", logging.KeyVolumes, lacking)
	}
	if before.unconfirmed != unconfirmed {
		p.set.changed()
	}
	p.announce(before.now, now)
}

// announce logs a change of a pool's state. Messages may differ in what an error says.
func (p *Pool) announce(before, now guard.Decision) {
	p.status() // which dates it
	same := before.Action == now.Action && before.Reason == now.Reason
	if same || (before.Action <= guard.Create && now.Action <= guard.Create) {
		return
	}
	p.set.changed()
	switch now.Action {
	case guard.Refuse:
		p.log.Error("pool is absent", logging.KeyReason, now.Reason, logging.KeyMessage, now.Message)
	case guard.Skip:
		p.log.Info("pool is not selected on this node")
	default:
		p.announcePresent()
	}
}

func (p *Pool) announcePresent() {
	known := p.known()
	b, report := known.backend, known.report
	p.log.Info("pool is present", logging.KeyBackend, b.Name, logging.KeyEnforcement, b.Enforcement,
		logging.KeyMessage, b.Reason)
	if len(report.Lost) > 0 {
		p.log.Error("volumes have lost their data", logging.KeyVolumes, report.Lost)
	}
	if len(report.Uncounted) > 0 {
		p.log.Warn("volumes are not held to their sizes", logging.KeyVolumes, report.Uncounted)
	}
	if len(report.Untracked) > 0 {
		p.log.Info("untracked directories are left alone unless a PersistentVolume names them",
			logging.KeyCount, len(report.Untracked))
	}
}

// announceEnforcement logs that enforcement was lost, or is there again.
func (p *Pool) announceEnforcement(was, is quota.Backend, lost bool) {
	p.set.changed()
	if lost {
		p.log.Error("sizes are no longer enforced", logging.KeyBackend, was.Name, logging.KeyReason, is.Reason)
		return
	}
	p.log.Info("sizes are enforced again", logging.KeyBackend, is.Name, logging.KeyEnforcement, is.Enforcement)
}

func (p *Pool) announceReadOnly(readOnly bool) {
	p.set.changed()
	if readOnly {
		p.log.Error("the pool's filesystem is read-only")
		return
	}
	p.log.Info("the pool's filesystem is writable")
}
