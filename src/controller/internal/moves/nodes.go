package moves

import (
	"cmp"
	"context"
	"slices"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/controller/internal/csi"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/controller/internal/fleet"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/abridge"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi/wire"
)

// Connected are the nodes that are connected.
type Connected struct {
	*csi.Controller
	Fleet *fleet.Fleet
	// Cordoned reports whether pods are not to be scheduled on a node.
	Cordoned func(ctx context.Context, node string) (bool, error)
	// Everywhere reports whether a pool is on all nodes.
	Everywhere func(pool string) bool
}

// Admin implements Nodes.
func (c Connected) Admin(node string) (wire.AdminClient, error) {
	p, err := c.Fleet.Peer(node)
	if err == nil && !p.Has(wire.FeatureMove) {
		err = status.Errorf(codes.Unavailable, "the driver on node %s is too old to move volumes (%s); upgrade it",
			p.Name, p.Version)
	}
	if err != nil {
		return nil, err
	}
	return wire.NewAdminClient(p), nil
}

// Gone implements Nodes.
func (c Connected) Gone(ctx context.Context, node string) bool {
	gone, err := c.Fleet.IsGone(ctx, node)
	return err == nil && gone && c.Fleet.Get(node) == nil
}

// Room implements Targets.
func (c Connected) Room(ctx context.Context, from, to, pool, id string) (bytes int64, _ []string) {
	var why problems
	known := c.Fleet.Names()
	why.add(!slices.Contains(known, to), "node %.253q is none with the driver; there are: %s", to, abridge.Names(known))
	why.add(c.Everywhere(pool), "pool %s is on all nodes: its volumes are there already", pool)
	if len(why) > 0 {
		return 0, why
	}
	for _, node := range []string{from, to} {
		_, err := c.Admin(node)
		why.add(err != nil, "%s", status.Convert(err).Message())
	}
	cordoned, err := c.Cordoned(ctx, to)
	why.add(err != nil, "%v", err)
	why.add(cordoned, "node %s is cordoned: the pod could not be scheduled there", to)
	err = c.OneVolume(id)
	why.add(err != nil, "%s", status.Convert(err).Message())
	if len(why) > 0 {
		return 0, why
	}
	return c.roomOn(ctx, to, pool, id)
}

func (c Connected) roomOn(ctx context.Context, node, pool, id string) (bytes int64, _ []string) {
	p, err := c.Fleet.Peer(node)
	if err != nil {
		return 0, problems{status.Convert(err).Message()}
	}
	var why problems
	is := p.Pool(pool)
	state := cmp.Or(is.State, "unknown there")
	if state == nodeapi.StatePresent && !is.Selected {
		state = nodeapi.StateNotSelected
	}
	why.add(state != nodeapi.StatePresent, "pool %s of node %s makes no volumes: it is %s", pool, node, state)
	in, found, err := p.Find(ctx, id)
	why.add(err != nil, "node %s does not say whether it has something of that id: %s", node,
		status.Convert(err).Message())
	why.add(found, "node %s has something of that id already, in pool %q; look with `kubectl hpp get volumes -A`, and "+
		"if nobody wants it: kubectl hpp discard %s --node %s", node, in, id, node)
	return is.Allocatable, why
}
