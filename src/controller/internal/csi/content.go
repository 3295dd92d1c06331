package csi

import (
	"context"
	"slices"

	pb "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/controller/internal/fleet"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/abridge"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/csi"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
)

// peerOfContent gives the node that has what a new volume is copied from.
func (c *Controller) peerOfContent(
	ctx context.Context, q *pb.CreateVolumeRequest, allowed []string, pod string,
) (p *fleet.Peer, err error) {
	if pool := c.sharedPoolFor(q.GetParameters()); pool != "" {
		return nil, status.Errorf(codes.InvalidArgument, "volume_content_source: pool %s is shared by nodes, and its "+
			"volumes can only be made empty; want a StorageClass of the source's pool", pool)
	}
	switch source := q.GetVolumeContentSource(); {
	case source.GetSnapshot() != nil:
		var gone bool
		id := source.GetSnapshot().GetSnapshotId()
		if p, gone, err = c.peerOfSnapshot(ctx, id); gone {
			err = status.Errorf(codes.NotFound, "no node of the cluster has snapshot %.128q", id)
		}
	case source.GetVolume() != nil:
		p, _, err = c.peerOfSource(ctx, "volume_content_source", source.GetVolume().GetVolumeId())
	default:
		err = status.Error(codes.InvalidArgument, "volume_content_source: want a snapshot or a volume")
	}
	if err != nil {
		return nil, err
	}
	return p, checkContentAllowed(allowed, p.Name, pod)
}

// nodeOfPod is the node that the scheduler has chosen for the pod that waits for a copy, "" where it has chosen none. A
// copy whose claim is gone is ended: nobody wants what is yet to be copied. csi-provisioner asks for it until the
// answer is final, and deletes nothing then.
func (c *Controller) nodeOfPod(ctx context.Context, q *pb.CreateVolumeRequest) (node string, err error) {
	claim := claimOf(q)
	if q.GetVolumeContentSource() == nil || claim.Name == "" {
		return "", nil
	}
	named := false
	node, found, err := c.Cluster.SelectedNode(ctx, claim)
	if err == nil && !found {
		_, named, err = c.Cluster.Get(ctx, q.GetName())
	}
	if err != nil {
		return "", status.Errorf(codes.Unavailable, "%v", err)
	}
	if found {
		return node, nil
	}
	if !named {
		if _, err = c.DeleteVolume(ctx, &pb.DeleteVolumeRequest{VolumeId: q.GetName()}); err != nil {
			return "", err
		}
	}
	return "", claimGone(claim)
}

func claimGone(claim nodeapi.Claim) error {
	return status.Errorf(codes.InvalidArgument, "claim %s/%s is gone", claim.Namespace, claim.Name)
}

// checkContentAllowed refuses a copy on a node that the class leaves out. That a pod waits on another node
// (WaitForFirstConsumer; csi-provisioner names that node alone, with --strict-topology) is no reason: the volume's
// PersistentVolume sends the pod to the copy.
func checkContentAllowed(allowed []string, node, pod string) error {
	if len(allowed) == 0 || slices.Contains(allowed, node) || len(allowed) == 1 && pod == allowed[0] {
		return nil
	}
	return status.Errorf(codes.InvalidArgument, "what the volume is to be copied from is on node %s, which is none of "+
		"those that the class's allowedTopologies leave: %s; use a StorageClass that allows it", node,
		abridge.Names(allowed))
}

// checkPodCanFollow refuses a new copy on a node that is cordoned, where the pod that waits for it was scheduled on
// another: the copy's PersistentVolume would send the pod to where it cannot be scheduled.
func (c *Controller) checkPodCanFollow(
	ctx context.Context, q *pb.CreateVolumeRequest, source *fleet.Peer, pod string,
) error {
	if pod == "" || pod == source.Name {
		return nil
	}
	// What has begun comes to its end.
	if _, begun, _ := source.Find(ctx, q.GetName()); begun {
		return nil
	}
	switch cordoned, err := c.Cluster.Cordoned(ctx, source.Name); {
	case err != nil:
		return status.Errorf(codes.Unavailable, "see whether node %s is cordoned: %v", source.Name, err)
	case cordoned:
		return status.Errorf(codes.FailedPrecondition, "node %s is cordoned, and volume %s would be made there, where "+
			"what it is to be copied from is: its pod could not be scheduled; kubectl uncordon %s, or use a "+
			"StorageClass with restoreTo: pod; instead of a clone of a volume that a pod uses, restore a snapshot of "+
			"it", source.Name, q.GetName(), source.Name)
	}
	return nil
}

// noteRefusal gives the answer to a new volume that a node has refused. csi-provisioner would take a claim back from a
// node without room, and ask again at once; no other node can make a copy, so that it is to wait instead.
func (c *Controller) noteRefusal(q *pb.CreateVolumeRequest, node string, err error) error {
	if q.GetVolumeContentSource() != nil && status.Code(err) == codes.ResourceExhausted {
		return status.Errorf(codes.FailedPrecondition, "volume %s can only be made on node %s, which has what it is "+
			"to be copied from, and which refuses it: %s", q.GetName(), node, status.Convert(err).Message())
	}
	c.refusals.note(q.GetName(), node, err)
	return err
}

// peerOfSource gives the node of a volume that is to be copied, and where that is. The error is NotFound where the
// volume is nowhere, and Unavailable while its node is not connected; field is named where the id can be none.
func (l locator) peerOfSource(ctx context.Context, field, id string) (p *fleet.Peer, at place, err error) {
	if err := csi.CheckVolumeID(field, id); err != nil {
		return nil, at, err
	}
	at, err = l.locate(ctx, id)
	switch {
	case l.Shared.Everywhere(at.pool): // also where no node could be found
		return nil, at, status.Errorf(codes.FailedPrecondition, "volume %s is in pool %s, which is shared by nodes: "+
			"volumes there have no snapshots and no clones", id, at.pool)
	case err != nil:
		return nil, at, err
	case at.node == "":
		return nil, at, status.Errorf(codes.NotFound, "no node has volume %s", id)
	}
	if p, err = l.Fleet.Peer(at.node); err == nil {
		return p, at, nil
	}
	if err = l.confirmGone(ctx, at.node, err); err == nil {
		err = status.Errorf(codes.NotFound, "node %s is gone, and volume %s with it", at.node, id)
	}
	return nil, at, err
}
