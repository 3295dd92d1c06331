package pool

import (
	"context"
	"fmt"
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
		p.check(ctx)
		for p.purge(ctx) && ctx.Err() == nil {
			// A removal is cut into slices, between which the pool is closed.
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// check compares the marker, and lets the guard decide anew where it has changed.
func (p *Pool) check(ctx context.Context) {
	if disk := p.open(); disk != nil {
		_ = disk.Close()
		if !p.unchecked() {
			return
		}
	}
	p.refresh(ctx)
}

// purge works off one slice of the trash; more tells that another is due at once.
func (p *Pool) purge(ctx context.Context) (more bool) {
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
func (s *Set) announce(spec poolspec.Pool, before, now decision, report volume.Report) {
	same := before.action == now.action && before.reason == now.reason // messages may differ in what an error says
	if same || (before.action <= create && now.action <= create) {
		return
	}
	switch now.action {
	case refuse:
		s.Log.Error("pool is absent", logging.KeyPool, spec.Name, logging.KeyPath, spec.Path, logging.KeyReason, now.reason, logging.KeyMessage, now.message)
		s.Events.Warning("PoolAbsent", fmt.Sprintf("pool %s: %s: %s", spec.Name, now.reason, now.message))
	case stayAside:
		s.Log.Info("pool is not selected on this node", logging.KeyPool, spec.Name)
	default:
		s.Log.Info("pool is present", logging.KeyPool, spec.Name, logging.KeyPath, spec.Path, logging.KeyBackend, s.Backend.Name())
		s.Events.Normal("PoolPresent", fmt.Sprintf("pool %s at %s can be used; enforcement of sizes: %s", spec.Name, spec.Path, s.Backend.Enforcement()))
		s.announceReport(spec, report)
	}
}

func (s *Set) announceReport(spec poolspec.Pool, report volume.Report) {
	if len(report.Lost) > 0 {
		s.Log.Error("volumes have lost their data", logging.KeyPool, spec.Name, logging.KeyVolumes, report.Lost)
		s.Events.Warning("VolumeLost", fmt.Sprintf("pool %s: no directory for: %s", spec.Name, abridge(report.Lost)))
	}
	if len(report.Refused) > 0 {
		s.Events.Warning("VolumeRefused", fmt.Sprintf("pool %s: record or directory cannot be used: %s", spec.Name, abridge(report.Refused)))
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

// Status is a pool as metrics, health and `driver status` show it. Sizes are in bytes.
type Status struct {
	Name, Path  string
	Present     bool
	Selected    bool
	Remembered  bool // by this node only: the configuration no longer holds the pool
	Reason      string
	Message     string
	ID          string
	Backend     string
	Enforcement string
	Inline      bool

	Size, Free, Available, Promised int64
	Volumes, Orphans, Lost, Refused int
	TrashEntries                    int
	OldestTrash                     time.Time
}

// Status is the state of every pool, those that only this node remembers last.
func (s *Set) Status() []Status {
	var all []Status
	for _, p := range s.pools {
		all = append(all, p.status())
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, m := range s.memory {
		all = append(all, Status{Name: name, Path: m.Path, ID: m.ID, Remembered: true, Reason: "NotConfigured", Message: takenOut(name)})
	}
	return all
}

func (p *Pool) status() Status {
	st := p.glance()
	disk := p.open()
	if disk == nil {
		return st
	}
	defer func() { _ = disk.Close() }()
	space, err := disk.Space()
	if err != nil {
		p.set.Log.Warn("cannot read a pool's free space", logging.KeyPool, p.spec.Name, logging.KeyError, err)
		return st
	}
	st.Size, st.Free = space.Size, space.Free
	st.Volumes, st.Promised, st.Available = p.ledger.totals(space)
	return st
}

// glance is the status without a look at the disk.
func (p *Pool) glance() Status {
	p.mu.Lock()
	defer p.mu.Unlock()
	st := Status{
		Name: p.spec.Name, Path: p.spec.Path, Present: p.id != "", Selected: p.ledger.isSelected(), ID: p.id,
		Reason: p.now.reason, Message: p.now.message, Inline: p.spec.Inline,
		Backend: p.backend.Name(), Enforcement: string(p.backend.Enforcement()),
		Orphans: len(p.orphans), Lost: p.stillLost(), Refused: len(p.report.Refused),
	}
	st.TrashEntries, st.OldestTrash = p.trash.Entries, p.trash.Oldest
	return st
}

// stillLost counts the volumes that recovery found lost and that were not deleted since. p.mu is held.
func (p *Pool) stillLost() (n int) {
	for _, id := range p.report.Lost {
		if _, ok := p.ledger.Get(id); ok {
			n++
		}
	}
	return n
}
