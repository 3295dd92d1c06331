package csi

import (
	"slices"

	pb "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/names"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
)

// CheckVolumeID is InvalidArgument for a field that has to be a volume's id and cannot be one.
func CheckVolumeID(field, id string) error {
	if id == "" {
		return status.Errorf(codes.InvalidArgument, "invalid request: %s: missing", field)
	}
	if err := nodeapi.ValidateID(id); err != nil {
		return status.Errorf(codes.InvalidArgument, "invalid request: %s: %v", field, err)
	}
	return nil
}

// Capacity is an answer to GetCapacity, in bytes, rounded down: it is published less often than a pod writes a file.
func Capacity(room, largest int64) *pb.GetCapacityResponse {
	return &pb.GetCapacityResponse{
		AvailableCapacity: steady(room), MaximumVolumeSize: wrapperspb.Int64(steady(largest)),
	}
}

// Most is the most that one of several pools has: what volumes there may grow by, and the largest new one, in bytes.
func Most(pools []string, capacity func(pool string) (growable, largest int64)) (growable, largest int64) {
	for _, pool := range pools {
		g, l := capacity(pool)
		growable, largest = max(growable, g), max(largest, l)
	}
	return growable, largest
}

// steady rounds a size down to 64 MiB and to a 64th of itself.
func steady(bytes int64) int64 {
	step := int64(64 << 20)
	for step <= bytes/128 {
		step *= 2
	}
	return bytes / step * step
}

// ForManyNodes reports whether a capability asks that several nodes can use the volume.
func ForManyNodes(c *pb.VolumeCapability) bool {
	switch c.GetAccessMode().GetMode() {
	case pb.VolumeCapability_AccessMode_MULTI_NODE_READER_ONLY, pb.VolumeCapability_AccessMode_MULTI_NODE_SINGLE_WRITER,
		pb.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER:
		return true
	default:
		return false
	}
}

// Attributes are what a PersistentVolume gets of a node's answer about a new volume: what was asked for, its pool, and
// how its size is enforced. A node says nothing else.
func Attributes(answered, asked map[string]string, pool string) map[string]string {
	attributes := map[string]string{}
	for key := range answered {
		value, ok := asked[key]
		switch {
		case key == names.StoragePoolParameter:
			attributes[key] = pool
		case key == nodeapi.KeyEnforcement && len(answered[key]) <= maxEnforcement:
			attributes[key] = answered[key]
		case ok && slices.Contains(nodeapi.Parameters(), key):
			attributes[key] = value
		}
	}
	return attributes
}

// maxEnforcement bounds a level of enforcement, in bytes: the longest is "cooperative".
const maxEnforcement = 11

// NotEnforced reports whether the attributes of a volume say that nothing keeps it to its size.
func NotEnforced(attributes map[string]string) bool {
	return attributes[nodeapi.KeyEnforcement] == nodeapi.NotEnforced
}
