package csi

import (
	"context"
	"errors"
	"slices"

	pb "github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/pool"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/records"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/volume"
)

// NodeGetVolumeHealth is alpha in CSI 1.13; the kubelet asks with the feature gate CSIVolumeHealth.
func (n *node) NodeGetVolumeHealth(
	ctx context.Context, q *pb.NodeGetVolumeHealthRequest,
) (*pb.NodeGetVolumeHealthResponse, error) {
	health, err := volume.Health{}, volumeID("volume_id", q.GetVolumeId())
	if err == nil {
		if _, health, err = n.Volumes.Get(ctx, q.GetVolumeId()); err != nil {
			health, err = healthOf(err)
		}
	}
	if err != nil {
		return nil, toStatus(read, err)
	}
	response := &pb.NodeGetVolumeHealthResponse{VolumeHealth: &pb.VolumeHealth{VolumeId: q.GetVolumeId()}}
	if kind, _ := errorType(health.Condition); kind != pb.VolumeHealthErrorType_UNKNOWN_VOLUME_HEALTH_TYPE {
		response.VolumeHealth.HealthStatuses = []*pb.VolumeHealth_VolumeHealthEntry{
			{Status: kind, Reason: health.Reason, Message: health.Message},
		}
	}
	return response, nil
}

// healthOf is the health that an error speaks of, or the error where it speaks of none.
func healthOf(err error) (volume.Health, error) {
	switch {
	case errors.Is(err, volume.ErrLost):
		return volume.Health{Condition: volume.DataLoss, Reason: "DataLost", Message: err.Error()}, nil
	case errors.Is(err, pool.ErrAbsent):
		return volume.Health{Condition: volume.Inaccessible, Reason: "PoolAbsent", Message: err.Error()}, nil
	case errors.Is(err, records.ErrBroken):
		return volume.Health{Condition: volume.Inaccessible, Reason: "RecordUnusable", Message: err.Error()}, nil
	}
	return volume.Health{}, err
}

// errorType is the spec's word for the condition of a volume, and for that of a pool; healthy has none there.
func errorType(c volume.Condition) (pb.VolumeHealthErrorType, pb.StorageHealthErrorType) {
	switch c {
	case volume.Degraded:
		return pb.VolumeHealthErrorType_DEGRADED, pb.StorageHealthErrorType_STORAGE_DEGRADED
	case volume.Inaccessible:
		return pb.VolumeHealthErrorType_INACCESSIBLE, pb.StorageHealthErrorType_STORAGE_UNREACHABLE
	case volume.DataLoss:
		return pb.VolumeHealthErrorType_DATA_LOSS, pb.StorageHealthErrorType_STORAGE_UNREACHABLE
	default:
		return pb.VolumeHealthErrorType_UNKNOWN_VOLUME_HEALTH_TYPE,
			pb.StorageHealthErrorType_UNKNOWN_STORAGE_HEALTH_ERROR_TYPE
	}
}

// NodeGetStorageHealth reports the pools that are not as they should be. The spec allows one entry per status and
// reason, so pools with the same trouble share one.
func (n *node) NodeGetStorageHealth(
	context.Context, *pb.NodeGetStorageHealthRequest,
) (*pb.NodeGetStorageHealthResponse, error) {
	response := &pb.NodeGetStorageHealthResponse{}
	type entry = pb.NodeGetStorageHealthResponse_StorageBackendHealth
	for _, p := range n.Pools.Health() {
		_, kind := errorType(p.Condition)
		if kind == pb.StorageHealthErrorType_UNKNOWN_STORAGE_HEALTH_ERROR_TYPE {
			continue
		}
		sentence := "pool " + p.Pool + ": " + p.Message
		same := func(e *entry) bool { return e.GetStatus() == kind && e.GetReason() == p.Reason }
		if i := slices.IndexFunc(response.GetBackendHealth(), same); i >= 0 {
			response.BackendHealth[i].Message += "; " + sentence
			continue
		}
		response.BackendHealth = append(response.BackendHealth, &entry{Status: kind, Reason: p.Reason, Message: sentence})
	}
	return response, nil
}
