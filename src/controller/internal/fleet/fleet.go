// Package fleet is the nodes as the controller knows them: which are connected, away or gone, and what they said last.
package fleet

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/logging"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/places"
)

// Cluster is what Kubernetes knows of nodes, connected or not.
type Cluster interface {
	Synced() bool
	// Leads reports whether this replica reports what all of them see.
	Leads() bool
	// NodesWithDriver are those that the kubelet has registered the driver on, of them those with these labels.
	NodesWithDriver(labels map[string]string) []string
	// NodeGone reports whether there is no Node object of that name, and since when.
	NodeGone(ctx context.Context, name string) (since time.Time, gone bool, err error)
	// TellNode puts an event on a Node object where this replica leads; kind is Normal or Warning.
	TellNode(node, kind, reason, message string)
}

// Config is what a fleet is made of; every field is required.
type Config struct {
	Cluster
	// Address is what nodes connect to, as for net.Listen.
	Address              string
	TLS                  *tls.Config
	TopologyKey, Version string
	// Claimed gives the node that a token says it is for, before anybody has verified that; an error where the token
	// says of itself that it is not for this.
	Claimed func(token string) (node string, err error)
	// Review gives the node of the pod that a token is bound to; it ends by itself.
	Review func(ctx context.Context, token string) (node string, err error)
	// NodeGrace is how long a node may be away before claims go elsewhere; GoneAfter how long there must be no Node
	// object before its volumes are let go.
	NodeGrace, GoneAfter time.Duration
	Metrics              prometheus.Registerer
	Log                  *slog.Logger
	Now                  func() time.Time
}

// Fleet is the controller's end of all connections, and what it remembers of nodes that have none.
type Fleet struct {
	Config
	start           time.Time
	metrics         metrics
	unauthenticated unauthenticated
	refusals        refusals
	logins          *turns        // of who is not authenticated
	renewals        *turns        // of nodes that are connected
	loginTimeout    time.Duration // for everything up to a token that passes
	retry           time.Duration // of the review of a renewed token

	mu    sync.Mutex
	nodes map[string]*Peer
	// left are the nodes that are not connected any more, since when; awaited those that have not been yet; gone those
	// without a Node object, for GoneAfter.
	left, awaited, gone map[string]time.Time
}

// New returns a fleet that does not listen yet.
func New(c Config) (*Fleet, error) {
	if slices.Contains([]string{c.Address, c.TopologyKey, c.Version}, "") || c.Cluster == nil || c.TLS == nil ||
		c.Claimed == nil || c.Review == nil || c.Metrics == nil || c.Log == nil || c.Now == nil {
		return nil, errors.New("fleet: a field of its Config is missing")
	}
	if min(c.NodeGrace, c.GoneAfter) <= 0 {
		return nil, errors.New("fleet: want positive times")
	}
	f := &Fleet{
		Config: c, start: c.Now(), metrics: newMetrics(), nodes: map[string]*Peer{},
		unauthenticated: unauthenticated{places.New[*newcomer](maxUnauthenticated)},
		logins:          newTurns(), renewals: newTurns(), loginTimeout: loginTimeout, retry: renewalRetry,
		left: map[string]time.Time{}, awaited: map[string]time.Time{}, gone: map[string]time.Time{},
	}
	if err := errors.Join(
		c.Metrics.Register(f.metrics.calls), c.Metrics.Register(f.metrics.hops), c.Metrics.Register(f),
	); err != nil {
		return nil, fmt.Errorf("register the metrics of the tunnel: %w", err)
	}
	return f, nil
}

// Get gives a node that is connected, else nil.
func (f *Fleet) Get(name string) *Peer {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.nodes[name]
}

// All gives the nodes that are connected, by name.
func (f *Fleet) All() []*Peer {
	f.mu.Lock()
	defer f.mu.Unlock()
	byName := func(a, b *Peer) int { return strings.Compare(a.Name, b.Name) }
	return slices.SortedFunc(maps.Values(f.nodes), byName)
}

// Names are the nodes that are connected or ought to be, by name.
func (f *Fleet) Names() []string {
	all := f.NodesWithDriver(nil)
	for _, p := range f.All() {
		all = append(all, p.Name)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// Remembered are the nodes that may have volumes, by name: beside Names those that were here before and may return.
func (f *Fleet) Remembered() []string {
	all := f.Names()
	f.mu.Lock()
	all = slices.AppendSeq(slices.AppendSeq(all, maps.Keys(f.left)), maps.Keys(f.gone))
	f.mu.Unlock()
	slices.Sort(all)
	return slices.Compact(all)
}

// addPeer makes a connection the node's, in place of an older one.
func (f *Fleet) addPeer(ctx context.Context, p *Peer) {
	f.mu.Lock()
	old := f.nodes[p.Name]
	f.nodes[p.Name] = p
	delete(f.left, p.Name)
	delete(f.awaited, p.Name)
	delete(f.gone, p.Name)
	f.mu.Unlock()
	if old != nil {
		old.Close(errors.New("the node has made another connection"))
	}
	f.Log.InfoContext(ctx, "a node is connected", logging.KeyNode, p.Name, logging.KeyVersion, p.Version)
}

func (f *Fleet) removePeer(ctx context.Context, p *Peer) {
	f.mu.Lock()
	current := f.nodes[p.Name] == p
	if current {
		delete(f.nodes, p.Name)
		if _, gone := f.gone[p.Name]; !gone {
			f.left[p.Name] = f.Now()
		}
	}
	f.mu.Unlock()
	if current {
		f.Log.InfoContext(ctx, "a node is not connected any more", logging.KeyNode, p.Name)
	}
}
