package pool

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/disk"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/guard"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/records"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/logging"
)

const (
	// askAgain is how long an answer of the Kubernetes API is good for, and afterSilence how soon it is asked again when
	// it did not answer: pools that cannot be used are looked at every few seconds and at every call, and must not list
	// all PersistentVolumes each time.
	askAgain, afterSilence = 30 * time.Second, 5 * time.Second
	// orphanAge is how old a record must be before it counts as an orphan, and how often orphans are looked for.
	orphanAge = time.Hour
)

// pvCache is the last answer of the Kubernetes API.
type pvCache struct {
	mu  sync.Mutex
	at  time.Time
	pvs []PersistentVolume
	err error
}

// listed gives the PersistentVolumes of the driver, as they were at most askAgain ago.
func (s *Set) listed(ctx context.Context) ([]PersistentVolume, error) {
	s.cache.mu.Lock()
	defer s.cache.mu.Unlock()
	old := s.Now().Sub(s.cache.at)
	if old < afterSilence || (old < askAgain && s.cache.err == nil) {
		return s.cache.pvs, s.cache.err
	}
	s.cache.pvs, s.cache.err = s.PVs.List(ctx)
	s.cache.at = s.Now()
	return s.cache.pvs, s.cache.err
}

// answer is what the cluster said of a pool that is not selected here and was never used: whether it has volumes
// that are to be served all the same.
type answer struct{ asked, served bool }

// ask asks the cluster about a pool that is new to this node. Volumes that ought to be in it already mean that their
// disk is missing: to go on would hide that for ever.
func (p *Pool) ask(ctx context.Context, d guard.Decision, f guard.Facts) guard.Decision {
	p.mu.Lock()
	known := p.wanted.asked
	p.mu.Unlock()
	if d.Action == guard.StayAside && known {
		return d
	}
	wanted, err := p.volumes(ctx)
	if err != nil {
		return p.waiting(err)
	}
	if d.Action == guard.StayAside {
		p.mu.Lock()
		p.wanted = answer{asked: true, served: len(wanted) > 0}
		p.mu.Unlock()
		if len(wanted) == 0 {
			return d
		}
		f.Selected = true
		d = guard.Decide(p.spec, f)
	}
	if len(wanted) == 0 {
		if refused, is := guard.OnNetwork(p.spec, f.Facts); is { // also with a marker, which another node has made
			return refused
		}
	}
	if f.Remembered != nil && f.Remembered.Forgotten {
		return d
	}
	missing, err := p.missing(wanted, f.CSI)
	if err != nil {
		return guard.Absent("Failed", "%s: %v", p.spec.Path, err)
	}
	if len(missing) > 0 {
		return guard.Absent("VolumesMissing", "%s lacks the directories of volumes that PersistentVolumes name: %s; mount "+
			"their filesystem, or if they are lost: driver pool forget %s", p.spec.Path, abridge(missing), p.spec.Name)
	}
	return d
}

func (p *Pool) waiting(err error) guard.Decision {
	return guard.Absent("ClusterUnknown",
		"waiting for the Kubernetes API to say whether %s ought to have volumes already: %v",
		p.spec.Path, err)
}

// volumes lists the ids that PersistentVolumes of this node place in the pool.
func (p *Pool) volumes(ctx context.Context) (ids []string, err error) {
	pvs, err := p.set.listed(ctx)
	for _, pv := range pvs {
		if name, err := p.set.Resolve(pv.Pool); pv.Here && err == nil && name == p.spec.Name {
			ids = append(ids, pv.Handle)
		}
	}
	return ids, err
}

// missing gives those ids that have neither a directory nor a record.
func (p *Pool) missing(ids []string, hasCSI bool) (missing []string, err error) {
	if !hasCSI || len(ids) == 0 {
		return ids, nil
	}
	d, err := p.set.Host.Open(p.spec.Path)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	for _, id := range ids {
		if records.ValidateID(id) != nil || !has(d, id) {
			missing = append(missing, id)
		}
	}
	return missing, nil
}

func has(d disk.Reader, id string) bool {
	_, noData := d.Stat(id)
	_, noRecord := d.Stat(records.Path(id))
	return noData == nil || noRecord == nil
}

// orphans are volumes that no PersistentVolume of this node names, nor for inline ones a pod.
type orphans struct {
	unnamed []string
	other   []string // with the nodes that their PersistentVolume names
}

// watchOrphans looks for orphans once an hour.
func (s *Set) watchOrphans(ctx context.Context, published func(id string) bool) {
	tick := time.NewTicker(orphanAge)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			s.FindOrphans(ctx, published)
		}
	}
}

// FindOrphans reports volumes of an hour ago or older that no PersistentVolume names, or one of
// another node, and inline volumes that no pod has mounted: one whose pod ended while its pool was
// absent. They are never removed for that.
func (s *Set) FindOrphans(ctx context.Context, published func(id string) bool) {
	pvs, err := s.PVs.List(ctx)
	if err != nil {
		s.Log.Warn("cannot look for orphans", logging.KeyError, err)
		return
	}
	byHandle := make(map[string]PersistentVolume, len(pvs))
	for _, pv := range pvs {
		byHandle[pv.Handle] = pv
	}
	for _, p := range s.pools {
		p.setOrphans(p.findOrphans(byHandle, published))
	}
}

func (p *Pool) findOrphans(pvs map[string]PersistentVolume, published func(id string) bool) (found orphans) {
	var inline []string
	now := p.set.Now()
	for _, id := range p.ledger.Older(now.Add(-orphanAge)) {
		v, _ := p.ledger.Get(id)
		pv, named := pvs[id]
		switch {
		case v.Ephemeral:
			inline = append(inline, id)
		case !named:
			found.unnamed = append(found.unnamed, id)
		case !pv.Here && len(pv.Nodes) > 0: // without affinity it is everybody's
			found.other = append(found.other, fmt.Sprintf("%s (node %s)", id, abridge(pv.Nodes)))
		}
	}
	for _, id := range inline {
		if !published(id) {
			found.unnamed = append(found.unnamed, id)
		}
	}
	return found
}
