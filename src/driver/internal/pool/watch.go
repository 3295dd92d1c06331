package pool

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/volume"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/logging"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/poolspec"
)

const (
	// interval is how often pools are looked at: external-provisioner asks for capacity every 5 s, and a change has to
	// be published within 10.
	interval = 2 * time.Second
	// askAgain is how long adoption waits when the Kubernetes API did not answer. Publishing or deleting a volume asks at once.
	askAgain = 30 * time.Second
	// orphanAge is how old a record must be before it counts as an orphan, and how often orphans are looked for.
	orphanAge = time.Hour
	// named is how many volumes a message names.
	named = 5
)

// Run watches all pools until ctx ends: guard, recovery and purge for each pool on its own, so that one that hangs does not
// hold up the others, and the search for orphans.
func (s *Set) Run(ctx context.Context) {
	var all sync.WaitGroup
	for _, p := range s.pools {
		all.Go(func() { p.watch(ctx) })
	}
	all.Go(func() { s.watchOrphans(ctx) })
	all.Wait()
}

func (p *Pool) watch(ctx context.Context) {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		p.Check(ctx)
		for p.Purge(ctx) && ctx.Err() == nil {
			// A removal is cut into slices, between which the pool is closed.
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// Check compares the marker and the quota, and lets the guard decide anew where one has changed. Otherwise it tries again to settle
// the quota, if that has failed.
func (p *Pool) Check(ctx context.Context) {
	if disk := p.open(); disk != nil {
		p.countUse(disk)
		p.dropLeftovers(disk)
		same := p.sameQuota(disk)
		_ = disk.Close()
		if same && !p.unchecked() {
			p.settleAgain()
			return
		}
	}
	p.refresh(ctx)
}

// Purge works off one slice of the trash; more tells that another is due at once. One call at a time.
func (p *Pool) Purge(ctx context.Context) (more bool) {
	disk := p.open()
	if disk == nil {
		return false
	}
	defer func() { _ = disk.Close() }()
	summary, err := p.purger.Purge(ctx, disk)
	if err != nil && ctx.Err() == nil {
		p.set.Log.Error("cannot purge the trash", logging.KeyPool, p.spec.Name, logging.KeyError, err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.trash = summary
	return summary.More && err == nil
}

// announce logs a change of a pool's state and tells it on the Node.
func (p *Pool) announce(before, now decision) {
	s, spec, q := p.set, p.spec, p.quotaNow()
	same := before.action == now.action && before.reason == now.reason // messages may differ in what an error says
	if same || (before.action <= create && now.action <= create) {
		return
	}
	s.tellChanged()
	switch now.action {
	case refuse:
		s.Log.Error("pool is absent", logging.KeyPool, spec.Name, logging.KeyPath, spec.Path, logging.KeyReason, now.reason, logging.KeyMessage, now.message)
		s.Events.Warning("PoolAbsent", fmt.Sprintf("pool %s: %s: %s", spec.Name, now.reason, now.message))
	case stayAside:
		s.Log.Info("pool is not selected on this node", logging.KeyPool, spec.Name)
	default:
		s.Log.Info("pool is present", logging.KeyPool, spec.Name, logging.KeyPath, spec.Path,
			logging.KeyBackend, q.Name(), logging.KeyEnforcement, q.Enforcement(), logging.KeyMessage, q.why)
		s.Events.Normal("PoolPresent", fmt.Sprintf("pool %s at %s can be used; enforcement of sizes: %s%s", spec.Name, spec.Path, q.Enforcement(), because(q.why)))
		p.mu.Lock()
		report := p.report
		p.mu.Unlock()
		s.announceReport(spec, report)
	}
}

// tellChanged says that Glance has something new to tell.
func (s *Set) tellChanged() {
	select {
	case s.changed <- struct{}{}:
	default: // whoever listens has yet to look, and will see this change too
	}
}

func because(why string) string {
	if why == "" {
		return ""
	}
	return ", because " + why
}

func (s *Set) announceReport(spec poolspec.Pool, report volume.Report) {
	if len(report.Lost) > 0 {
		s.Log.Error("volumes have lost their data", logging.KeyPool, spec.Name, logging.KeyVolumes, report.Lost)
		s.Events.Warning("VolumeLost", fmt.Sprintf("pool %s: no directory for: %s", spec.Name, abridge(report.Lost)))
	}
	if refused := slices.Concat(report.Refused, report.Unheld, report.Uncleared); len(refused) > 0 {
		s.Events.Warning("VolumeRefused", fmt.Sprintf("pool %s: record or directory cannot be used, or the limit cannot be held: %s", spec.Name, abridge(refused)))
	}
	if len(report.Foreign) > 0 {
		s.Log.Info("directories that are no volumes are left alone", logging.KeyPool, spec.Name, logging.KeyCount, len(report.Foreign))
	}
}

// watchOrphans looks for orphans once an hour.
func (s *Set) watchOrphans(ctx context.Context) {
	tick := time.NewTicker(orphanAge)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			s.findOrphans(ctx, now)
		}
	}
}

// findOrphans reports records of an hour ago or older that no PersistentVolume names, and inline volumes that no pod has mounted:
// one whose pod ended while its pool was absent. They are never removed for that.
func (s *Set) findOrphans(ctx context.Context, now time.Time) {
	pvs, err := s.Cluster.Volumes(ctx)
	if err != nil {
		s.Log.Warn("cannot look for orphans", logging.KeyError, err)
		return
	}
	wanted := make(map[string]struct{}, len(pvs))
	for _, pv := range pvs {
		wanted[pv.Handle] = struct{}{}
	}
	for _, p := range s.pools {
		var orphans []string
		for _, id := range p.ledger.IDs() {
			r, ok := p.ledger.Get(id)
			_, isWanted := wanted[id]
			if r.Ephemeral {
				isWanted = s.recoverer.Published(id)
			}
			if ok && !isWanted && now.Sub(r.Created) >= orphanAge {
				orphans = append(orphans, id)
			}
		}
		p.setOrphans(orphans)
	}
}

func (p *Pool) setOrphans(orphans []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(orphans) > len(p.orphans) {
		p.set.Log.Warn("volumes that nothing in the cluster names", logging.KeyPool, p.spec.Name, logging.KeyVolumes, orphans)
		p.set.Events.Warning("VolumesOrphaned", fmt.Sprintf("pool %s: no PersistentVolume, and for inline volumes no pod, names: %s", p.spec.Name, abridge(orphans)))
	}
	p.orphans = orphans
}

// abridge lists the first few names.
func abridge(names []string) string {
	if len(names) <= named {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:named], ", "), len(names)-named)
}
