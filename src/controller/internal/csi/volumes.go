package csi

import (
	"context"
	"fmt"
	"slices"

	pb "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/names"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/controller/internal/fleet"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/abridge"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/bytesize"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/csi"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/poolspec"
)

// CreateVolume implements csi.ControllerServer on the node that is asked for, or that is chosen.
func (c *Controller) CreateVolume(ctx context.Context, q *pb.CreateVolumeRequest) (*pb.CreateVolumeResponse, error) {
	c.deletions.forget(q.GetName())
	pod, err := c.nodeOfPod(ctx, q)
	if err != nil {
		return nil, err
	}
	p, err := c.choosePeer(ctx, q, pod)
	if err != nil {
		return nil, err
	}
	if err := c.allowMany(ctx, q, p); err != nil {
		return nil, err
	}
	source := p
	if p, err = c.copyNode(ctx, q, source, pod); err != nil {
		return nil, err
	}
	here := []*pb.Topology{{Segments: map[string]string{c.Fleet.TopologyKey: p.Name}}}
	q = proto.CloneOf(q)
	q.AccessibilityRequirements = &pb.TopologyRequirement{Requisite: here, Preferred: here}
	answer, err := c.createOn(ctx, q, source, p, pod)
	if err != nil {
		return nil, err
	}
	v := answer.GetVolume()
	if err := checkAnswer(q, p.Name, v); err != nil {
		return nil, err
	}
	v.AccessibleTopology, v.ContentSource = here, q.GetVolumeContentSource() // no node speaks for another
	pool, err := c.poolTaken(q, p.Name, v.GetVolumeContext()[names.StoragePoolParameter])
	if err != nil {
		return nil, err
	}
	v.VolumeContext = csi.Attributes(v.GetVolumeContext(), q.GetParameters(), pool)
	if c.Shared.Everywhere(pool) {
		v.AccessibleTopology = nil
	}
	c.deletions.forget(q.GetName()) // one may have begun before, and ended meanwhile
	c.reportUnenforced(q, v.GetVolumeContext(), p.Name)
	return answer, nil
}

// poolTaken is the pool of a new volume: the one that was asked for, or of several the one that its node has taken.
func (c *Controller) poolTaken(q *pb.CreateVolumeRequest, node, answered string) (string, error) {
	pools := c.poolsFor(q.GetParameters())
	switch {
	case !poolspec.Several(q.GetParameters()[names.StoragePoolParameter]):
		return pools[0], nil
	case slices.Contains(pools, answered):
		return answered, nil
	}
	return "", status.Errorf(codes.Internal, "node %s was asked for volume %s in pool %s and answered about pool %.64q",
		node, q.GetName(), either(pools), answered)
}

// checkAnswer refuses what a node answers about another volume than it was asked for.
func checkAnswer(q *pb.CreateVolumeRequest, node string, v *pb.Volume) error {
	limit, source := q.GetCapacityRange().GetLimitBytes(), q.GetVolumeContentSource()
	if v.GetVolumeId() != q.GetName() || v.GetCapacityBytes() < q.GetCapacityRange().GetRequiredBytes() ||
		(limit > 0 && v.GetCapacityBytes() > limit) || (source != nil && !proto.Equal(v.GetContentSource(), source)) {
		return status.Errorf(codes.Internal, "node %s was asked for volume %s and answered about another: id %.128q, "+
			"%s, copied from %.300q", node, q.GetName(), v.GetVolumeId(), bytesize.Format(v.GetCapacityBytes()),
			v.GetContentSource())
	}
	return nil
}

// maxUnenforced is how many classes are remembered.
const maxUnenforced = 1000

// reportUnenforced tells the owner of a claim that nothing keeps its volume to its size: the first of each class, for
// the volume's attribute says it of all.
func (c *Controller) reportUnenforced(q *pb.CreateVolumeRequest, attributes map[string]string, node string) {
	claim := claimOf(q)
	if claim.Name == "" || !csi.NotEnforced(attributes) {
		return
	}
	class := fmt.Sprint(attributes) // printed in the order of its keys
	c.mu.Lock()
	known := c.unenforced[class] || len(c.unenforced) >= maxUnenforced
	c.unenforced[class] = true
	c.mu.Unlock()
	if !known {
		c.Cluster.TellClaim(claim, "Normal", "SizeNotEnforced", fmt.Sprintf("pool %s has no quota on node %s: nothing "+
			"keeps this volume, or others of its StorageClass, to its size; each has the attribute enforcement=none",
			attributes[names.StoragePoolParameter], node))
	}
}

// DeleteVolume implements csi.ControllerServer. It goes to the one node that has the volume; of a node that is gone,
// the volume is let go.
func (c *Controller) DeleteVolume(ctx context.Context, q *pb.DeleteVolumeRequest) (*pb.DeleteVolumeResponse, error) {
	id := q.GetVolumeId()
	if err := csi.CheckVolumeID("volume_id", id); err != nil {
		return nil, err
	}
	if err := c.OneVolume(id); err != nil {
		return nil, err
	}
	begun, done := c.deletions.begin(id)
	if done {
		return &pb.DeleteVolumeResponse{}, nil
	}
	at, err := c.locate(ctx, id)
	if err != nil {
		return nil, err
	}
	if at.node == "" {
		return c.deleteUnseen(ctx, q, at)
	}
	p, err := c.Fleet.Peer(at.node)
	if err != nil {
		return c.release(ctx, at, err)
	}
	answer, err := pb.NewControllerClient(p).DeleteVolume(at.withFacts(ctx), q)
	if err == nil && c.Shared.Everywhere(at.pool) {
		err = c.confirmDeletion(ctx, at.pool, id, at.node)
	}
	if err != nil {
		return nil, err
	}
	c.deletions.end(id, begun)
	return answer, nil
}

// OneVolume refuses a volume that several PersistentVolumes name, on whichever nodes: a call names none of them, and
// the data is that of the others too.
func (c *Controller) OneVolume(id string) error {
	if !c.Fleet.Synced() {
		return status.Errorf(codes.Unavailable, "waiting for the Kubernetes API to say which PersistentVolumes have "+
			"the volumeHandle %s", id)
	}
	if known := c.Cluster.Known(id); len(known) > 1 {
		names := make([]string, len(known))
		for i, pv := range known {
			names[i] = pv.Name
		}
		return status.Errorf(codes.FailedPrecondition, "PersistentVolumes %s all have the volumeHandle %s, and its "+
			"data is theirs; keep one of them, and set the reclaim policy of the others to Retain before you delete "+
			"them", abridge.Names(names), id)
	}
	return nil
}

// deleteUnseen answers for a volume that no node has shown. Where a PersistentVolume names it, a node says whether it
// is gone, if there is one a node that has its pool: nobody has looked into a pool that no node knows any more.
func (c *Controller) deleteUnseen(
	ctx context.Context, q *pb.DeleteVolumeRequest, at place,
) (*pb.DeleteVolumeResponse, error) {
	if !at.named {
		return &pb.DeleteVolumeResponse{}, nil
	}
	peers := c.Fleet.All()
	if len(peers) == 0 {
		return nil, status.Errorf(codes.Unavailable, "no node is connected that could say where volume %s is",
			q.GetVolumeId())
	}
	pool := c.Shared.PoolOf(at.pv)
	has := func(p *fleet.Peer) bool { return p.Pool(pool).Served() }
	p := peers[max(0, slices.IndexFunc(peers, has))]
	answer, err := pb.NewControllerClient(p).DeleteVolume(ctx, q)
	if err != nil {
		said := status.Convert(err).Proto()
		said.Message = "node " + p.Name + ": " + said.GetMessage()
		return nil, status.ErrorProto(said)
	}
	return answer, nil
}

// release lets a volume go because its node is gone, or because an administrator gave it up; else its node is away. The
// PersistentVolume's event says that data may be left.
func (c *Controller) release(ctx context.Context, at place, away error) (*pb.DeleteVolumeResponse, error) {
	if !at.named {
		return nil, away
	}
	why := fmt.Sprintf("its annotation gives up what is on node %s", at.node)
	if at.pv.Released != at.node {
		if err := c.confirmGone(ctx, at.node, away); err != nil {
			return nil, err
		}
		why = fmt.Sprintf("node %s is gone", at.node)
	}
	c.Cluster.TellVolume(at.pv, "VolumeReleased",
		why+": the volume counts as deleted; its data may be left on that node's disk")
	return &pb.DeleteVolumeResponse{}, nil
}

// ControllerExpandVolume implements csi.ControllerServer.
func (c *Controller) ControllerExpandVolume(
	ctx context.Context, q *pb.ControllerExpandVolumeRequest,
) (*pb.ControllerExpandVolumeResponse, error) {
	client, at, err := c.client(ctx, q.GetVolumeId())
	if err != nil {
		return nil, err
	}
	return client.ControllerExpandVolume(at.withFacts(ctx), q)
}

// ValidateVolumeCapabilities implements csi.ControllerServer.
func (c *Controller) ValidateVolumeCapabilities(
	ctx context.Context, q *pb.ValidateVolumeCapabilitiesRequest,
) (*pb.ValidateVolumeCapabilitiesResponse, error) {
	client, _, err := c.client(ctx, q.GetVolumeId())
	if err != nil {
		return nil, err
	}
	return client.ValidateVolumeCapabilities(ctx, q)
}

// client gives the node of a volume that must be there.
func (c *Controller) client(ctx context.Context, id string) (client pb.ControllerClient, at place, err error) {
	if err := csi.CheckVolumeID("volume_id", id); err != nil {
		return nil, at, err
	}
	at, err = c.locate(ctx, id)
	if err == nil && at.node == "" {
		err = status.Errorf(codes.NotFound, "no node has volume %s", id)
	}
	if err != nil {
		return nil, at, err
	}
	p, err := c.Fleet.Peer(at.node)
	return pb.NewControllerClient(p), at, err
}

// GetCapacity implements csi.ControllerServer from what the nodes have said last. An error leaves the figures that are
// published: so it is while a node is away, until the scheduler is to choose another.
func (c *Controller) GetCapacity(_ context.Context, q *pb.GetCapacityRequest) (*pb.GetCapacityResponse, error) {
	asked := c.poolsFor(q.GetParameters())
	if q.GetAccessibleTopology() == nil { // nobody in Kubernetes asks this
		var growable, largest int64
		for _, p := range c.Fleet.All() {
			g, l := c.capacityOn(p, asked)
			growable, largest = max(growable, g), max(largest, l)
		}
		return csi.Capacity(growable, largest), nil
	}
	node := q.GetAccessibleTopology().GetSegments()[c.Fleet.TopologyKey]
	if c.Fleet.Get(node) == nil && c.Fleet.Away(node) >= c.Fleet.NodeGrace {
		return csi.Capacity(0, 0), nil
	}
	p, err := c.Fleet.Peer(node)
	if err != nil {
		return nil, err
	}
	if pools, _ := p.Pools(); pools == nil {
		return nil, status.Errorf(codes.Unavailable, "node %s has not shown its pools yet", node)
	}
	return csi.Capacity(c.capacityOn(p, asked)), nil
}

// capacityOn is what volumes may grow by on a node in one of the pools, and the largest new one, in bytes.
func (c *Controller) capacityOn(p *fleet.Peer, pools []string) (growable, largest int64) {
	return csi.Most(pools, func(pool string) (growable, largest int64) {
		is := p.Pool(pool)
		if is.Allocatable > 0 && c.Shared.Everywhere(pool) {
			return c.Shared.Capacity(pool)
		}
		return is.Growable, is.Allocatable
	})
}
