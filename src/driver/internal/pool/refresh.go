package pool

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/disk"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/guard"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/quota"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/recovery"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/store"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/abridge"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/logging"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/poolspec"
)

// refresh decides anew whether the pool can be used, and recovers it where it comes back. The Kubernetes API is asked
// before the pool is locked; what was seen before that is looked at again.
func (p *Pool) refresh(ctx context.Context) {
	ctx = context.WithoutCancel(ctx) // whoever happened to find the pool changed may leave; the work is for all
	p.refreshing.Lock()
	defer p.refreshing.Unlock()
	now, facts, err := p.decide()
	var lacking []string
	if err == nil && now.Action != guard.Use && now.Action != guard.Refuse {
		now, lacking = p.ask(ctx, now, facts)
	}
	if err == nil && now.Action <= guard.Adopt && !p.left {
		err = p.succeed(facts.Marker.ID)
	}
	p.lockAll()
	defer p.use.Unlock()
	id := ""
	if err == nil && now.Action <= guard.Create {
		id, err = p.enter(ctx, now, facts)
	}
	if err != nil {
		id, now = "", guard.Failed(p.spec.Path, err)
	}
	if id == "" {
		p.ledger.Reset(false)
	}
	p.conclude(now, id, facts, lacking)
}

// enter takes the pool into use and recovers it.
func (p *Pool) enter(ctx context.Context, d guard.Decision, f guard.Facts) (id string, err error) {
	if id, err = p.takeIntoUse(d, f); err != nil || id == "" {
		return "", err
	}
	return id, p.recover(ctx, id, d.Action != guard.Use)
}

// decide looks at the pool's path. It changes nothing.
func (p *Pool) decide() (guard.Decision, guard.Facts, error) {
	f, err := guard.Look(p.host, p.spec.Path, p.set.SystemPaths)
	if err != nil {
		return guard.Decision{}, f, err
	}
	f.Remembered, f.Expected, f.Owner = p.set.remembered(p.spec.Name), p.expected(), p.owner()
	f.Selected = p.known().served || p.ledger.Selected()
	f.Unlabelled = len(p.spec.NodeSelector) > 0 && !p.set.labelled.Load()
	if other := p.sameAs(f.Marker); other != nil {
		f.SamePool = other.spec.Name
		there, err := guard.Look(p.host, other.spec.Path, p.set.SystemPaths)
		if err == nil && (there.Marker == nil || there.Marker.ID != f.Marker.ID) {
			f.Belongs = other.spec.Path
		}
	}
	d := guard.Decide(p.spec, f)
	if p.left && d.Action != guard.Use && d.Action != guard.Refuse {
		d = guard.Absent(nodeapi.ReasonNotConfigured, "%s is not what this node has used", p.spec.Path)
	}
	return d, f, nil
}

// sameAs is another pool that has a marker, nil where none has.
func (p *Pool) sameAs(m *guard.Marker) *Pool {
	for _, other := range p.set.pools {
		if m != nil && other != p && !other.ended() && (p.left || !other.left) &&
			slices.Contains(p.set.idsOf(other.spec.Name), m.ID) {
			return other
		}
	}
	return nil
}

// takeIntoUse does what was decided, unless the pool has changed since: it remembers a marker, or makes one.
func (p *Pool) takeIntoUse(d guard.Decision, f guard.Facts) (id string, err error) {
	if d.Action == guard.Use {
		if err := p.note(f.Marker.ID); err != nil { // what is there is right all the same
			p.log.Warn("cannot remember how a pool is configured", logging.KeyError, err)
		}
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
	p.update(func(s *state) { s.changes = nil }) // of another filesystem
	if d.Action == guard.Create {
		id, err = p.create(g)
	} else {
		id, err = g.Marker.ID, p.tryQuota(g.Marker.ID)
	}
	if err != nil {
		return "", err
	}
	return id, p.note(id)
}

// create makes the pool's directories and its marker.
func (p *Pool) create(f guard.Facts) (id string, err error) {
	d, err := guard.Make(p.host, p.spec.Path, f.Facts)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	if !f.Path { // what filesystem it is on could not be seen before
		now, g, err := p.decide()
		if err == nil && now.Action == guard.Refuse {
			err = guard.Refused(now.Reason, "%s", now.Message)
		}
		if err != nil {
			return "", err
		}
		f = g
	}
	m := guard.Marker{Version: guard.MarkerVersion, ID: rand.Text(), FSID: f.FSID, Created: p.set.Now().UTC()}
	if p.shared() {
		m.Owner = p.expected().Owner
	}
	if _, err := p.detect(d, m, true); err != nil {
		return "", err
	}
	if err := ensureLayout(d); err != nil {
		return "", err
	}
	err = m.Write(d, disk.CreateFile)
	if errors.Is(err, fs.ErrExist) { // another node was faster, and is the one to be followed
		return "", guard.Refused("Changing", "another node takes %s into use; it is looked at again", p.spec.Path)
	}
	if err == nil && f.FSType == "overlay" {
		p.noteChange(nodeapi.WarningPoolOnOverlay, p.spec.Path+" is on an overlay, such as a container's root or a "+
			"live system's: its volumes may be gone with that; mount a disk there")
	}
	return m.ID, err
}

// tryQuota refuses a marked pool that this node never used where its quota is required and not to be had.
func (p *Pool) tryQuota(id string) error {
	d, m, err := guard.Open(p.host, p.spec.Path, id)
	if err == nil {
		_, err = p.detect(d, *m, true)
		err = errors.Join(err, d.Close())
	}
	return err
}

// recover empties the ledger and fills it again from disk. first reports that this node has not used the pool before.
func (p *Pool) recover(ctx context.Context, id string, first bool) (err error) {
	d, m, err := guard.Open(p.host, p.spec.Path, id)
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
	result, err := recovery.Run(ctx, store.Pool{
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

// fill takes over what recovery found. It closes the ledger where no volume may be made.
func (p *Pool) fill(b quota.Backend, m *guard.Marker, result recovery.Result) {
	p.ledger.Reset(b.Enforces())
	closed := ""
	if p.spec.Quota == poolspec.QuotaRequired && !b.Enforces() {
		closed = "quota is required and sizes cannot be enforced: " + b.Reason
	}
	if len(result.Unknown) > 0 && (b.Enforces() || p.spec.Overcommit > 0) {
		closed = "nobody knows what was promised to volumes whose records cannot be used: " +
			abridge.Names(result.Unknown) + "; restore the records or move the volumes away"
	}
	for id, v := range result.Volumes {
		p.ledger.Put(id, v)
	}
	p.ledger.Close(closed)
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
		if enable, err = hasNoVolumes(d); err != nil {
			return quota.Backend{}, err
		}
	}
	b, err := p.set.Quotas.Detect(d, p.spec.Quota, enable)
	if err != nil {
		return b, err
	}
	for _, change := range b.Changes {
		p.log.Warn("changed the filesystem's quota", logging.KeyMessage, change)
		p.noteChange(nodeapi.WarningQuotaChanged, change)
	}
	if required && !b.Enforces() {
		return b, guard.Refused("QuotaUnavailable", "quota is required and sizes cannot be enforced at %s: %s; "+
			"switch quota on, use another filesystem, or say quota: auto", p.spec.Path, b.Reason)
	}
	return b, nil
}

// ensureLayout makes the driver's directories and closes csi/ to all but root: volumes may be world-writable inside.
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
		for _, on := range []disk.FS{disk.AllNodes(d), d} { // of a shared pool, those of all nodes and this node's own
			if err := on.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
				return fmt.Errorf("make csi/%s: %w", dir, err)
			}
		}
	}
	// Not for what was just made alone: a driver that was killed in the last step of a delete is asked again,
	// finds nothing and says that it is done. Where the filesystem keeps the order of steps, the move out of csi/
	// is on the disk only with this; elsewhere it was before the record moved.
	if err := disk.SyncAll(d, ".", disk.MetaDir); err != nil {
		return err
	}
	if disk.IsShared(d) {
		if err := disk.SyncAll(disk.AllNodes(d), disk.StagingDir, disk.TrashDir); err != nil {
			return err
		}
	}
	return store.EnsureSpare(d)
}

// hasNoVolumes reports whether csi/ has nothing but the driver's own directory.
func hasNoVolumes(d disk.Reader) (bool, error) {
	entries, err := d.ReadDir(".")
	return !slices.ContainsFunc(entries, func(e disk.Entry) bool { return e.Name != disk.MetaDir }), err
}
