package csi

import (
	"context"
	"slices"
	"strings"

	pb "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/names"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/controller/internal/fleet"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/abridge"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/bytesize"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/csi"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/poolspec"
)

// choosePeer gives the node for a new volume: the one that has what it is copied from, for a pod that is to run on the
// node given, or the one that is chosen.
func (c *Controller) choosePeer(ctx context.Context, q *pb.CreateVolumeRequest, pod string) (*fleet.Peer, error) {
	if err := csi.CheckVolumeID("name", q.GetName()); err != nil {
		return nil, err
	}
	if _, err := poolspec.PoolsOf(c.Shared.Configured, q.GetParameters()[names.StoragePoolParameter]); err != nil {
		return nil, status.Errorf(codes.InvalidArgument, "parameters.%s: %v", names.StoragePoolParameter, err)
	}
	allowed, err := c.allowedNodes(q.GetAccessibilityRequirements())
	if err != nil {
		return nil, err
	}
	if q.GetVolumeContentSource() != nil {
		return c.peerOfContent(ctx, q, allowed, pod)
	}
	node, err := c.choose(ctx, q, allowed)
	if err != nil {
		return nil, err
	}
	return c.awaitPeer(ctx, node)
}

// choose gives the node for a new volume: the one that is asked for, the one that the claim carries, or the one with
// the most room. That is written into the claim before anything is made, so that a repeated request, also to another
// controller, comes to the same node.
func (c *Controller) choose(ctx context.Context, q *pb.CreateVolumeRequest, allowed []string) (string, error) {
	if pool := c.sharedPoolFor(q.GetParameters()); pool != "" {
		return c.nodeFor(pool, q.GetName(), allowed)
	}
	if len(allowed) == 1 {
		return allowed[0], nil
	}
	claim := claimOf(q)
	if claim.Name == "" {
		return c.unclaimed(ctx, q, allowed)
	}
	selected, found, err := c.Cluster.SelectedNode(ctx, claim)
	switch {
	case err != nil:
		return "", status.Errorf(codes.Unavailable, "%v", err)
	case !found:
		return c.unclaimed(ctx, q, allowed)
	case selected != "":
		return selected, checkAllowed(allowed, selected)
	}
	return c.selectRoomiest(ctx, q, allowed)
}

// selectRoomiest writes the node with the most room into the claim, and gives the one that it then has.
func (c *Controller) selectRoomiest(
	ctx context.Context, q *pb.CreateVolumeRequest, allowed []string,
) (selected string, err error) {
	node, err := c.roomiest(q, allowed)
	if err == nil {
		err = c.refusals.check(q.GetName(), node)
	}
	if err != nil {
		return "", err
	}
	if selected, err = c.Cluster.SelectNode(ctx, claimOf(q), node); err != nil {
		return "", status.Errorf(codes.Unavailable, "%v", err)
	}
	if selected == "" { // it went meanwhile
		return c.unclaimed(ctx, q, allowed)
	}
	return selected, checkAllowed(allowed, selected)
}

// checkAllowed refuses a node that the claim carries and the class leaves out: whoever may write claims may write that,
// too.
func checkAllowed(allowed []string, node string) error {
	if len(allowed) == 0 || slices.Contains(allowed, node) {
		return nil
	}
	return status.Errorf(codes.InvalidArgument, "the claim's annotation volume.kubernetes.io/selected-node names node "+
		"%.253q, which is none of those that the class's allowedTopologies leave: %s; remove the annotation",
		node, abridge.Names(allowed))
}

// unclaimed gives the node for a volume whose claim is gone, or that nobody in Kubernetes asks for: an earlier request
// may have been done.
func (c *Controller) unclaimed(ctx context.Context, q *pb.CreateVolumeRequest, allowed []string) (string, error) {
	if node, _, err := c.locateByBroadcast(ctx, q.GetName()); err != nil || node != "" {
		return node, err
	}
	if claim := claimOf(q); claim.Name != "" {
		return "", claimGone(claim)
	}
	return c.roomiest(q, allowed)
}

// allowedNodes are the nodes that a request names, none for all.
func (c *Controller) allowedNodes(r *pb.TopologyRequirement) (nodes []string, err error) {
	for _, t := range r.GetRequisite() {
		node, ok := t.GetSegments()[c.Fleet.TopologyKey]
		if !ok || len(t.GetSegments()) != 1 {
			return nil, status.Errorf(codes.InvalidArgument, "accessibility_requirements: %v: want the key %s alone; "+
				"a class's allowedTopologies may name no other", t.GetSegments(), c.Fleet.TopologyKey)
		}
		nodes = append(nodes, node)
	}
	slices.Sort(nodes)
	return slices.Compact(nodes), nil
}

// claimOf is the claim that csi-provisioner makes a volume for, with --extra-create-metadata. It never passes the
// claim's uid, but names the volume after it.
func claimOf(q *pb.CreateVolumeRequest) nodeapi.Claim {
	uid, _ := strings.CutPrefix(q.GetName(), "pvc-")
	return nodeapi.Claim{
		Namespace: q.GetParameters()[nodeapi.KeyClaimNS], Name: q.GetParameters()[nodeapi.KeyClaimName], UID: uid,
	}
}

// poolsFor are the pools that a new volume may be in, none where the class cannot be served.
func (c Config) poolsFor(parameters map[string]string) []string {
	pools, _ := poolspec.PoolsOf(c.Shared.Configured, parameters[names.StoragePoolParameter])
	return pools
}

// sharedPoolFor is the pool of a new volume that all nodes have, else "".
func (c Config) sharedPoolFor(parameters map[string]string) string {
	if pools := c.poolsFor(parameters); len(pools) == 1 && c.Shared.Everywhere(pools[0]) {
		return pools[0]
	}
	return ""
}

// roomiest is the connected node with the most room, among those allowed.
func (c *Controller) roomiest(q *pb.CreateVolumeRequest, allowed []string) (string, error) {
	pools := c.poolsFor(q.GetParameters())
	if i := slices.IndexFunc(pools, c.isUnknown); i >= 0 { // it is what was asked for
		return "", status.Errorf(codes.InvalidArgument, "parameters.%s: %.64q is in no configuration; want one of %s",
			names.StoragePoolParameter, pools[i], strings.Join(c.Shared.Names, ", "))
	}
	var node string
	var most int64
	for _, p := range c.Fleet.All() {
		if len(allowed) > 0 && !slices.Contains(allowed, p.Name) {
			continue
		}
		if _, largest := c.capacityOn(p, pools); largest > most {
			node, most = p.Name, largest
		}
	}
	if node == "" || most < q.GetCapacityRange().GetRequiredBytes() {
		return "", status.Errorf(codes.ResourceExhausted, "no connected node has %s in pool %s; the most is %s; %s",
			bytesize.Format(q.GetCapacityRange().GetRequiredBytes()), either(pools), bytesize.Format(most),
			c.standingOf(pools))
	}
	return node, nil
}

func (c Config) isUnknown(pool string) bool { return !slices.Contains(c.Shared.Names, pool) }

// either names a pool, or several of which one is enough.
func either(pools []string) string { return strings.Join(pools, " or ") }

// nodesSelected are the nodes that have the driver and that the nodeSelector of one of the pools selects, by name.
func (c Config) nodesSelected(pools []string) (nodes []string) {
	for _, is := range c.Shared.Configured {
		if slices.Contains(pools, is.Name) {
			nodes = append(nodes, c.Fleet.NodesWithDriver(is.NodeSelector)...)
		}
	}
	slices.Sort(nodes)
	return slices.Compact(nodes)
}

// allowMany refuses a volume for many nodes in a pool that has sharedAccess for a single one, once the nodeSelector
// selects a second, connected or not. What an earlier request has made before that stays, like all such volumes.
func (c *Controller) allowMany(ctx context.Context, q *pb.CreateVolumeRequest, p *fleet.Peer) error {
	pools := c.poolsFor(q.GetParameters())
	allows := func(is poolspec.Pool) bool { return slices.Contains(pools, is.Name) && is.SharedAccess }
	if !slices.ContainsFunc(q.GetVolumeCapabilities(), csi.ForManyNodes) ||
		!slices.ContainsFunc(c.Shared.Configured, allows) {
		return nil // or the node refuses it
	}
	if !c.Fleet.Synced() {
		return status.Error(codes.Unavailable, "waiting for the Kubernetes API to say which nodes there are")
	}
	nodes := c.nodesSelected(pools)
	if len(nodes) < 2 {
		return nil
	}
	_, found, err := p.Find(ctx, q.GetName())
	absent := func(pool string) bool { return p.Pool(pool).ID == "" }
	if found || err != nil && slices.ContainsFunc(pools, absent) { // other pools of the node may be absent
		return err
	}
	return status.Errorf(codes.InvalidArgument, "volume_capabilities: ReadWriteMany and ReadOnlyMany are for one node "+
		"in pool %s, which has sharedAccess, and %d nodes are selected: %s; let the pool's nodeSelector select one of "+
		"them, or ask for ReadWriteOnce; volumes that are there stay as they are", either(pools), len(nodes),
		abridge.Names(nodes))
}
