package csi

import (
	"context"
	"encoding/base64"
	"fmt"
	"maps"
	"strings"

	pb "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/records"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/volume"
)

func (s *server) ControllerGetCapabilities(
	context.Context, *pb.ControllerGetCapabilitiesRequest,
) (*pb.ControllerGetCapabilitiesResponse, error) {
	can := func(t pb.ControllerServiceCapability_RPC_Type) *pb.ControllerServiceCapability {
		rpc := &pb.ControllerServiceCapability_RPC{Type: t}
		return &pb.ControllerServiceCapability{Type: &pb.ControllerServiceCapability_Rpc{Rpc: rpc}}
	}
	return &pb.ControllerGetCapabilitiesResponse{Capabilities: []*pb.ControllerServiceCapability{
		can(pb.ControllerServiceCapability_RPC_CREATE_DELETE_VOLUME),
		can(pb.ControllerServiceCapability_RPC_LIST_VOLUMES),
		can(pb.ControllerServiceCapability_RPC_GET_CAPACITY),
		can(pb.ControllerServiceCapability_RPC_GET_VOLUME),
		can(pb.ControllerServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER),
	}}, nil
}

func (s *server) CreateVolume(ctx context.Context, q *pb.CreateVolumeRequest) (*pb.CreateVolumeResponse, error) {
	var v volume.Volume
	spec, err := s.specOf(q)
	if err == nil {
		v, err = s.Volumes.Create(ctx, spec)
	}
	return answered(create, &pb.CreateVolumeResponse{Volume: s.answer(v)}, err)
}

func (s *server) DeleteVolume(ctx context.Context, q *pb.DeleteVolumeRequest) (*pb.DeleteVolumeResponse, error) {
	err := volumeID("volume_id", q.GetVolumeId())
	if err == nil {
		err = s.Volumes.Delete(ctx, q.GetVolumeId())
	}
	return answered(remove, &pb.DeleteVolumeResponse{}, err)
}

func (s *server) ControllerGetVolume(
	ctx context.Context, q *pb.ControllerGetVolumeRequest,
) (*pb.ControllerGetVolumeResponse, error) {
	var v volume.Volume
	err := volumeID("volume_id", q.GetVolumeId())
	if err == nil {
		v, _, err = s.Volumes.Get(ctx, q.GetVolumeId())
	}
	return answered(read, &pb.ControllerGetVolumeResponse{
		Volume: s.answer(v), Status: &pb.ControllerGetVolumeResponse_VolumeStatus{},
	}, err)
}

func (s *server) ListVolumes(ctx context.Context, q *pb.ListVolumesRequest) (*pb.ListVolumesResponse, error) {
	var volumes []volume.Volume
	after, err := fromToken(q.GetStartingToken())
	if err == nil && q.GetMaxEntries() < 0 {
		err = invalid("max_entries", "%d: must not be negative", q.GetMaxEntries())
	}
	if err == nil {
		volumes, after, err = s.Volumes.List(ctx, after, int(q.GetMaxEntries()))
	}
	response := &pb.ListVolumesResponse{NextToken: toToken(after)}
	for _, v := range volumes {
		response.Entries = append(response.Entries, &pb.ListVolumesResponse_Entry{Volume: s.answer(v)})
	}
	return answered(read, response, err)
}

func (s *server) ValidateVolumeCapabilities(
	ctx context.Context, q *pb.ValidateVolumeCapabilitiesRequest,
) (*pb.ValidateVolumeCapabilitiesResponse, error) {
	err := volumeID("volume_id", q.GetVolumeId())
	if err == nil && len(q.GetVolumeCapabilities()) == 0 {
		err = invalid("volume_capabilities", "missing: want at least one")
	}
	if err == nil {
		_, _, err = s.Volumes.Get(ctx, q.GetVolumeId())
	}
	response := &pb.ValidateVolumeCapabilitiesResponse{}
	if refusal := capabilities("volume_capabilities", q.GetVolumeCapabilities()); refusal != nil {
		response.Message = refusal.Error()
	} else {
		response.Confirmed = &pb.ValidateVolumeCapabilitiesResponse_Confirmed{
			VolumeContext: q.GetVolumeContext(), VolumeCapabilities: q.GetVolumeCapabilities(), Parameters: q.GetParameters(),
		}
	}
	return answered(read, response, err)
}

// capacityStep is what published capacity is rounded down to, in bytes: every other value would be one more write of a
// CSIStorageCapacity object whenever a pod writes a file.
const capacityStep = 64 << 20

// GetCapacity answers what volumes may grow by, and apart from that the largest new one: the scheduler goes by the
// latter wherever it is published, and csi-provisioner publishes a 0 as well. It reads only storagePool of a class's
// parameters and never fails: an error would leave an old figure standing in the cluster.
func (s *server) GetCapacity(_ context.Context, q *pb.GetCapacityRequest) (*pb.GetCapacityResponse, error) {
	name, err := s.Pools.Resolve(q.GetParameters()[keyPool])
	if t := q.GetAccessibleTopology(); err != nil || t != nil && !s.here(t) {
		return &pb.GetCapacityResponse{MaximumVolumeSize: wrapperspb.Int64(0)}, nil //nolint:nilerr // see above
	}
	room, largest := s.Pools.Capacity(name)
	if len(q.GetVolumeCapabilities()) > 0 {
		// A question about one volume, not for publishing: before csi-provisioner takes a claim that binds immediately, it
		// compares this alone with the size (checkCapacity). Room for growth would let a node take claims that it refuses.
		room = largest
	}
	return &pb.GetCapacityResponse{
		AvailableCapacity: room / capacityStep * capacityStep,
		MaximumVolumeSize: wrapperspb.Int64(largest / capacityStep * capacityStep),
	}, nil
}

func (s *server) answer(v volume.Volume) *pb.Volume {
	attributes := map[string]string{}
	maps.Copy(attributes, v.Parameters)
	attributes[keyPool] = v.Pool
	attributes[keyEnforcement] = string(v.Enforcement)
	return &pb.Volume{
		VolumeId: v.ID, CapacityBytes: v.Bytes, VolumeContext: attributes, AccessibleTopology: []*pb.Topology{s.topology()},
	}
}

// tokenPrefix marks the page tokens of this format: the last id of the page before, in base64.
const tokenPrefix = "after."

func toToken(id string) string {
	if id == "" {
		return ""
	}
	return tokenPrefix + base64.RawURLEncoding.EncodeToString([]byte(id))
}

func fromToken(token string) (string, error) {
	if token == "" {
		return "", nil
	}
	encoded, ok := strings.CutPrefix(token, tokenPrefix)
	id, err := base64.RawURLEncoding.DecodeString(encoded)
	if !ok || err != nil || records.ValidateID(string(id)) != nil {
		return "", fmt.Errorf("%w: %.64q; begin again without one", errBadToken, token)
	}
	return string(id), nil
}
