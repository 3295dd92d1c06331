package csi

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

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/controller/internal/fleet"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi/wire"
)

const (
	// returnTimeout is how long a call waits for a node that is away for a moment, such as for an update of its driver.
	// It keeps a worker of csi-provisioner waiting, of which there are 100 for all nodes.
	returnTimeout, returnInterval = 5 * time.Second, 100 * time.Millisecond
	// findTimeout bounds what one node may take to look for a volume: its disk may hang, and the call has half a
	// minute.
	findTimeout = 5 * time.Second
	// findGrace is how long the others are waited for once one has the volume. Another may have it as well, which has
	// to be seen; one that cannot answer does not count in any case.
	findGrace = time.Second
)

// locator finds the node that a call goes to.
type locator struct{ Config }

// awaitPeer gives the connection of a node for a new volume. Only once the node has been away for its grace may the
// scheduler choose another: from then on its capacity is published as 0 as well.
func (l locator) awaitPeer(ctx context.Context, node string) (*fleet.Peer, error) {
	end := time.Now().Add(min(returnTimeout, max(0, l.Fleet.NodeGrace-l.Fleet.Away(node))))
	for {
		p, err := l.Fleet.Peer(node)
		switch waiting := time.Now().Before(end); {
		case err == nil, waiting && ctx.Err() != nil, !waiting && l.Fleet.Away(node) < l.Fleet.NodeGrace:
			return p, err
		case !waiting:
			return nil, status.Errorf(codes.ResourceExhausted, "node %s has not been connected to the controller for "+
				"%s; another node is to be chosen", node, l.Fleet.Away(node).Round(time.Second))
		}
		select {
		case <-ctx.Done():
		case <-time.After(returnInterval):
		}
	}
}

// place is where a volume is, and what Kubernetes says of it.
type place struct {
	node string // "" where all nodes were asked and none has it
	pool string // where it is a shared one
	// pv names the volume if it is named; else it has nothing but the Handle.
	pv    nodeapi.PersistentVolume
	named bool
}

// locate finds the node of a volume that is there: that of its PersistentVolume, or else the one that has it.
func (l locator) locate(ctx context.Context, id string) (p place, err error) {
	p.pv, p.named, err = l.Cluster.Get(ctx, id)
	switch {
	case errors.Is(err, nodeapi.ErrNamed):
		return p, status.Error(codes.FailedPrecondition, err.Error())
	case err != nil:
		return p, status.Errorf(codes.Unavailable, "see which PersistentVolume names %s: %v", id, err)
	case !p.named:
		p.pv = nodeapi.PersistentVolume{Handle: id}
	}
	p.pool = l.Shared.PoolOf(p.pv)
	switch {
	case p.named && l.Shared.Everywhere(p.pool):
		p.node, err = l.nodeFor(p.pool, id, p.pv.Nodes)
	case p.named && len(p.pv.Nodes) == 1:
		p.node = p.pv.Nodes[0]
	default:
		p.node, p.pool, err = l.locateByBroadcast(ctx, id, p.pv.Nodes...)
	}
	return p, err
}

// withFacts attaches to a call to the volume's node what Kubernetes says of the volume, so that the node needs not ask:
// unless the volume may be another node's.
func (p place) withFacts(ctx context.Context) context.Context {
	if p.named && !slices.Equal(p.pv.Nodes, []string{p.node}) {
		return ctx
	}
	return wire.WithVolume(ctx, p.pv, p.named)
}

// confirmGone is nil where a node that is not connected is gone, and away where it may come back.
func (l locator) confirmGone(ctx context.Context, node string, away error) error {
	gone, err := l.Fleet.IsGone(ctx, node)
	switch {
	case err != nil:
		return status.Errorf(codes.Unavailable, "see whether node %s, which is not connected, is gone: %v", node, err)
	case !gone:
		return away
	}
	return nil
}

// nodeFor gives a node for a volume of a shared pool, one that is preferred if it has the pool.
func (l locator) nodeFor(pool, id string, preferred []string) (node string, err error) {
	if node = l.Shared.NodeFor(pool, id, preferred); node == "" {
		err = status.Errorf(codes.Unavailable, "pool %s is present on no node that is connected; see what the nodes "+
			"say of it: kubectl hpp status", pool)
	}
	return node, err
}

// locateByBroadcast asks all nodes for a volume, those that have been here before and may return included. One without
// a Node object counts as empty only once it is gone for as long as that takes for a volume whose PersistentVolume
// names it.
func (l locator) locateByBroadcast(ctx context.Context, id string, more ...string) (node, pool string, err error) {
	var (
		mu      sync.Mutex
		holders = map[string]string{} // pools by node, "" where the node does not know it at the moment
		unasked []string
		asking  sync.WaitGroup
	)
	more = append(more, l.Fleet.Remembered()...)
	slices.Sort(more)
	asked, enough := context.WithTimeout(ctx, findTimeout)
	defer enough()
	for _, name := range slices.Compact(more) {
		asking.Go(func() {
			p, err := l.Fleet.Peer(name)
			found, pool := false, ""
			if err == nil {
				if pool, found, err = p.Find(asked, id); err != nil {
					err = cmp.Or(endOf(asked), err) // not how the node has ended the call
				}
			} else if gone, _ := l.Fleet.IsGone(ctx, name); gone {
				return
			}
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err != nil:
				unasked = append(unasked, fmt.Sprintf("%s (%s)", name, status.Convert(err).Message()))
			case found:
				time.AfterFunc(findGrace, enough)
				holders[name] = pool
			}
		})
	}
	asking.Wait()
	switch {
	case len(holders) > 0:
		node, err = l.oneHolder(id, holders)
		return node, holders[node], err
	case len(unasked) > 0:
		slices.Sort(unasked)
		return "", "", status.Errorf(codes.Unavailable, "volume %s may be on a node that could not be asked: %s",
			id, strings.Join(unasked[:min(len(unasked), 5)], "; "))
	}
	return "", "", nil
}

// endOf is why a context with a deadline has ended, nil before. Its own timer may be late, and a node's be first.
func endOf(ctx context.Context) error {
	if deadline, _ := ctx.Deadline(); ctx.Err() == nil && !time.Now().Before(deadline) {
		return context.DeadlineExceeded
	}
	return ctx.Err()
}

// oneHolder gives one of the nodes that have a volume. Several may have only that of a shared pool.
func (l locator) oneHolder(id string, holders map[string]string) (node string, err error) {
	if at := l.Moving(id); at != "" {
		if _, has := holders[at]; has {
			return at, nil
		}
	}
	nodes := slices.Sorted(maps.Keys(holders))
	pools := slices.Collect(maps.Values(holders))
	ofOneNode := func(pool string) bool { return !l.Shared.Everywhere(pool) }
	switch {
	case len(nodes) == 1 || !slices.ContainsFunc(pools, ofOneNode):
		return nodes[0], nil
	case slices.Contains(pools, ""):
		return "", status.Errorf(codes.Unavailable, "volume %s is being worked on; it is asked for again", id)
	}
	return "", status.Errorf(codes.FailedPrecondition, "nodes %s all have volume %s, and no PersistentVolume says "+
		"which is meant; on the others: kubectl hpp discard %s --node NODE", strings.Join(nodes, ", "), id, id)
}

// confirmDeletion asks another node whether a volume of a shared pool is gone that one says it has deleted.
func (l locator) confirmDeletion(ctx context.Context, pool, id, deleter string) error {
	asked, enough := context.WithTimeout(ctx, findTimeout)
	defer enough()
	silent := ""
	for _, p := range l.Shared.NodesWithPool(pool) {
		if p.Name == deleter {
			continue
		}
		_, found, err := p.Find(asked, id)
		switch {
		case err == nil && found:
			return status.Errorf(codes.Unavailable, "node %s has deleted volume %s of pool %s, and node %s still has "+
				"it; they are asked again; see whether both have the same filesystem there", deleter, id, pool, p.Name)
		case err == nil:
			return nil
		}
		silent = fmt.Sprintf("%s (%s)", p.Name, status.Convert(err).Message())
	}
	if silent == "" { // no other node has the pool
		return nil
	}
	return status.Errorf(codes.Unavailable, "node %s has deleted volume %s of pool %s, and no other node could "+
		"confirm it: %s", deleter, id, pool, silent)
}
