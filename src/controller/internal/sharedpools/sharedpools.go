// Package sharedpools knows of each pool whether it is on all nodes, which filesystem such a shared one is, and which
// nodes stand for it.
package sharedpools

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"sync"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/controller/internal/fleet"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/poolspec"
)

// Identities remember which filesystem each shared pool is, by its marker's id, and whose that is.
type Identities interface {
	// ClusterUID is that of this cluster.
	ClusterUID(ctx context.Context) (uid string, err error)
	// Load gives the ids by pool, and a version for Store.
	Load(ctx context.Context) (ids map[string]string, version string, err error)
	// Store adds to them. It fails where another controller has done that since Load.
	Store(ctx context.Context, version string, ids map[string]string) error
}

// Pools are those of all nodes.
type Pools struct {
	// Configured are the pools of the configuration, Names their names.
	Configured []poolspec.Pool
	Names      []string
	fleet      *fleet.Fleet
	identities Identities

	mu sync.Mutex
	// ids are those of the shared pools, as last loaded; left are the pools that left the configuration and that nodes
	// serve, and whether they are shared; twins the nodes that show one marker, of pools that are not. Never changed,
	// only replaced.
	ids   map[string]string
	left  map[string]bool
	twins map[marker][]string
}

// New returns the pools of a configuration, of which no node has said anything. Identities are required where a pool is
// shared.
func New(configured []poolspec.Pool, nodes *fleet.Fleet, identities Identities) (*Pools, error) {
	if slices.ContainsFunc(configured, poolspec.Pool.Shared) && identities == nil {
		return nil, errors.New("sharedpools: a pool is shared, and there are no Identities")
	}
	p := &Pools{Configured: configured, fleet: nodes, identities: identities}
	for _, c := range configured {
		p.Names = append(p.Names, c.Name)
	}
	if err := nodes.Metrics.Register(p); err != nil {
		return nil, fmt.Errorf("register the metrics of pools: %w", err)
	}
	return p, nil
}

// Everywhere reports whether a pool is on all nodes.
func (p *Pools) Everywhere(pool string) bool {
	if i := slices.Index(p.Names, pool); i >= 0 {
		return p.Configured[i].Shared()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.left[pool]
}

// Served are the configured pools, and those that left the configuration and that nodes serve.
func (p *Pools) Served() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.AppendSeq(slices.Clone(p.Names), maps.Keys(p.left))
}

// PoolOf is the pool of a PersistentVolume, "" where it may be in any. One that names none is older than this
// configuration may be.
func (p *Pools) PoolOf(pv nodeapi.PersistentVolume) string {
	return poolspec.DefaultPool(p.Served(), pv.Pool)
}

// NodesWithPool are the connected nodes on which a shared pool is the filesystem that it is known to be, by name. While
// nodes have room in it, they are those: others are not selected for it, or cannot write there.
func (p *Pools) NodesWithPool(pool string) []*fleet.Peer {
	p.mu.Lock()
	id := p.ids[pool]
	p.mu.Unlock()
	peers := slices.DeleteFunc(p.fleet.All(), func(n *fleet.Peer) bool { return id == "" || servedID(n, pool) != id })
	full := func(n *fleet.Peer) bool { return n.Pool(pool).Allocatable <= 0 }
	if roomy := slices.DeleteFunc(slices.Clone(peers), full); len(roomy) > 0 {
		return roomy
	}
	return peers
}

// servedID is the id of a pool that can be used on a node, else "".
func servedID(n *fleet.Peer, pool string) string {
	if is := n.Pool(pool); is.Served() {
		return is.ID
	}
	return ""
}

// NodeFor gives a node for a volume of a shared pool, "" where none has the pool: one that is preferred if it has, else
// one that the id decides, so that a repeated request comes to the same node as long as that is there.
func (p *Pools) NodeFor(pool, id string, preferred []string) (node string) {
	peers := p.NodesWithPool(pool)
	if len(peers) == 0 {
		return ""
	}
	for _, n := range peers {
		if slices.Contains(preferred, n.Name) {
			return n.Name
		}
	}
	hash := fnv.New32a()
	_, _ = hash.Write([]byte(id))
	return peers[int(hash.Sum32())%len(peers)].Name
}

// Representative is the node that stands for a shared pool, which all show alike: for its capacity and its orphans.
func (p *Pools) Representative(pool string) (node string) {
	if peers := p.NodesWithPool(pool); len(peers) > 0 {
		return peers[0].Name
	}
	return ""
}

// Represents reports whether what a node lists of a pool counts: of a shared one, that is so for one node.
func (p *Pools) Represents(node, pool string) bool {
	return !p.Everywhere(pool) || p.Representative(pool) == node
}

// Capacity is the least of what the nodes that have a shared pool say of its room: none of them makes it larger.
func (p *Pools) Capacity(pool string) (growable, allocatable int64) {
	for i, n := range p.NodesWithPool(pool) {
		is := n.Pool(pool)
		if i == 0 {
			growable, allocatable = is.Growable, is.Allocatable
		}
		growable, allocatable = min(growable, is.Growable), min(allocatable, is.Allocatable)
	}
	return growable, allocatable
}
