package pool

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/disk"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/guard"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/quota"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/recovery"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/logging"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/poolspec"
)

// refusedError is a decision against a pool that came up while it was opened.
type refusedError struct{ guard.Decision }

func (e *refusedError) Error() string { return e.Reason + ": " + e.Message }

// refresh decides anew whether the pool can be used, and recovers it where it comes back. The Kubernetes API is asked
// before the pool is locked; what was seen before that is looked at again.
func (p *Pool) refresh(ctx context.Context) {
	ctx = context.WithoutCancel(ctx) // whoever happened to find the pool changed may leave; the work is for all
	p.refreshing.Lock()
	defer p.refreshing.Unlock()
	before, facts, err := p.decide()
	if err == nil && before.Action != guard.Use && before.Action != guard.Refuse {
		before = p.ask(ctx, before, facts)
	}
	p.use.Lock()
	defer p.use.Unlock()
	id := ""
	if err == nil && before.Action <= guard.Create {
		id, before, err = p.takeIntoUse(before, facts)
	}
	if err == nil && id != "" {
		err = p.recover(ctx, id, before.Action != guard.Use)
	}
	if refused, ok := errors.AsType[*refusedError](err); ok {
		before = refused.Decision
	} else if err != nil {
		before = guard.Absent("Failed", "%s: %v", p.spec.Path, err)
	}
	if err != nil {
		id = ""
	}
	p.enter(before, id)
}

// enter makes a decision known.
func (p *Pool) enter(d guard.Decision, id string) {
	if id == "" {
		p.ledger.Reset(false)
	}
	p.mu.Lock()
	before := p.now
	p.now, p.id = d, id
	p.mu.Unlock()
	p.announce(before, d)
}

// decide looks at the pool's path. It changes nothing.
func (p *Pool) decide() (d guard.Decision, f guard.Facts, err error) {
	f.Remembered, f.MemoryErr = p.memory()
	if f.Facts, err = p.set.Host.Inspect(p.spec.Path); err != nil {
		return d, f, err
	}
	if f.SystemDisk, err = p.set.isOn(f.Dev, p.set.SystemPaths); err != nil {
		return d, f, err
	}
	p.mu.Lock()
	f.Selected = p.wanted.served
	p.mu.Unlock()
	f.Selected = f.Selected || p.ledger.Selected()
	f.Unlabelled = p.set.unlabelled(p.spec)
	if f.CSI {
		open, err := p.set.Host.Open(p.spec.Path)
		if err != nil {
			return d, f, err
		}
		f.Marker, f.MarkerErr = readMarker(open)
		if err := open.Close(); err != nil {
			return d, f, err
		}
	}
	if f.Marker != nil {
		f.SamePool = p.set.samePool(p, f.Marker.ID)
	}
	return guard.Decide(p.spec, f), f, nil
}

// takeIntoUse does what was decided, unless the pool has changed since: it remembers a marker, or makes one.
func (p *Pool) takeIntoUse(d guard.Decision, f guard.Facts) (id string, now guard.Decision, err error) {
	if d.Action == guard.Use {
		return f.Marker.ID, d, nil
	}
	p.set.adopting.Lock()
	defer p.set.adopting.Unlock()
	again, g, err := p.decide()
	if err != nil {
		return "", d, err
	}
	if again != d || g.Dev != f.Dev {
		return "", guard.Absent("Changing", "%s changed while it was looked at; it is looked at again", p.spec.Path), nil
	}
	if d.Action == guard.Create {
		id, err = p.create(g)
	} else {
		id, err = g.Marker.ID, p.tryQuota(g.Marker.ID)
	}
	if err != nil {
		return "", d, err
	}
	m := guard.Memory{ID: id, Path: p.spec.Path}
	if err := p.set.state.Put(p.spec.Name, m); err != nil {
		return "", d, err
	}
	p.remember(&m)
	return id, d, nil
}

// create makes the pool's directories and its marker.
func (p *Pool) create(f guard.Facts) (id string, err error) {
	if err := p.set.Host.Create(p.spec.Path); err != nil {
		return "", err
	}
	d, err := p.set.Host.Open(p.spec.Path)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	info, err := d.Stat(".")
	if err != nil {
		return "", err
	}
	if f.Path && info.Dev != f.Dev {
		return "", errChanged
	}
	if _, err := p.detect(d, guard.Marker{}, true); err != nil {
		return "", err
	}
	if err := ensureLayout(d); err != nil {
		return "", err
	}
	m := guard.Marker{Version: guard.MarkerVersion, ID: rand.Text(), FSID: f.FSID, Created: p.set.Now().UTC()}
	return m.ID, writeMarker(d, m, disk.CreateFile)
}

// tryQuota refuses a marked pool that this node never used where its quota is required and not to be had.
func (p *Pool) tryQuota(id string) (err error) {
	d, m, err := p.openMarked(id)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	_, err = p.detect(d, *m, true)
	return err
}

// recover empties the ledger and fills it again from disk. first reports that this node has not used the pool before.
func (p *Pool) recover(ctx context.Context, id string, first bool) (err error) {
	d, m, err := p.openMarked(id)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	space, err := d.Space()
	if err != nil {
		return err
	}
	if !space.ReadOnly {
		if err := ensureLayout(d); err != nil {
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
		if err := writeMarker(d, *m, disk.ReplaceFile); err != nil { // on a full disk, which a delete can empty
			p.log.Warn("cannot note in the pool's marker that sizes are enforced", logging.KeyError, err)
		}
	}
	p.fill(b, m, result)
	p.look(d)
	return nil
}

// fill takes over what recovery found.
func (p *Pool) fill(b quota.Backend, m *guard.Marker, result recovery.Result) {
	lost := !b.Enforces() && m.EnforcedBy != "" && p.spec.Quota != poolspec.QuotaNone
	p.ledger.Reset(b.Enforces())
	closed := ""
	if p.spec.Quota == poolspec.QuotaRequired && !b.Enforces() {
		closed = "quota is required and sizes cannot be enforced: " + b.Reason
	}
	if len(result.Unknown) > 0 && (b.Enforces() || p.spec.Overcommit > 0) {
		closed = fmt.Sprintf("nobody knows what was promised to volumes whose records cannot be used: %s; restore the "+
			"records or move the volumes away", abridge(result.Unknown))
	}
	for id, v := range result.Volumes {
		p.ledger.Put(id, v)
	}
	p.ledger.Close(closed)
	result.Volumes = nil
	p.mu.Lock()
	was, wasLost := p.backend, p.lost
	p.backend, p.lost, p.report = b, lost, result
	p.mu.Unlock()
	if wasLost != lost {
		p.announceEnforcement(was, b, lost)
	}
}

// detect looks at what quota an open pool has, and switches it on only before its first volume. A pool that this node
// never used is refused where quota is required and not to be had; one that it did keeps its volumes.
func (p *Pool) detect(d disk.FS, m guard.Marker, first bool) (quota.Backend, error) {
	enable := false
	if p.spec.Quota == poolspec.QuotaRequired && first && m.EnforcedBy == "" {
		empty, err := hasNoVolumes(d)
		if err != nil {
			return quota.Backend{}, err
		}
		enable = empty
	}
	b, err := p.set.Quotas.Detect(d, p.spec.Quota, enable)
	if err != nil {
		return b, err
	}
	for _, change := range b.Changes {
		p.log.Warn("changed the filesystem's quota", logging.KeyMessage, change)
		p.set.Events.Normal("QuotaChanged", fmt.Sprintf("pool %s: %s", p.spec.Name, change))
	}
	if first && m.EnforcedBy == "" && p.spec.Quota == poolspec.QuotaRequired && !b.Enforces() {
		return b, &refusedError{guard.Absent("QuotaUnavailable", "quota is required and sizes cannot be enforced at %s: %s; "+
			"switch quota on, use another filesystem, or say quota: auto", p.spec.Path, b.Reason)}
	}
	return b, nil
}

// hasNoVolumes reports whether csi/ has nothing but the driver's own directory.
func hasNoVolumes(d disk.Reader) (bool, error) {
	entries, err := d.ReadDir(".")
	for _, e := range entries {
		if e.Name != disk.MetaDir {
			return false, err
		}
	}
	return true, err
}

// quotaChanged reports whether an open pool's quota is another than when the pool was recovered. In doubt it is not.
func (p *Pool) quotaChanged(d disk.FS) bool {
	b, err := p.set.Quotas.Detect(d, p.spec.Quota, false)
	p.mu.Lock()
	defer p.mu.Unlock()
	return err == nil && !b.Same(p.backend)
}
