package moves

import (
	"context"
	"fmt"
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
func (c Connected) Room(ctx context.Context, from, to, pool, id string) (bytes int64, problems []string) {
	if known := c.Fleet.Names(); !slices.Contains(known, to) {
		return 0, []string{fmt.Sprintf("node %.253q is none with the driver; there are: %s", to, abridge.Names(known))}
	}
	if c.Everywhere(pool) {
		return 0, []string{fmt.Sprintf("pool %s is on all nodes: its volumes are there already", pool)}
	}
	for _, node := range []string{from, to} {
		if _, err := c.Admin(node); err != nil {
			problems = append(problems, status.Convert(err).Message())
		}
	}
	cordoned, err := c.Cordoned(ctx, to)
	switch {
	case err != nil:
		problems = append(problems, err.Error())
	case cordoned:
		problems = append(problems, fmt.Sprintf("node %s is cordoned: the pod could not be scheduled there", to))
	}
	if len(problems) > 0 {
		return 0, problems
	}
	return c.roomOn(ctx, to, pool, id)
}

func (c Connected) roomOn(ctx context.Context, node, pool, id string) (bytes int64, problems []string) {
	p, err := c.Fleet.Peer(node)
	if err != nil {
		return 0, []string{status.Convert(err).Message()}
	}
	is := p.Pool(pool)
	if is.State != nodeapi.StatePresent || !is.Selected {
		state := is.State
		if state == "" {
			state = "unknown there"
		}
		problems = append(problems, fmt.Sprintf("pool %s of node %s makes no volumes: it is %s, and selected %v", pool,
			node, state, is.Selected))
	}
	switch in, found, err := p.Find(ctx, id); {
	case err != nil:
		problems = append(problems, fmt.Sprintf("node %s does not say whether it has something of that id: %s", node,
			status.Convert(err).Message()))
	case found:
		problems = append(problems, fmt.Sprintf("node %s has something of that id already, in pool %q; look with "+
			"`kubectl hpp get volumes -A`, and if nobody wants it: kubectl hpp discard %s --node NODE", node, in, id))
	}
	return is.Allocatable, problems
}
