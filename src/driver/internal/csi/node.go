package csi

import (
	"cmp"
	"context"
	"path"

	pb "github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/volume"
)

type node struct {
	pb.UnimplementedNodeServer
	Config
}

func (n *node) NodeGetCapabilities(
	context.Context, *pb.NodeGetCapabilitiesRequest,
) (*pb.NodeGetCapabilitiesResponse, error) {
	response := &pb.NodeGetCapabilitiesResponse{}
	for _, rpc := range []pb.NodeServiceCapability_RPC_Type{
		pb.NodeServiceCapability_RPC_GET_VOLUME_STATS,
		pb.NodeServiceCapability_RPC_EXPAND_VOLUME,
		pb.NodeServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER,
		pb.NodeServiceCapability_RPC_GET_VOLUME_HEALTH,
		pb.NodeServiceCapability_RPC_GET_STORAGE_HEALTH,
	} {
		response.Capabilities = append(response.Capabilities, &pb.NodeServiceCapability{
			Type: &pb.NodeServiceCapability_Rpc{Rpc: &pb.NodeServiceCapability_RPC{Type: rpc}},
		})
	}
	return response, nil
}

func (n *node) NodeGetInfo(context.Context, *pb.NodeGetInfoRequest) (*pb.NodeGetInfoResponse, error) {
	return &pb.NodeGetInfoResponse{NodeId: n.NodeName, AccessibleTopology: n.topology()}, nil
}

func (n *node) NodePublishVolume(
	ctx context.Context, q *pb.NodePublishVolumeRequest,
) (*pb.NodePublishVolumeResponse, error) {
	request, err := n.publishRequest(q)
	if err == nil {
		err = n.Publisher.Publish(ctx, request)
	}
	if err != nil {
		return nil, toStatus(publish, err)
	}
	return &pb.NodePublishVolumeResponse{}, nil
}

// publishRequest reads a NodePublishVolume. Attributes of a persistent volume are not validated: those of volumes taken
// over are kubevirt's.
func (n *node) publishRequest(q *pb.NodePublishVolumeRequest) (r volume.PublishRequest, err error) {
	if err := volumeID("volume_id", q.GetVolumeId()); err != nil {
		return r, err
	}
	target, err := n.target(q.GetTargetPath())
	if err != nil {
		return r, err
	}
	options, err := mountOptions("volume_capability", q.GetVolumeCapability())
	if err != nil {
		return r, err
	}
	options.ReadOnly = options.ReadOnly || q.GetReadonly()
	attributes, mode := q.GetVolumeContext(), q.GetVolumeCapability().GetAccessMode().GetMode()
	r = volume.PublishRequest{
		ID: q.GetVolumeId(), Target: target, Options: options,
		SingleWriter: mode == pb.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER,
	}
	if attributes[keyEphemeral] == "true" {
		r.Inline, err = n.inlineSpec(q.GetVolumeId(), attributes)
	}
	return r, err
}

func (n *node) NodeUnpublishVolume(
	ctx context.Context, q *pb.NodeUnpublishVolumeRequest,
) (*pb.NodeUnpublishVolumeResponse, error) {
	target, err := n.target(q.GetTargetPath())
	if err = cmp.Or(volumeID("volume_id", q.GetVolumeId()), err); err == nil {
		err = n.Publisher.Unpublish(ctx, q.GetVolumeId(), target)
	}
	if err != nil {
		return nil, toStatus(unpublish, err)
	}
	return &pb.NodeUnpublishVolumeResponse{}, nil
}

func (n *node) NodeGetVolumeStats(
	ctx context.Context, q *pb.NodeGetVolumeStatsRequest,
) (*pb.NodeGetVolumeStatsResponse, error) {
	if err := cmp.Or(volumeID("volume_id", q.GetVolumeId()), volumePath(q.GetVolumePath())); err != nil {
		return nil, toStatus(read, err)
	}
	stats, err := n.Publisher.Stats(ctx, q.GetVolumeId(), path.Clean(q.GetVolumePath()))
	if err != nil {
		return nil, toStatus(read, err)
	}
	response := &pb.NodeGetVolumeStatsResponse{Usage: []*pb.VolumeUsage{{
		Unit: pb.VolumeUsage_BYTES, Total: stats.Bytes, Used: stats.BytesUsed, Available: stats.BytesAvailable,
	}}}
	if stats.Inodes > 0 { // some filesystems do not count them
		response.Usage = append(response.Usage, &pb.VolumeUsage{
			Unit: pb.VolumeUsage_INODES, Total: stats.Inodes, Used: stats.InodesUsed, Available: stats.InodesAvailable,
		})
	}
	return response, nil
}
