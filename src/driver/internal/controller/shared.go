package controller

import (
	"context"
	"fmt"
	"hash/fnv"
	"slices"
	"time"

	pb "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/names"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/controller/fleet"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/poolspec"
)

// Identities remember which filesystem each shared pool is, by its marker's id, and whose that is.
type Identities interface {
	// Cluster is the UID of this cluster.
	Cluster(ctx context.Context) (uid string, err error)
	// Load gives the ids by pool, and a version for Store.
	Load(ctx context.Context) (ids map[string]string, version string, err error)
	// Store adds to them. It fails where another controller has done that since Load.
	Store(ctx context.Context, version string, ids map[string]string) error
}

const (
	// shareInterval is how soon a node that has come is told of the shared pools, reloadInterval how soon an id that an
	// administrator has removed is forgotten.
	shareInterval, reloadInterval = time.Second, time.Minute
)

// shared reports whether a pool is on all nodes.
func (s *Server) shared(name string) bool {
	i := slices.IndexFunc(s.Pools, func(p poolspec.Pool) bool { return p.Name == name })
	if i >= 0 {
		return s.Pools[i].Shared()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.leftPools[name]
}

// having are the connected nodes on which a shared pool is the filesystem that it is known to be, by name. While nodes
// have room in it, they are those: others are not selected for it, or cannot write there.
func (s *Server) having(name string) []*fleet.Peer {
	s.mu.Lock()
	id := s.identities[name]
	s.mu.Unlock()
	peers := slices.DeleteFunc(s.Fleet.All(), func(p *fleet.Peer) bool { return id == "" || present(p, name) != id })
	full := func(p *fleet.Peer) bool { return p.Pool(name).Allocatable <= 0 }
	if roomy := slices.DeleteFunc(slices.Clone(peers), full); len(roomy) > 0 {
		return roomy
	}
	return peers
}

// present is the id of a pool that is present on a node, else "".
func present(p *fleet.Peer, name string) string {
	if is := p.Pool(name); is.Served() {
		return is.ID
	}
	return ""
}

// anyOf gives a node for a volume of a shared pool: one that is preferred if it has the pool, else one that the id
// decides, so that a repeated request comes to the same node as long as that is there.
func (s *Server) anyOf(name, id string, preferred []string) (node string, err error) {
	peers := s.having(name)
	if len(peers) == 0 {
		return "", status.Errorf(codes.Unavailable, "pool %s is present on no node that is connected; see what the nodes "+
			"say of it: driver status in the controller", name)
	}
	for _, p := range peers {
		if slices.Contains(preferred, p.Name) {
			return p.Name, nil
		}
	}
	hash := fnv.New32a()
	_, _ = hash.Write([]byte(id))
	return peers[int(hash.Sum32())%len(peers)].Name, nil
}

// sharedPoolOf is the shared pool that a request is about, "" for another pool.
func (s *Server) sharedPoolOf(q *pb.CreateVolumeRequest) string {
	if name := poolspec.DefaultPool(s.pools, q.GetParameters()[names.StoragePoolParameter]); s.shared(name) {
		return name
	}
	return ""
}

// speaker is the node that speaks for a shared pool, which all show alike: for its capacity and its orphans.
func (s *Server) speaker(name string) string {
	if peers := s.having(name); len(peers) > 0 {
		return peers[0].Name
	}
	return ""
}

// speaksFor reports whether what a node lists of a pool counts: of a shared one, that is so for one node.
func (s *Server) speaksFor(p *fleet.Peer, name string) bool {
	return slices.Contains(s.servedPools(), name) && (!s.shared(name) || s.speaker(name) == p.Name)
}

// smallest is the least of what the nodes that have a shared pool say of its room: none of them makes it larger.
func (s *Server) smallest(name string) (room, largest int64) {
	for i, p := range s.having(name) {
		is := p.Pool(name)
		if i == 0 {
			room, largest = is.Growable, is.Allocatable
		}
		room, largest = min(room, is.Growable), min(largest, is.Allocatable)
	}
	return room, largest
}

// confirm asks another node whether a volume of a shared pool is gone that one says it has deleted.
func (s *Server) confirm(ctx context.Context, name, id, deleter string) error {
	asked, enough := context.WithTimeout(ctx, findTimeout)
	defer enough()
	silent := ""
	for _, p := range s.having(name) {
		if p.Name == deleter {
			continue
		}
		_, found, err := p.Find(asked, id)
		switch {
		case err == nil && found:
			return status.Errorf(codes.Unavailable, "node %s has deleted volume %s of pool %s, and node %s still has it; they "+
				"are asked again; see whether both have the same filesystem there", deleter, id, name, p.Name)
		case err == nil:
			return nil
		}
		silent = fmt.Sprintf("%s (%s)", p.Name, status.Convert(err).Message())
	}
	if silent == "" { // no other node has the pool
		return nil
	}
	return status.Errorf(codes.Unavailable, "node %s has deleted volume %s of pool %s, and no other node could confirm "+
		"it: %s",
		deleter, id, name, silent)
}
