package pool

import (
	"context"
	"errors"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/poolfs"
)

// first takes a pool into use on this node, unless volumes that the cluster knows ought to be in it already: then their disk is
// missing, and going on would hide that for ever.
func (p *Pool) first(ctx context.Context, s sight, d decision) (decision, string, error) {
	if s.remembered == nil || !s.remembered.Forgotten {
		missing, err := p.missingVolumes(ctx, s.facts.CSI)
		if err != nil {
			return p.waiting(err), "", nil
		}
		if len(missing) > 0 {
			return absent("VolumesMissing", "%s lacks the directories of volumes that PersistentVolumes name: %s; mount their filesystem, or if they are lost: driver pool forget %s",
				p.spec.Path, abridge(missing), p.spec.Name), "", nil
		}
	}
	// The cluster took its time to answer: look again, and go on only if nothing has changed.
	again, err := p.see()
	if err != nil {
		return d, "", err
	}
	if decide(p.spec, again) != d || again.facts.Dev != s.facts.Dev {
		return absent("Changing", "%s changed while it was looked at; it is looked at again", p.spec.Path), "", nil
	}
	id, err := p.takeIntoUse(d.action, again)
	if refusal, ok := errors.AsType[*refusalError](err); ok {
		return refusal.decision, "", nil
	}
	return d, id, err
}

// takeIntoUse adopts a marker or makes it, unless the pool's quota is not to be had there.
func (p *Pool) takeIntoUse(how action, s sight) (id string, err error) {
	if how == create {
		return p.make(s.facts)
	}
	disk, m, err := p.openMarked(s.marker.ID)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, disk.Close()) }()
	if err := p.chooseBackend(disk, *m); err != nil {
		return "", err
	}
	return m.ID, p.remember(m.ID)
}

func (p *Pool) waiting(err error) decision {
	return absent("ClusterUnknown", "waiting for the Kubernetes API to tell whether %s ought to hold volumes already: %v", p.spec.Path, err)
}

// stay leaves a pool alone that is not selected here, unless the cluster knows volumes of this node in it: those are served.
func (p *Pool) stay(ctx context.Context, s sight, d decision) (decision, string, error) {
	if p.isAside() {
		return d, "", nil
	}
	wanted, err := p.wanted(ctx)
	if err != nil {
		return p.waiting(err), "", nil
	}
	p.setServed(len(wanted) > 0)
	if len(wanted) == 0 {
		return d, "", nil
	}
	s.selected = true
	return p.first(ctx, s, decide(p.spec, s))
}

func (p *Pool) setServed(served bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.served, p.aside = served, !served
}

func (p *Pool) isServed() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.served
}

func (p *Pool) isAside() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.aside
}

// make makes the pool's directories and its marker.
func (p *Pool) make(facts poolfs.Facts) (id string, err error) {
	if err := p.set.Disk.Create(p.spec.Path); err != nil {
		return "", err
	}
	disk, err := p.set.Disk.Open(p.spec.Path)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, disk.Close()) }()
	info, err := disk.Stat(".")
	if err != nil {
		return "", err
	}
	if facts.Path && info.Dev != facts.Dev {
		return "", errors.New("another filesystem was mounted there just now")
	}
	if err := p.chooseBackend(disk, marker{}); err != nil {
		return "", err
	}
	m := newMarker(facts.FSID, p.set.Now())
	if err := writeMarker(disk, m); err != nil {
		return "", err
	}
	return m.ID, p.remember(m.ID)
}
