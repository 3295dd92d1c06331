package pool

import (
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/backend"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/poolfs"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/store"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/volume"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/poolspec"
)

// quota is how a pool's volumes are held to their size.
type quota struct {
	volume.Backend
	// why says why they are not, "" where they are.
	why string
	// lost tells that they were: the filesystem's quota has been switched off.
	lost bool
	// found is what a look at the filesystem gave, which is another one where the driver may not set limits.
	found volume.Backend
}

// closed says why no volume is to be made, "" where they are.
func (q quota) closed(spec poolspec.Pool) string {
	if q.lost && spec.Quota == poolspec.QuotaRequired {
		return "quota is required and sizes can no longer be enforced: " + q.why
	}
	return ""
}

// refusalError ends taking a pool into use.
type refusalError struct{ decision decision }

func (e *refusalError) Error() string { return e.decision.reason + ": " + e.decision.message }

// judge decides what the backend that was found means for a pool whose marker names another one ("" for none). A pool that never
// enforced anything is refused where quota is required; one that did keeps its volumes.
func judge(spec poolspec.Pool, before string, found backend.Choice) (quota, *refusalError) {
	q := quota{Backend: found.Backend, why: found.Why}
	enforced := before != "" && before != backend.NamePlain
	switch {
	case backend.Enforces(found.Backend) || spec.Quota == poolspec.QuotaNone:
		return q, nil
	case enforced:
		q.lost = true
		return q, nil
	case spec.Quota == poolspec.QuotaRequired:
		return q, &refusalError{absent("QuotaUnavailable", "quota is required and sizes cannot be enforced at %s: %s; switch quota on, use another filesystem, or say quota: auto",
			spec.Path, found.Why)}
	default:
		return q, nil
	}
}

// onAgain is what to do about quota of btrfs that is off where volumes were held to their sizes before, and why the driver does not do it.
const onAgain = "quota is off, and the driver does not switch it on by itself where volumes are that it held to their sizes before: what they hold by now " +
	"would count to nobody under simple quota; `btrfs quota enable` (full qgroups) counts it"

// chooseBackend looks at what quota an open pool has. That of btrfs is switched on only before the pool's volumes count on one: it would
// not know what they hold already.
func (p *Pool) chooseBackend(disk poolfs.FS, m marker) error {
	before, err := p.enforcedBefore(disk, m)
	if err != nil {
		return err
	}
	want, counted := p.spec.Quota, before == backend.NameBtrfs && p.spec.Quota == poolspec.QuotaRequired
	if counted {
		want = poolspec.QuotaAuto
	}
	found, err := backend.Choose(disk, want)
	if err != nil {
		return err
	}
	if before == backend.NameBtrfs && found.Off {
		found.Why = onAgain
	}
	p.announceChanges(found)
	looked := found.Backend
	found = backend.Try(disk, found)
	q, refusal := judge(p.spec, before, found)
	if refusal != nil {
		return refusal
	}
	q.found = looked
	p.mu.Lock()
	was := p.quota
	p.quota = q
	p.mu.Unlock()
	p.announceQuota(was, q)
	return nil
}

// enforcedBefore names the backend that held the pool's volumes to their sizes, else that which made them last. The marker forgets it while the
// configuration says quota: none; where quota is required again, the records tell.
func (p *Pool) enforcedBefore(disk poolfs.FS, m marker) (string, error) {
	if p.spec.Quota != poolspec.QuotaRequired || m.FirstNumber == 0 || m.Backend != backend.NamePlain {
		return m.Backend, nil
	}
	records := store.Files{}
	ids, err := records.List(disk)
	if err != nil {
		return "", err
	}
	for _, id := range ids {
		if r, err := records.Read(disk, id); err == nil && r.ProjectID != 0 { // one that cannot be read is refused by recovery
			return r.Backend, nil
		}
	}
	return m.Backend, nil
}

func (p *Pool) quotaNow() quota {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.quota
}

// sameQuota tells whether an open pool's quota is still what it was when the pool was recovered. In doubt it is.
func (p *Pool) sameQuota(disk poolfs.FS) bool {
	look := poolspec.QuotaAuto
	if p.spec.Quota == poolspec.QuotaNone {
		look = poolspec.QuotaNone
	}
	found, err := backend.Choose(disk, look)
	if err != nil {
		return true
	}
	p.announceChanges(found)
	return found.Backend == p.quotaNow().found
}

// quotaChanged is whether sameQuota is false for the pool of a marker.
func (p *Pool) quotaChanged(id string) bool {
	disk, _, err := p.openMarked(id)
	if err != nil {
		return false
	}
	defer func() { _ = disk.Close() }()
	return !p.sameQuota(disk)
}

// purged ends what the quota knows of a volume whose data was purged from the trash. Where somebody has put the volume back meanwhile, or copied
// it, the number stays with its limit, which the removal may have lifted.
func (p *Pool) purged(disk poolfs.FS, r volume.Record) error {
	if r.ProjectID == 0 {
		return nil
	}
	if is, back := p.ledger.Get(r.ID); !back || is.ProjectID != r.ProjectID {
		if err := volume.DropLimit(p, disk, r); err != nil {
			return err
		}
	}
	return volume.HoldOwner(p, disk, r.ProjectID)
}
