package csi

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path"
	"slices"

	pb "github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/names"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/pool"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/store"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/volume"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/csi"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
)

func (s *server) NodeGetCapabilities(
	context.Context, *pb.NodeGetCapabilitiesRequest,
) (*pb.NodeGetCapabilitiesResponse, error) {
	can := func(t pb.NodeServiceCapability_RPC_Type) *pb.NodeServiceCapability {
		rpc := &pb.NodeServiceCapability_RPC{Type: t}
		return &pb.NodeServiceCapability{Type: &pb.NodeServiceCapability_Rpc{Rpc: rpc}}
	}
	return &pb.NodeGetCapabilitiesResponse{Capabilities: []*pb.NodeServiceCapability{
		can(pb.NodeServiceCapability_RPC_GET_VOLUME_STATS),
		can(pb.NodeServiceCapability_RPC_EXPAND_VOLUME),
		can(pb.NodeServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER),
		can(pb.NodeServiceCapability_RPC_GET_VOLUME_HEALTH),
		can(pb.NodeServiceCapability_RPC_GET_STORAGE_HEALTH),
	}}, nil
}

func (s *server) NodeGetInfo(context.Context, *pb.NodeGetInfoRequest) (*pb.NodeGetInfoResponse, error) {
	return &pb.NodeGetInfoResponse{NodeId: s.NodeName, AccessibleTopology: s.topology()}, nil
}

// NodePublishVolume does not validate attributes of a persistent volume: those of volumes taken over are kubevirt's.
func (s *server) NodePublishVolume(
	ctx context.Context, q *pb.NodePublishVolumeRequest,
) (*pb.NodePublishVolumeResponse, error) {
	target, targetErr := s.target(q.GetTargetPath())
	options, optionsErr := mountOptions("volume_capability", q.GetVolumeCapability())
	options.ReadOnly = options.ReadOnly || q.GetReadonly()
	attributes, mode := q.GetVolumeContext(), q.GetVolumeCapability().GetAccessMode().GetMode()
	request := volume.PublishRequest{
		ID: q.GetVolumeId(), Target: target, Options: options,
		SingleWriter: mode == pb.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER,
		Pool:         attributes[names.StoragePoolParameter],
	}
	err := cmp.Or(csi.CheckVolumeID("volume_id", q.GetVolumeId()), targetErr, optionsErr)
	if err == nil && attributes[keyEphemeral] == "true" {
		request.Inline, err = s.inlineSpec(q.GetVolumeId(), attributes)
	}
	if err == nil {
		err = s.Publisher.Publish(ctx, request)
	}
	return answered(publish, &pb.NodePublishVolumeResponse{}, err)
}

func (s *server) NodeUnpublishVolume(
	ctx context.Context, q *pb.NodeUnpublishVolumeRequest,
) (*pb.NodeUnpublishVolumeResponse, error) {
	target, err := s.target(q.GetTargetPath())
	if err = cmp.Or(csi.CheckVolumeID("volume_id", q.GetVolumeId()), err); err == nil {
		err = s.Publisher.Unpublish(ctx, q.GetVolumeId(), target)
	}
	return answered(unpublish, &pb.NodeUnpublishVolumeResponse{}, err)
}

func (s *server) NodeGetVolumeStats(
	ctx context.Context, q *pb.NodeGetVolumeStatsRequest,
) (*pb.NodeGetVolumeStatsResponse, error) {
	var stats volume.Stats
	err := cmp.Or(csi.CheckVolumeID("volume_id", q.GetVolumeId()), volumePath(q.GetVolumePath()))
	if err == nil {
		stats, err = s.Publisher.Stats(ctx, q.GetVolumeId(), path.Clean(q.GetVolumePath()))
	}
	response := &pb.NodeGetVolumeStatsResponse{Usage: []*pb.VolumeUsage{{
		Unit: pb.VolumeUsage_BYTES, Total: stats.Bytes, Used: stats.BytesUsed, Available: stats.BytesAvailable,
	}}}
	if stats.Inodes > 0 { // some filesystems do not count them
		response.Usage = append(response.Usage, &pb.VolumeUsage{
			Unit: pb.VolumeUsage_INODES, Total: stats.Inodes, Used: stats.InodesUsed, Available: stats.InodesAvailable,
		})
	}
	return answered(read, response, err)
}

// NodeExpandVolume grows a volume, mounted or not, while pods write to it.
func (s *server) NodeExpandVolume(
	ctx context.Context, q *pb.NodeExpandVolumeRequest,
) (*pb.NodeExpandVolumeResponse, error) {
	bytes, limit, err := growth(q.GetCapacityRange())
	var v volume.Volume
	if err = cmp.Or(csi.CheckVolumeID("volume_id", q.GetVolumeId()), volumePath(q.GetVolumePath()), err); err == nil {
		v, err = s.Publisher.Expand(ctx, q.GetVolumeId(), bytes, limit, nil)
	}
	return answered(expand, &pb.NodeExpandVolumeResponse{CapacityBytes: v.Bytes}, err)
}

func volumePath(name string) error {
	if name == "" {
		return invalid("volume_path", "missing")
	}
	if !path.IsAbs(name) {
		return fmt.Errorf("%w: nothing can be published at the relative volume_path %.128q", store.ErrNotFound, name)
	}
	return nil
}

// growth reads the capacity range of an expansion; without one it is a byte, which leaves the volume as it is.
func growth(r *pb.CapacityRange) (bytes, limit int64, err error) {
	if r == nil || r.GetRequiredBytes() == 0 && r.GetLimitBytes() > 0 {
		return 1, r.GetLimitBytes(), nil
	}
	return sizes(r)
}

// NodeGetVolumeHealth is alpha in CSI 1.13; the kubelet asks with the feature gate CSIVolumeHealth.
func (s *server) NodeGetVolumeHealth(
	ctx context.Context, q *pb.NodeGetVolumeHealthRequest,
) (*pb.NodeGetVolumeHealthResponse, error) {
	var health volume.Health
	err := csi.CheckVolumeID("volume_id", q.GetVolumeId())
	if err == nil {
		_, health, err = s.Volumes.Get(ctx, q.GetVolumeId())
	}
	switch {
	case errors.Is(err, volume.ErrLost):
		health, err = volume.Health{Condition: volume.DataLoss, Reason: "DataLost", Message: err.Error()}, nil
	case errors.Is(err, pool.ErrAbsent):
		health, err = volume.Health{Condition: volume.Inaccessible, Reason: "PoolAbsent", Message: err.Error()}, nil
	case errors.Is(err, store.ErrBroken):
		health, err = volume.Health{Condition: volume.Inaccessible, Reason: "RecordUnusable", Message: err.Error()}, nil
	}
	response := &pb.NodeGetVolumeHealthResponse{VolumeHealth: &pb.VolumeHealth{VolumeId: q.GetVolumeId()}}
	if kind, unwell := map[volume.Condition]pb.VolumeHealthErrorType{
		volume.Degraded:     pb.VolumeHealthErrorType_DEGRADED,
		volume.Inaccessible: pb.VolumeHealthErrorType_INACCESSIBLE,
		volume.DataLoss:     pb.VolumeHealthErrorType_DATA_LOSS,
	}[health.Condition]; unwell {
		response.VolumeHealth.HealthStatuses = []*pb.VolumeHealth_VolumeHealthEntry{
			{Status: kind, Reason: health.Reason, Message: health.Message},
		}
	}
	return answered(read, response, err)
}

// NodeGetStorageHealth reports pools in trouble. The spec allows one entry per status and reason, which they share.
func (s *server) NodeGetStorageHealth(
	context.Context, *pb.NodeGetStorageHealthRequest,
) (*pb.NodeGetStorageHealthResponse, error) {
	response := &pb.NodeGetStorageHealthResponse{}
	type entry = pb.NodeGetStorageHealthResponse_StorageBackendHealth
	for _, p := range s.Pools.Status() {
		if !p.Selected && !p.Used { // no business of this node
			continue
		}
		health := poolHealth(p)
		kind, unwell := map[volume.Condition]pb.StorageHealthErrorType{
			volume.Degraded:     pb.StorageHealthErrorType_STORAGE_DEGRADED,
			volume.Inaccessible: pb.StorageHealthErrorType_STORAGE_UNREACHABLE,
		}[health.Condition]
		if !unwell {
			continue
		}
		sentence := "pool " + p.Name + ": " + health.Message
		same := func(e *entry) bool { return e.GetStatus() == kind && e.GetReason() == health.Reason }
		if i := slices.IndexFunc(response.GetBackendHealth(), same); i >= 0 {
			response.BackendHealth[i].Message += "; " + sentence
			continue
		}
		response.BackendHealth = append(response.BackendHealth,
			&entry{Status: kind, Reason: health.Reason, Message: sentence})
	}
	return response, nil
}

func poolHealth(s nodeapi.PoolStatus) volume.Health {
	switch {
	case !s.Served():
		return volume.Health{Condition: volume.Inaccessible, Reason: s.Reason, Message: s.Message}
	case s.Lost > 0 || s.Refused > 0:
		return volume.Health{
			Condition: volume.Degraded, Reason: "VolumesUnusable",
			Message: fmt.Sprintf("%d volumes have lost their data, %d have a record or directory that cannot be used "+
				"or a limit that cannot be removed; the driver's log names them", s.Lost, s.Refused),
		}
	case s.Reason != "" && s.Reason != nodeapi.ReasonNotConfigured:
		return volume.Health{Condition: volume.Degraded, Reason: s.Reason, Message: s.Message}
	default:
		return volume.Health{Condition: volume.Healthy, Reason: "Healthy"}
	}
}
