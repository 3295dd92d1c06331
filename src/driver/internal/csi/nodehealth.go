package csi

import (
	"context"
	"errors"

	pb "github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/volume"
)

// NodeGetVolumeHealth is alpha in CSI 1.13; the kubelet asks with the feature gate CSIVolumeHealth.
func (n *node) NodeGetVolumeHealth(ctx context.Context, q *pb.NodeGetVolumeHealthRequest) (*pb.NodeGetVolumeHealthResponse, error) {
	if err := volumeID("volume_id", q.GetVolumeId()); err != nil {
		return nil, toStatus(read, err)
	}
	_, health, err := n.Volumes.Get(ctx, q.GetVolumeId())
	if err != nil {
		var ok bool
		if health, ok = healthOf(err); !ok {
			return nil, toStatus(read, err)
		}
	}
	response := &pb.NodeGetVolumeHealthResponse{VolumeHealth: &pb.VolumeHealth{VolumeId: q.GetVolumeId()}}
	if kind := errorType(health.Condition); kind != pb.VolumeHealthErrorType_UNKNOWN_VOLUME_HEALTH_TYPE {
		response.VolumeHealth.HealthStatuses = []*pb.VolumeHealth_VolumeHealthEntry{
			{Status: kind, Reason: health.Reason, Message: health.Message},
		}
	}
	return response, nil
}

// healthOf is the health that an error tells of; ok is false where it tells of none.
func healthOf(err error) (health volume.Health, ok bool) {
	switch {
	case errors.Is(err, volume.ErrLost):
		return volume.Health{Condition: volume.DataLoss, Reason: "DataLost", Message: err.Error()}, true
	case errors.Is(err, volume.ErrPoolAbsent):
		return volume.Health{Condition: volume.Inaccessible, Reason: "PoolAbsent", Message: err.Error()}, true
	case errors.Is(err, volume.ErrBroken):
		return volume.Health{Condition: volume.Inaccessible, Reason: "RecordUnusable", Message: err.Error()}, true
	}
	return volume.Health{}, false
}

// errorType is the spec's word for a condition; healthy has none there.
func errorType(c volume.Condition) pb.VolumeHealthErrorType {
	switch c {
	case volume.Degraded:
		return pb.VolumeHealthErrorType_DEGRADED
	case volume.Inaccessible:
		return pb.VolumeHealthErrorType_INACCESSIBLE
	case volume.DataLoss:
		return pb.VolumeHealthErrorType_DATA_LOSS
	default:
		return pb.VolumeHealthErrorType_UNKNOWN_VOLUME_HEALTH_TYPE
	}
}

// NodeGetStorageHealth reports the pools that are not as they should be. The spec allows one entry per status and
// reason, so pools with the same trouble share one.
func (n *node) NodeGetStorageHealth(context.Context, *pb.NodeGetStorageHealthRequest) (*pb.NodeGetStorageHealthResponse, error) {
	response := &pb.NodeGetStorageHealthResponse{}
	type trouble struct {
		status pb.StorageHealthErrorType
		reason string
	}
	entries := map[trouble]*pb.NodeGetStorageHealthResponse_StorageBackendHealth{}
	for _, p := range n.Pools.Health() {
		t := trouble{storageErrorType(p.Condition), p.Reason}
		if t.status == pb.StorageHealthErrorType_UNKNOWN_STORAGE_HEALTH_ERROR_TYPE {
			continue
		}
		sentence := "pool " + p.Pool + ": " + p.Message
		if entry, ok := entries[t]; ok {
			entry.Message += "; " + sentence
			continue
		}
		entries[t] = &pb.NodeGetStorageHealthResponse_StorageBackendHealth{Status: t.status, Reason: t.reason, Message: sentence}
		response.BackendHealth = append(response.BackendHealth, entries[t])
	}
	return response, nil
}

// storageErrorType is the spec's word for a pool's condition; healthy has none there.
func storageErrorType(c volume.Condition) pb.StorageHealthErrorType {
	switch c {
	case volume.Degraded:
		return pb.StorageHealthErrorType_STORAGE_DEGRADED
	case volume.Inaccessible, volume.DataLoss:
		return pb.StorageHealthErrorType_STORAGE_UNREACHABLE
	default:
		return pb.StorageHealthErrorType_UNKNOWN_STORAGE_HEALTH_ERROR_TYPE
	}
}
