// Package report says in Kubernetes what nodes say of their pools: in events on Nodes and claims, and in conditions of
// the driver's pods, of which the operator makes storagePoolStatuses. What a node says is a level; an event is sent
// when it changes. Only the replica that leads does it.
package report

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/controller/internal/fleet"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/logging"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi/wire"
)

const (
	// interval is how often it is looked at what nodes say.
	interval = 2 * time.Second
	// eventsPerSecond and eventsBurst bound what is written for all nodes, nodeInterval and nodeBurst for one: a node
	// says what it likes.
	eventsPerSecond, eventsBurst = 50, 200
	nodeInterval, nodeBurst      = 5 * time.Second, 50
	// memory is how long Kubernetes remembers an event. What is older was reported by whoever led then.
	memory = time.Hour
)

// Cluster is Kubernetes.
type Cluster interface {
	// AboutNode and AboutClaim send an event, unless one with its key and time was sent before, also by others.
	AboutNode(name string, e nodeapi.Event)
	AboutClaim(claim nodeapi.Claim, e nodeapi.Event)
	// Known gives the PersistentVolumes with a volumeHandle.
	Known(handle string) []nodeapi.PersistentVolume
	Pods
}

// Pods are the driver's, each with its conditions of pools.
type Pods interface {
	// Pod gives the one on a node; name is "" where there is none.
	Pod(node string) (name string, conditions []corev1.PodCondition)
	SetConditions(ctx context.Context, pod string, conditions []corev1.PodCondition) error
}

// Reporter reports.
type Reporter struct {
	fleet   *fleet.Fleet
	cluster Cluster
	all     *rate.Limiter
	nodes   map[string]*rate.Limiter
	// said are the events that nodes were the cause of when it was last looked, by node and key.
	said map[string]bool
	// applied is by node, until it has come.
	applied    map[string]application
	everywhere func(pool string) bool
}

// New returns a reporter that has said nothing yet. everywhere reports whether a pool is on all nodes.
func New(nodes *fleet.Fleet, cluster Cluster, everywhere func(pool string) bool) (*Reporter, error) {
	if nodes == nil || cluster == nil || everywhere == nil {
		return nil, errors.New("report: the fleet, the cluster or the pools are missing")
	}
	return &Reporter{
		fleet: nodes, cluster: cluster, everywhere: everywhere, applied: map[string]application{},
		all: rate.NewLimiter(eventsPerSecond, eventsBurst), nodes: map[string]*rate.Limiter{}, said: map[string]bool{},
	}, nil
}

// Run reports until ctx ends.
func (r *Reporter) Run(ctx context.Context) {
	r.fleet.Every(ctx, interval, func() {
		if !r.fleet.Leads() {
			clear(r.said)
			return
		}
		if err := r.look(ctx); err != nil && ctx.Err() == nil {
			r.fleet.Log.WarnContext(ctx, "cannot report the nodes' pools", logging.KeyError, err)
		}
	})
}

// look says what is new.
func (r *Reporter) look(ctx context.Context) (err error) {
	names, said := r.fleet.Names(), map[string]bool{}
	maps.DeleteFunc(r.nodes, func(node string, _ *rate.Limiter) bool { return !slices.Contains(names, node) })
	maps.DeleteFunc(r.applied, func(node string, _ application) bool { return !slices.Contains(names, node) })
	for _, node := range names {
		if !r.fleet.Leads() { // no more: perhaps the API is silent
			return err
		}
		p := r.fleet.Get(node)
		switch {
		case p == nil:
			err = errors.Join(err, r.setConditions(ctx, node, r.unknown))
		case p.Has(wire.FeatureSince): // an older one does not say since when it is so
			pools, _ := p.Pools()
			r.sendEvents(node, pools, said)
			known := func(string, []corev1.PodCondition) []corev1.PodCondition { return conditions(pools) }
			err = errors.Join(err, r.setConditions(ctx, node, known))
		}
	}
	r.said = said
	return err
}

// allows reports whether so much more may be written because of a node, to which that is one thing.
func (r *Reporter) allows(node string, writes int) bool {
	if r.nodes[node] == nil {
		r.nodes[node] = rate.NewLimiter(rate.Every(nodeInterval), nodeBurst)
	}
	own, now := r.nodes[node], r.fleet.Now()
	return own.TokensAt(now) >= 1 && r.all.AllowN(now, min(writes, eventsBurst)) && own.AllowN(now, 1)
}

// sendEvents sends those that were not sent yet. What is too much for now is sent later.
func (r *Reporter) sendEvents(node string, pools []nodeapi.PoolStatus, said map[string]bool) {
	now := nodeTime(pools, r.fleet.Now())
	for _, is := range pools {
		for _, e := range events(is) {
			key := fmt.Sprint(node, " ", e.Key, e.Since.UnixNano())
			if said[key] = true; r.said[key] || now.Sub(e.Since) > memory {
				continue
			}
			claims := r.claimsOf(node, is.Name, e.volumes)
			if !r.allows(node, 1+len(claims)) {
				delete(said, key)
				continue
			}
			r.cluster.AboutNode(node, e.Event)
			for _, claim := range claims {
				r.cluster.AboutClaim(claim, e.Event)
			}
		}
	}
}

// nodeTime is the time by the node's clock, which may be any: when it last looked at a pool.
func nodeTime(pools []nodeapi.PoolStatus, otherwise time.Time) time.Time {
	var last time.Time
	for _, is := range pools {
		if is.Seen.After(last) {
			last = is.Seen
		}
	}
	if last.IsZero() {
		return otherwise
	}
	return last
}

// claimsOf are the claims of volumes that PersistentVolumes place on a node: it speaks for no other's.
func (r *Reporter) claimsOf(node, pool string, ids []string) (claims []nodeapi.Claim) {
	for _, id := range ids {
		for _, pv := range r.cluster.Known(id) {
			here := slices.Contains(pv.Nodes, node) || r.everywhere(pool) && len(pv.Nodes) == 0
			if here && pv.Pool == pool && pv.Claim.Name != "" {
				claims = append(claims, pv.Claim)
			}
		}
	}
	return claims
}
