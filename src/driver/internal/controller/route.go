package controller

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	pb "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/names"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/controller/fleet"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/poolspec"
)

// patience is how long a call waits for a node that is away for a moment, such as for an update of its driver. It keeps
// a worker of csi-provisioner waiting, of which there are 100 for all nodes.
const patience = 5 * time.Second

const (
	// findTimeout bounds what one node may take to look for a volume: its disk may hang, and the call has half a minute.
	findTimeout = 5 * time.Second
	// findGrace is how long the others are waited for once one has the volume. Another may have it as well, which has to
	// be seen; one that cannot answer does not count in any case.
	findGrace = time.Second
)

// errOldDriver says of a node that it must be left alone.
var errOldDriver = errors.New("its driver is of a version without a controller; it is updated when its pod is replaced")

// peer gives the connection of a node, for everything but new volumes.
func (s *Server) peer(node string) (*fleet.Peer, error) {
	if p := s.Fleet.Get(node); p != nil {
		return p, nil
	}
	return nil, status.Errorf(codes.Unavailable, "node %s is not connected to the controller, for %s; it is asked again; "+
		"see docs/how-to/lose-a-node.md", node, s.Fleet.Away(node).Round(time.Second))
}

// await gives the connection of a node for a new volume. Only once the node has been away for its grace may the
// scheduler choose another: from then on its capacity is published as 0 as well.
func (s *Server) await(ctx context.Context, node string) (*fleet.Peer, error) {
	limit := time.NewTimer(min(patience, max(0, s.Fleet.NodeGrace-s.Fleet.Away(node))))
	defer limit.Stop()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for waiting := true; ; {
		p, err := s.peer(node)
		switch {
		case err == nil:
			return p, nil
		case !waiting && s.Fleet.Away(node) < s.Fleet.NodeGrace:
			return nil, err
		case !waiting:
			return nil, s.reschedule(ctx, node)
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-limit.C:
			waiting = false
		case <-tick.C:
		}
	}
}

// reschedule sends a claim back to the scheduler, unless the node's driver still makes volumes by itself.
func (s *Server) reschedule(ctx context.Context, node string) error {
	has, err := s.Fleet.HasTunnel(ctx, node)
	if err == nil && !has {
		err = errOldDriver
	}
	if err != nil {
		return status.Errorf(codes.Unavailable, "node %s is not connected to the controller: %v", node, err)
	}
	return status.Errorf(codes.ResourceExhausted, "node %s has not been connected to the controller for %s; another node "+
		"is to be chosen", node, s.Fleet.Away(node).Round(time.Second))
}

// locate finds the node of a volume that is there: that of its PersistentVolume, or else the one that has it; "" where
// all nodes were asked and none has it. The pool is known where it is a shared one.
func (s *Server) locate(ctx context.Context, id string) (node, in string, err error) {
	pv, ok, err := s.PVs.Get(ctx, id)
	in = s.Shared.PoolOf(pv)
	switch {
	case errors.Is(err, nodeapi.ErrNamed):
		return "", "", status.Error(codes.FailedPrecondition, err.Error())
	case err != nil:
		return "", "", status.Errorf(codes.Unavailable, "see which PersistentVolume names %s: %v", id, err)
	case ok && s.Shared.Everywhere(in):
		node, err = s.nodeFor(in, id, pv.Nodes)
		return node, in, err
	case ok && len(pv.Nodes) == 1:
		return pv.Nodes[0], "", nil
	}
	return s.ask(ctx, id, pv.Nodes...)
}

// ask asks all nodes for a volume, those that have been here before and may return included. One without a Node object
// counts as empty only once it is gone for as long as that takes for a volume whose PersistentVolume names it.
func (s *Server) ask(ctx context.Context, id string, more ...string) (node, in string, err error) {
	var (
		mu      sync.Mutex
		having  = map[string]string{} // pools by node, "" where the node does not know it at the moment
		unasked []string
		asking  sync.WaitGroup
	)
	more = append(more, s.Fleet.Remembered()...)
	slices.Sort(more)
	asked, enough := context.WithTimeout(ctx, findTimeout)
	defer enough()
	for _, name := range slices.Compact(more) {
		asking.Go(func() {
			p, err := s.peer(name)
			found, in := false, ""
			if err == nil {
				if in, found, err = p.Find(asked, id); err != nil {
					err = cmp.Or(ended(asked), err) // not how the node has ended the call
				}
			} else if lost, _ := s.Fleet.IsGone(ctx, name); lost {
				return
			}
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err != nil:
				unasked = append(unasked, fmt.Sprintf("%s (%s)", name, status.Convert(err).Message()))
			case found:
				time.AfterFunc(findGrace, enough)
				having[name] = in
			}
		})
	}
	asking.Wait()
	switch {
	case len(having) > 0:
		node, err = s.oneOf(id, having)
		return node, having[node], err
	case len(unasked) > 0:
		slices.Sort(unasked)
		return "", "", status.Errorf(codes.Unavailable, "volume %s may be on a node that could not be asked: %s",
			id, strings.Join(unasked[:min(len(unasked), 5)], "; "))
	}
	return "", "", nil
}

// ended is why a context with a deadline has ended, nil before. Its own timer may be late, and a node's be first.
func ended(ctx context.Context) error {
	if deadline, _ := ctx.Deadline(); ctx.Err() == nil && !time.Now().Before(deadline) {
		return context.DeadlineExceeded
	}
	return ctx.Err()
}

// nodeFor gives a node for a volume of a shared pool.
func (s *Server) nodeFor(pool, id string, preferred []string) (node string, err error) {
	if node = s.Shared.NodeFor(pool, id, preferred); node == "" {
		err = status.Errorf(codes.Unavailable, "pool %s is present on no node that is connected; see what the nodes say "+
			"of it: driver status in the controller", pool)
	}
	return node, err
}

// confirm asks another node whether a volume of a shared pool is gone that one says it has deleted.
func (s *Server) confirm(ctx context.Context, pool, id, deleter string) error {
	asked, enough := context.WithTimeout(ctx, findTimeout)
	defer enough()
	silent := ""
	for _, p := range s.Shared.NodesWithPool(pool) {
		if p.Name == deleter {
			continue
		}
		_, found, err := p.Find(asked, id)
		switch {
		case err == nil && found:
			return status.Errorf(codes.Unavailable, "node %s has deleted volume %s of pool %s, and node %s still has it; "+
				"they are asked again; see whether both have the same filesystem there", deleter, id, pool, p.Name)
		case err == nil:
			return nil
		}
		silent = fmt.Sprintf("%s (%s)", p.Name, status.Convert(err).Message())
	}
	if silent == "" { // no other node has the pool
		return nil
	}
	return status.Errorf(codes.Unavailable, "node %s has deleted volume %s of pool %s, and no other node could confirm "+
		"it: %s", deleter, id, pool, silent)
}

// sharedPoolOf is the shared pool that a request is about, "" for another pool.
func (s *Server) sharedPoolOf(q *pb.CreateVolumeRequest) string {
	name := poolspec.DefaultPool(s.Shared.Names, q.GetParameters()[names.StoragePoolParameter])
	if s.Shared.Everywhere(name) {
		return name
	}
	return ""
}

// oneOf gives one of the nodes that have a volume. Several may have only that of a shared pool.
func (s *Server) oneOf(id string, having map[string]string) (node string, err error) {
	nodes := slices.Sorted(maps.Keys(having))
	in := slices.Collect(maps.Values(having))
	switch {
	case len(nodes) == 1 || !slices.ContainsFunc(in, func(name string) bool { return !s.Shared.Everywhere(name) }):
		return nodes[0], nil
	case slices.Contains(in, ""):
		return "", status.Errorf(codes.Unavailable, "volume %s is being worked on; it is asked for again", id)
	}
	return "", status.Errorf(codes.FailedPrecondition, "nodes %s all have volume %s, and no PersistentVolume says which "+
		"is meant; on the others: driver volume discard %s", strings.Join(nodes, ", "), id, id)
}

func (s *Server) topology(node string) *pb.Topology {
	return &pb.Topology{Segments: map[string]string{s.TopologyKey: node}}
}
