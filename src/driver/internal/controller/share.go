package controller

import (
	"context"
	"maps"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/tunnel"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/tunnel/wire"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/logging"
)

// sharing is what is known of shared pools. It belongs to the goroutine of shareAll.
type sharing struct {
	ids     map[string]string
	owner   string // this cluster
	version string
	loaded  time.Time
	told    map[*tunnel.Peer]*wire.ShareRequest
	// made are the nodes that were told last to take a pool into use.
	made map[string]string
	// rooms are the names that nodes gave for others, with what the API says of them.
	rooms map[string]room
}

// shareAll keeps all nodes told which filesystem each shared pool is, until ctx ends.
func (s *Server) shareAll(ctx context.Context) {
	known := sharing{told: map[*tunnel.Peer]*wire.ShareRequest{}, made: map[string]string{}, rooms: map[string]room{}}
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
	for _, p := range s.hub.All() {
		id := present(p, name)
		switch {
		case id != "" && (p.Name == maker || slices.Contains(ids, id)):
			return id
		case id != "":
			ids = append(ids, id)
			users++
		case shown(p, name).GetWaiting():
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
	peers := slices.DeleteFunc(s.hub.All(), func(p *tunnel.Peer) bool { return !p.Has(tunnel.FeatureShared) })
	maps.DeleteFunc(known.told, func(p *tunnel.Peer, _ *wire.ShareRequest) bool { return !slices.Contains(peers, p) })
	requests := map[*tunnel.Peer]*wire.ShareRequest{}
	names := s.servedPools()
	slices.Sort(names)
	for _, name := range names {
		if s.shared(name) {
			s.share(ctx, &wire.SharedPool{Name: name, Id: known.ids[name], Owner: known.owner}, known, peers, requests)
			continue
		}
		for _, p := range peers {
			if twins := s.twinsOf(p.Name, name); len(twins) > 0 {
				add(requests, p, &wire.SharedPool{Name: name, Twins: twins})
			}
		}
	}
	for p := range known.told { // what it was told is not so any more
		add(requests, p)
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

// share adds one pool to what the nodes are told. The first node that waits takes it into use where nobody has; the
// first that has it recovers what nodes without a Node object have left.
func (s *Server) share(
	ctx context.Context, all *wire.SharedPool, known *sharing, peers []*tunnel.Peer,
	requests map[*tunnel.Peer]*wire.ShareRequest,
) {
	name := all.GetName()
	waiting, heir := "", s.speaker(name)
	for _, p := range peers {
		if all.GetId() == "" && waiting == "" && shown(p, name).GetWaiting() {
			waiting = p.Name
		}
	}
	for _, p := range peers {
		is := proto.CloneOf(all)
		is.Make = p.Name == waiting
		if p.Name == heir && slices.Contains(s.pools, name) {
			is.Gone = s.goneFrom(ctx, known, shown(p, name).GetRooms())
		}
		add(requests, p, is)
	}
}

// add adds pools to what a node is told.
func add(requests map[*tunnel.Peer]*wire.ShareRequest, p *tunnel.Peer, pools ...*wire.SharedPool) {
	if requests[p] == nil {
		requests[p] = &wire.ShareRequest{}
	}
	requests[p].Pools = append(requests[p].Pools, pools...)
}
