package csi

import (
	"context"

	pb "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/controller/internal/fleet"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi/wire"
)

// copyNode gives the node for a new volume whose node would be source: for a copy that is where its pod is to run, if
// that is known, unless the class says otherwise, or an earlier request has begun at the source. A volume that a pod
// uses is copied where it is.
func (c *Controller) copyNode(
	ctx context.Context, q *pb.CreateVolumeRequest, source *fleet.Peer, pod string,
) (*fleet.Peer, error) {
	if q.GetVolumeContentSource() == nil || !source.Has(wire.FeatureCopy) ||
		q.GetParameters()[nodeapi.KeyRestoreTo] == nodeapi.RestoreToSource {
		return source, nil
	}
	if pod == "" || pod == source.Name {
		return source, nil
	}
	allowed, err := c.allowedNodes(q.GetAccessibilityRequirements())
	if err == nil {
		err = checkAllowed(allowed, pod)
	}
	if err != nil {
		return nil, err
	}
	// A pool of that node may be absent: it makes no difference to what is in the others.
	if _, begun, _ := source.Find(ctx, q.GetName()); begun {
		return source, nil
	}
	target, err := c.awaitPeer(ctx, pod)
	if err != nil {
		return nil, err
	}
	if stays, err := c.staysAtSource(ctx, q, source, target); stays || err != nil {
		return source, err
	}
	return target, nil
}

// staysAtSource reports whether another node cannot have a copy: its driver is older, or the source is a volume that a
// pod uses, unless the copy has begun there.
func (c *Controller) staysAtSource(
	ctx context.Context, q *pb.CreateVolumeRequest, source, target *fleet.Peer,
) (bool, error) {
	if !target.Has(wire.FeatureCopy) {
		return true, nil
	}
	of := q.GetVolumeContentSource().GetVolume()
	if of == nil {
		return false, nil
	}
	if _, begun, _ := target.Find(ctx, q.GetName()); begun {
		return false, nil
	}
	is, err := volumeOn(ctx, source, of.GetVolumeId())
	return len(is.GetStatus().GetPublishedNodeIds()) > 0, err
}

// volumeOn gives what a node says of a volume.
func volumeOn(ctx context.Context, p *fleet.Peer, id string) (*pb.ControllerGetVolumeResponse, error) {
	return pb.NewControllerClient(p).ControllerGetVolume(ctx, &pb.ControllerGetVolumeRequest{VolumeId: id})
}

// createOn makes a volume on a node. Where its source is on another one, that node's data is brought to it.
func (c *Controller) createOn(
	ctx context.Context, q *pb.CreateVolumeRequest, source, target *fleet.Peer, pod string,
) (*pb.CreateVolumeResponse, error) {
	if source == target {
		if err := c.checkPodCanFollow(ctx, q, source, pod); err != nil {
			return nil, err
		}
		answer, err := pb.NewControllerClient(target).CreateVolume(ctx, q)
		if err != nil {
			err = c.noteRefusal(q, target.Name, err)
		}
		return answer, err
	}
	from, err := c.sourceOn(ctx, q.GetVolumeContentSource(), source)
	if err != nil {
		return nil, err
	}
	return c.bring(ctx, q, way{from, source, target})
}

// way is how data goes from node to node.
type way struct {
	from           wire.Source
	source, target *fleet.Peer
}

// bring makes a volume of what is on another node, and waits a moment for its data.
func (c *Controller) bring(ctx context.Context, q *pb.CreateVolumeRequest, w way) (*pb.CreateVolumeResponse, error) {
	client, about := pb.NewControllerClient(w.target), wire.WithSource(ctx, w.from)
	answer, err := client.CreateVolume(about, q)
	if status.Code(err) != codes.Aborted {
		return answer, err
	}
	ended, why := c.relays.await(ctx, q.GetName(), w)
	if !ended {
		if why != nil {
			err = status.Errorf(codes.Aborted, "%s; it waits: %v", status.Convert(err).Message(), why)
		}
		return answer, err
	}
	answer, err = client.CreateVolume(about, q)
	if why != nil && status.Code(err) == codes.Aborted { // the target does not know what the source has said
		err = status.Errorf(codes.Aborted, "%s; its data has not all come: %v", status.Convert(err).Message(), why)
	}
	return answer, err
}

// sourceOn gives the source of a copy, which is on a node, with its size.
func (c *Controller) sourceOn(
	ctx context.Context, of *pb.VolumeContentSource, p *fleet.Peer,
) (is wire.Source, err error) {
	if of.GetVolume() != nil {
		v, err := volumeOn(ctx, p, of.GetVolume().GetVolumeId())
		return wire.Source{ID: of.GetVolume().GetVolumeId(), Bytes: v.GetVolume().GetCapacityBytes()}, err
	}
	id := of.GetSnapshot().GetSnapshotId()
	page, err := c.listSnapshotsOn(ctx, p, &pb.ListSnapshotsRequest{SnapshotId: id})
	if err == nil && len(page.GetEntries()) != 1 {
		err = status.Errorf(codes.NotFound, "node %s has no snapshot %s", p.Name, id)
	}
	if err != nil {
		return is, err
	}
	return wire.Source{ID: id, Bytes: page.GetEntries()[0].GetSnapshot().GetSizeBytes()}, nil
}
