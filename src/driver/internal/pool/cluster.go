package pool

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/guard"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/poolspec"
)

const (
	// askAgain is how long an answer of the Kubernetes API is good for, and afterSilence how soon it is asked again
	// when it did not answer: pools that cannot be used are looked at every few seconds and at every call, and must not
	// list all PersistentVolumes each time.
	askAgain, afterSilence = 30 * time.Second, 5 * time.Second
)

// Spec is the configuration of a pool, the zero one of a pool that is not configured.
func (s *Set) Spec(name string) poolspec.Pool {
	if p := s.find(name); p != nil {
		return p.spec
	}
	return poolspec.Pool{}
}

// Resolve names the pools of a class: the one or those that it asks for, else the pool legacy, else the only one.
func (s *Set) Resolve(named string) (names []string, err error) {
	names, err = poolspec.PoolsOf(s.Specs, named)
	switch {
	case err != nil:
		return nil, fmt.Errorf("%w: %w", ErrSeveral, err)
	case names[0] == "":
		return nil, fmt.Errorf("%w: the StorageClass parameter storagePool is missing; configured are: %s",
			ErrAmbiguous, s.names())
	}
	for i := range names {
		names[i] = s.nameNow(names[i])
	}
	return names, nil
}

// Preferred are pools in the order in which a volume is to be tried in them: where sizes are enforced first, then that
// which has what it is a copy of, then where the most room is. Those that hang, or cannot be used, are last.
func (s *Set) Preferred(names []string, source string) []string {
	type rank struct{ usable, enforced, source, largest int64 }
	ranks := map[string]rank{}
	for _, name := range names {
		p := s.find(name)
		if p == nil || p.known().id == "" || p.hangs() {
			continue
		}
		r := rank{usable: 1}
		if p.known().backend.Enforces() {
			r.enforced = 1
		}
		if name == source {
			r.source = 1
		}
		_, r.largest = s.Capacity(name)
		ranks[name] = r
	}
	return slices.SortedStableFunc(slices.Values(names), func(one, other string) int {
		a, b := ranks[one], ranks[other]
		return cmp.Or(cmp.Compare(b.usable, a.usable), cmp.Compare(b.enforced, a.enforced),
			cmp.Compare(b.source, a.source), cmp.Compare(b.largest, a.largest))
	})
}

// PoolOf names the pool that a PersistentVolume is in; ok is false where it may be in any. One that names none is older
// than this configuration may be.
func (s *Set) PoolOf(pv nodeapi.PersistentVolume) (name string, ok bool) {
	name = poolspec.DefaultPool(s.Names(), pv.Pool)
	return s.nameNow(name), name != ""
}

// nameNow is what a pool is called that had another name before.
func (s *Set) nameNow(name string) string {
	if p := s.find(name); p != nil {
		return p.spec.Name
	}
	return name
}

// SetNodeLabels decides anew in which pools this node makes volumes. Until it is first called, a pool with a
// nodeSelector that was never used here is absent.
func (s *Set) SetNodeLabels(labels map[string]string) {
	for _, p := range s.pools {
		selected := !p.left
		for key, value := range p.spec.NodeSelector {
			has, ok := labels[key]
			selected = selected && ok && has == value
		}
		p.ledger.Select(selected)
	}
	s.labelled.Store(true)
}

// pvCache is the last answer of the Kubernetes API.
type pvCache struct {
	mu  sync.Mutex
	at  time.Time
	pvs []nodeapi.PersistentVolume
	err error
}

// listed gives the PersistentVolumes of the driver, as they were at most askAgain ago.
func (s *Set) listed(ctx context.Context) ([]nodeapi.PersistentVolume, error) {
	s.cache.mu.Lock()
	defer s.cache.mu.Unlock()
	old := s.Now().Sub(s.cache.at)
	if old >= askAgain || (old >= afterSilence && s.cache.err != nil) {
		s.cache.pvs, s.cache.err = s.PVs.List(ctx)
		s.cache.at = s.Now()
	}
	return s.cache.pvs, s.cache.err
}

// ask asks the cluster about a pool that is new to this node. lacking are volumes that ought to be in it.
func (p *Pool) ask(ctx context.Context, d guard.Decision, f guard.Facts) (_ guard.Decision, lacking []string) {
	if d.Action == guard.Skip && p.known().asked {
		return d, nil
	}
	pvs, err := p.set.listed(ctx)
	if err != nil {
		return guard.Absent("ClusterUnknown",
			"waiting for the Kubernetes API to say whether %s ought to have volumes already: %v", p.spec.Path, err), nil
	}
	var wanted []string
	for _, pv := range pvs {
		if name, _ := p.set.PoolOf(pv); (pv.Here || p.shared()) && name == p.spec.Name {
			wanted = append(wanted, pv.Handle)
		}
	}
	if d.Action == guard.Skip {
		p.update(func(s *state) { s.asked, s.served = true, len(wanted) > 0 })
		if len(wanted) == 0 {
			return d, nil
		}
		f.Selected = true
		d = guard.Decide(p.spec, f)
	}
	return guard.Confirm(p.set.Host, p.spec, d, f, wanted)
}
