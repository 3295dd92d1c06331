package sharedpools

import (
	"context"
	"maps"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/controller/internal/fleet"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/logging"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi/wire"
)

const (
	// shareInterval is how soon a node that has come is told of the shared pools, reloadInterval how soon an id that an
	// administrator has removed is forgotten.
	shareInterval, reloadInterval = time.Second, time.Minute
	// shareTimeout bounds what telling one node may take.
	shareTimeout = time.Minute
	// goneMemory is how long it is remembered whether a node is gone, goneAtOnce how many the API is asked about in a
	// second.
	goneMemory, goneAtOnce = 5 * time.Minute, 10
)

// sharing is what is known of shared pools. It belongs to the goroutine of Run.
type sharing struct {
	*Pools
	owner   string // this cluster
	version string // of the ids
	loaded  time.Time
	sent    map[*fleet.Peer]*wire.ShareRequest
	// made are the nodes that were told last to take a pool into use.
	made map[string]string
	// gone are nodes that have left something in a shared pool, and whether they will not come back.
	gone map[string]verdict
}

// verdict is what the API said of a node.
type verdict struct {
	gone  bool
	asked time.Time
}

// Run keeps all nodes told which filesystem each shared pool is, until ctx ends.
func (p *Pools) Run(ctx context.Context) {
	s := sharing{
		Pools: p, sent: map[*fleet.Peer]*wire.ShareRequest{}, made: map[string]string{}, gone: map[string]verdict{},
	}
	p.fleet.Every(ctx, shareInterval, func() {
		s.survey()
		if err := s.reconcileIdentities(ctx); err == nil {
			s.shareAll(ctx)
		} else if s.loaded = (time.Time{}); ctx.Err() == nil {
			s.fleet.Log.WarnContext(ctx, "cannot keep which filesystem the shared pools are", logging.KeyError, err)
		}
	})
}

// reconcileIdentities reads the ids, and adds those of pools that a node has taken into use.
func (s *sharing) reconcileIdentities(ctx context.Context) (err error) {
	if !slices.ContainsFunc(s.Served(), s.Everywhere) {
		return nil
	}
	if s.owner == "" {
		if s.owner, err = s.identities.ClusterUID(ctx); err != nil {
			return err
		}
	}
	if now := s.fleet.Now(); now.Sub(s.loaded) >= reloadInterval {
		ids, version, err := s.identities.Load(ctx)
		if err != nil {
			return err
		}
		s.loaded, s.version = now, version
		s.mu.Lock()
		s.ids = ids
		s.mu.Unlock()
	}
	all := s.withFirstIDs()
	if maps.Equal(all, s.ids) {
		return nil
	}
	s.loaded = time.Time{} // for the new version
	return s.identities.Store(ctx, s.version, all)
}

// withFirstIDs are the ids that are known, and those of pools that have just been taken into use.
func (s *sharing) withFirstIDs() map[string]string {
	all := maps.Clone(s.ids)
	for _, pool := range s.Names {
		if !s.Everywhere(pool) || all[pool] != "" {
			continue
		}
		id := s.firstID(pool, s.made[pool])
		taken := func(other string) bool { return s.Everywhere(other) && all[other] == id } // one directory, one pool
		if id != "" && !slices.ContainsFunc(s.Names, taken) {
			all[pool] = id
		}
	}
	return all
}

// firstID is the first id of a shared pool, "" where none is sure. A node's token must not decide alone what all nodes
// take for the pool: the id is that of the node that was told to make it, or one that two nodes show. A node that has
// the pool alone is believed: nobody else could say otherwise.
func (p *Pools) firstID(pool, maker string) string {
	var ids []string
	users := 0
	for _, n := range p.fleet.All() {
		id := servedID(n, pool)
		switch {
		case id != "" && (n.Name == maker || slices.Contains(ids, id)):
			return id
		case id != "":
			ids = append(ids, id)
			users++
		case n.Pool(pool).Waiting:
			users++
		}
	}
	if users == 1 && len(ids) == 1 {
		return ids[0]
	}
	return ""
}

// shareAll tells each node what it does not know yet.
func (s *sharing) shareAll(ctx context.Context) {
	requests := map[*fleet.Peer]*wire.ShareRequest{}
	for _, n := range s.fleet.All() {
		if n.Has(wire.FeatureShared) {
			requests[n] = &wire.ShareRequest{}
		}
	}
	maps.DeleteFunc(s.sent, func(n *fleet.Peer, _ *wire.ShareRequest) bool { return requests[n] == nil })
	for _, pool := range slices.Sorted(slices.Values(s.Served())) {
		s.addPool(ctx, pool, requests)
	}
	for n, request := range requests {
		same := proto.Equal(request, s.sent[n]) && !isUnheard(n, request)
		if same || s.sent[n] == nil && len(request.GetPools()) == 0 {
			continue
		}
		brief, cancel := context.WithTimeout(ctx, shareTimeout)
		err := n.Share(brief, request)
		cancel()
		if err != nil {
			s.fleet.Log.WarnContext(ctx, "cannot tell a node which filesystem the shared pools are", logging.KeyNode,
				n.Name, logging.KeyError, err)
			continue
		}
		s.sent[n] = request
		for _, is := range request.GetPools() {
			if is.GetMake() {
				s.made[is.GetName()] = n.Name
			}
		}
	}
}

// isUnheard reports whether a node waits for what it was told: another controller, with another configuration while
// this one takes its place, may have told it something else since, and the last word counts there.
func isUnheard(n *fleet.Peer, request *wire.ShareRequest) bool {
	return slices.ContainsFunc(request.GetPools(), func(told *wire.SharedPool) bool {
		is := n.Pool(told.GetName())
		return is.Waiting && (told.GetId() != "" || told.GetMake()) ||
			is.Shared && told.GetId() != "" && is.Reason == nodeapi.ReasonNoNewVolumes
	})
}

// addPool adds a pool to what the nodes are told. Of a shared one, the first node that waits takes it into use where
// nobody has; the first that has it recovers what nodes without a Node object have left.
func (s *sharing) addPool(ctx context.Context, pool string, requests map[*fleet.Peer]*wire.ShareRequest) {
	shared, id, maker, recoveringNode := s.Everywhere(pool), s.ids[pool], "", ""
	if shared {
		recoveringNode = s.Representative(pool)
	}
	for n := range requests {
		if id == "" && n.Pool(pool).Waiting && (maker == "" || n.Name < maker) {
			maker = n.Name
		}
	}
	for n, request := range requests {
		is := &wire.SharedPool{Name: pool}
		if shared {
			is.Id, is.Owner, is.Make = id, s.owner, n.Name == maker
		} else if is.Twins = s.Twins(n.Name, pool); len(is.GetTwins()) == 0 {
			continue
		}
		if n.Name == recoveringNode && slices.Contains(s.Names, pool) {
			is.Gone = s.goneAmong(ctx, n.Pool(pool).NodeDirs)
		}
		request.Pools = append(request.Pools, is)
	}
}

// goneAmong are those nodes that have been without a Node object for long enough. The names are a node's word: a few
// are looked up at a time, and the answers are remembered.
func (s *sharing) goneAmong(ctx context.Context, nodes []string) (gone []string) {
	now := s.fleet.Now()
	maps.DeleteFunc(s.gone, func(_ string, v verdict) bool { return now.Sub(v.asked) >= goneMemory })
	asked := 0
	for _, node := range nodes {
		if s.fleet.Get(node) != nil {
			continue
		}
		v, known := s.gone[node]
		if !known && asked < goneAtOnce {
			asked++
			is, err := s.fleet.IsGone(ctx, node)
			if err != nil {
				continue
			}
			v = verdict{is, now}
			s.gone[node] = v
		}
		if v.gone {
			gone = append(gone, node)
		}
	}
	return gone
}
