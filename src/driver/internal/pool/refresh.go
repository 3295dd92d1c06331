package pool

import (
	"context"
	"crypto/rand"
	"errors"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/disk"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/guard"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/quota"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/recovery"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/logging"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/poolspec"
)

// refresh decides anew whether the pool can be used, and recovers it where it comes back. The Kubernetes API is asked
// before the pool is locked; what was seen before that is looked at again.
func (p *Pool) refresh(ctx context.Context) {
	ctx = context.WithoutCancel(ctx) // whoever happened to find the pool changed may leave; the work is for all
	p.refreshing.Lock()
	defer p.refreshing.Unlock()
	now, facts, err := p.decide()
	if err == nil && now.Action != guard.Use && now.Action != guard.Refuse {
		now = p.ask(ctx, now, facts)
	}
	p.use.Lock()
	defer p.use.Unlock()
	id := ""
	if err == nil && now.Action <= guard.Create {
		id, err = p.takeIntoUse(now, facts)
	}
	if err == nil && id != "" {
		err = p.recover(ctx, id, now.Action != guard.Use)
	}
	if err != nil {
		id, now = "", guard.Failed(p.spec.Path, err)
	}
	if id == "" {
		p.ledger.Reset(false)
	}
	var before guard.Decision
	p.update(func(s *state) { before, s.now, s.id = s.now, now, id })
	p.announce(before, now)
}

// decide looks at the pool's path. It changes nothing.
func (p *Pool) decide() (guard.Decision, guard.Facts, error) {
	f, err := guard.Look(p.set.Host, p.spec.Path, p.set.SystemPaths)
	if err != nil {
		return guard.Decision{}, f, err
	}
	f.Remembered = p.set.remembered(p.spec.Name)
	f.Selected = p.known().served || p.ledger.Selected()
	f.Unlabelled = len(p.spec.NodeSelector) > 0 && !p.set.labelled.Load()
	for _, other := range p.set.pools {
		if other != p && f.Marker != nil && p.set.remembered(other.spec.Name).ID == f.Marker.ID {
			f.SamePool = other.spec.Name
			break
		}
	}
	return guard.Decide(p.spec, f), f, nil
}

// takeIntoUse does what was decided, unless the pool has changed since: it remembers a marker, or makes one.
func (p *Pool) takeIntoUse(d guard.Decision, f guard.Facts) (id string, err error) {
	if d.Action == guard.Use {
		return f.Marker.ID, nil
	}
	p.set.adopting.Lock()
	defer p.set.adopting.Unlock()
	again, g, err := p.decide()
	if err != nil {
		return "", err
	}
	if again != d || g.Dev != f.Dev {
		return "", guard.Refused("Changing", "%s changed while it was looked at; it is looked at again", p.spec.Path)
	}
	if d.Action == guard.Create {
		id, err = p.create(g)
	} else {
		id, err = g.Marker.ID, p.tryQuota(g.Marker.ID)
	}
	if err != nil {
		return "", err
	}
	return id, p.set.remember(p.spec.Name, guard.Memory{ID: id, Path: p.spec.Path})
}

// create makes the pool's directories and its marker.
func (p *Pool) create(f guard.Facts) (id string, err error) {
	d, err := guard.Make(p.set.Host, p.spec.Path, f.Facts)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	m := guard.Marker{Version: guard.MarkerVersion, ID: rand.Text(), FSID: f.FSID, Created: p.set.Now().UTC()}
	if _, err := p.detect(d, m, true); err != nil {
		return "", err
	}
	if err := recovery.EnsureLayout(d); err != nil {
		return "", err
	}
	return m.ID, m.Write(d, disk.CreateFile)
}

// tryQuota refuses a marked pool that this node never used where its quota is required and not to be had.
func (p *Pool) tryQuota(id string) error {
	d, m, err := guard.Open(p.set.Host, p.spec.Path, id)
	if err == nil {
		_, err = p.detect(d, *m, true)
		err = errors.Join(err, d.Close())
	}
	return err
}

// recover empties the ledger and fills it again from disk. first reports that this node has not used the pool before.
func (p *Pool) recover(ctx context.Context, id string, first bool) (err error) {
	d, m, err := guard.Open(p.set.Host, p.spec.Path, id)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	space, err := d.Space()
	if err != nil {
		return err
	}
	if !space.ReadOnly {
		if err := recovery.EnsureLayout(d); err != nil {
			return err
		}
	}
	b, err := p.detect(d, *m, first)
	if err != nil {
		return err
	}
	result, err := recovery.Run(ctx, recovery.Pool{
		Disk: d, Limits: b.On(d), Backend: b, ReadOnly: space.ReadOnly, Log: p.log,
	})
	if err != nil {
		return err
	}
	if b.Enforces() && !space.ReadOnly && (m.EnforcedBy != b.Name || m.Enforcement != b.Enforcement) {
		m.EnforcedBy, m.Enforcement = b.Name, b.Enforcement
		if err := m.Write(d, disk.ReplaceFile); err != nil { // on a full disk, which a delete can empty
			p.log.Warn("cannot note in the pool's marker that sizes are enforced", logging.KeyError, err)
		}
	}
	p.fill(b, m, result)
	p.look(d)
	return nil
}

// fill takes over what recovery found.
func (p *Pool) fill(b quota.Backend, m *guard.Marker, result recovery.Result) {
	result.Fill(p.ledger, p.spec, b)
	result.Volumes = nil
	lost := !b.Enforces() && m.EnforcedBy != "" && p.spec.Quota != poolspec.QuotaNone
	before := p.known()
	p.update(func(s *state) { s.backend, s.lost, s.report = b, lost, result })
	if before.lost != lost {
		p.announceEnforcement(before.backend, b, lost)
	}
}

// detect looks at what quota an open pool has, and switches it on only before its first volume. A pool that this node
// never used is refused where quota is required and not to be had; one that it did keeps its volumes.
func (p *Pool) detect(d disk.FS, m guard.Marker, first bool) (quota.Backend, error) {
	required, enable := p.spec.Quota == poolspec.QuotaRequired && first && m.EnforcedBy == "", false
	if required {
		var err error
		if enable, err = recovery.HasNoVolumes(d); err != nil {
			return quota.Backend{}, err
		}
	}
	b, err := p.set.Quotas.Detect(d, p.spec.Quota, enable)
	if err != nil {
		return b, err
	}
	for _, change := range b.Changes {
		p.log.Warn("changed the filesystem's quota", logging.KeyMessage, change)
		p.normal("QuotaChanged", "%s", change)
	}
	if required && !b.Enforces() {
		return b, guard.Refused("QuotaUnavailable", "quota is required and sizes cannot be enforced at %s: %s; "+
			"switch quota on, use another filesystem, or say quota: auto", p.spec.Path, b.Reason)
	}
	return b, nil
}
