package controller

import (
	"context"
	"maps"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/controller/fleet"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/logging"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi/wire"
)

// sharing is what is known of shared pools. It belongs to the goroutine of shareAll.
type sharing struct {
	ids     map[string]string
	owner   string // this cluster
	version string
	loaded  time.Time
	told    map[*fleet.Peer]*wire.ShareRequest
	// made are the nodes that were told last to take a pool into use.
	made map[string]string
	// rooms are the names that nodes gave for others, with what the API says of them.
	rooms map[string]room
}

// shareAll keeps all nodes told which filesystem each shared pool is, until ctx ends.
func (s *Server) shareAll(ctx context.Context) {
	known := sharing{told: map[*fleet.Peer]*wire.ShareRequest{}, made: map[string]string{}, rooms: map[string]room{}}
	tick := time.NewTicker(shareInterval)
	defer tick.Stop()
	for {
		s.see()
		if err := s.learn(ctx, &known); err != nil && ctx.Err() == nil {
			s.Log.WarnContext(ctx, "cannot keep which filesystem the shared pools are", logging.KeyError, err)
			known.loaded = time.Time{}
		} else {
			s.tellAll(ctx, &known)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// learn reads the ids, and adds those of pools that a node has taken into use.
func (s *Server) learn(ctx context.Context, known *sharing) (err error) {
	if !slices.ContainsFunc(s.servedPools(), s.shared) {
		return nil
	}
	if known.owner == "" {
		if known.owner, err = s.Identities.Cluster(ctx); err != nil {
			return err
		}
	}
	if s.Now().Sub(known.loaded) >= reloadInterval {
		if known.ids, known.version, err = s.Identities.Load(ctx); err != nil {
			return err
		}
		known.loaded = s.Now()
		s.mu.Lock()
		s.identities = known.ids
		s.mu.Unlock()
	}
	learned := s.firstIDs(known)
	if maps.Equal(learned, known.ids) {
		return nil
	}
	known.loaded = time.Time{} // for the new version
	return s.Identities.Store(ctx, known.version, learned)
}

// firstIDs are the ids that are known, and those of pools that have just been taken into use.
func (s *Server) firstIDs(known *sharing) map[string]string {
	learned := maps.Clone(known.ids)
	for _, name := range s.pools {
		if !s.shared(name) || learned[name] != "" {
			continue
		}
		id := s.believed(name, known.made[name])
		taken := func(other string) bool { return s.shared(other) && learned[other] == id } // one directory, one pool
		if id != "" && !slices.ContainsFunc(s.pools, taken) {
			learned[name] = id
		}
	}
	return learned
}

// believed is the first id of a shared pool, "" where none is sure. A node's token must not decide alone what all nodes
// take for the pool: the id is that of the node that was told to make it, or one that two nodes show. A node that has
// the pool alone is believed: nobody else could say otherwise.
func (s *Server) believed(name, maker string) string {
	var ids []string
	users := 0
	for _, p := range s.Fleet.All() {
		id := present(p, name)
		switch {
		case id != "" && (p.Name == maker || slices.Contains(ids, id)):
			return id
		case id != "":
			ids = append(ids, id)
			users++
		case p.Pool(name).Waiting:
			users++
		}
	}
	if users == 1 && len(ids) == 1 {
		return ids[0]
	}
	return ""
}

// tellAll tells each node what it does not know yet.
func (s *Server) tellAll(ctx context.Context, known *sharing) {
	peers := slices.DeleteFunc(s.Fleet.All(), func(p *fleet.Peer) bool { return !p.Has(wire.FeatureShared) })
	maps.DeleteFunc(known.told, func(p *fleet.Peer, _ *wire.ShareRequest) bool { return !slices.Contains(peers, p) })
	requests := map[*fleet.Peer]*wire.ShareRequest{}
	for _, p := range peers {
		requests[p] = &wire.ShareRequest{}
		if known.told[p] == nil {
			known.told[p] = &wire.ShareRequest{}
		}
	}
	for _, name := range slices.Sorted(slices.Values(s.servedPools())) {
		s.addPool(ctx, known, name, requests)
	}
	for p, request := range requests {
		if proto.Equal(request, known.told[p]) {
			continue
		}
		brief, cancel := context.WithTimeout(ctx, askTimeout)
		err := p.Share(brief, request)
		cancel()
		if err != nil {
			s.Log.WarnContext(ctx, "cannot tell a node which filesystem the shared pools are", logging.KeyNode, p.Name,
				logging.KeyError, err)
			continue
		}
		known.told[p] = request
		for _, is := range request.GetPools() {
			if is.GetMake() {
				known.made[is.GetName()] = p.Name
			}
		}
	}
}

// addPool adds a pool to what the nodes are told. Of a shared one, the first node that waits takes it into use where
// nobody has; the first that has it recovers what nodes without a Node object have left.
func (s *Server) addPool(
	ctx context.Context, known *sharing, name string, requests map[*fleet.Peer]*wire.ShareRequest,
) {
	shared, id, maker, heir := s.shared(name), known.ids[name], "", ""
	if shared {
		heir = s.speaker(name)
	}
	for p := range requests {
		if id == "" && p.Pool(name).Waiting && (maker == "" || p.Name < maker) {
			maker = p.Name
		}
	}
	for p, request := range requests {
		is := &wire.SharedPool{Name: name}
		if shared {
			is.Id, is.Owner, is.Make = id, known.owner, p.Name == maker
		} else if is.Twins = s.twinsOf(p.Name, name); len(is.GetTwins()) == 0 {
			continue
		}
		if p.Name == heir && slices.Contains(s.pools, name) {
			is.Gone = s.goneFrom(ctx, known, p.Pool(name).NodeDirs)
		}
		request.Pools = append(request.Pools, is)
	}
}
