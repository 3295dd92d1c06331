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

type controller struct {
	pb.UnimplementedControllerServer
	Config
}

func (c *controller) ControllerGetCapabilities(
	context.Context, *pb.ControllerGetCapabilitiesRequest,
) (*pb.ControllerGetCapabilitiesResponse, error) {
	response := &pb.ControllerGetCapabilitiesResponse{}
	for _, rpc := range []pb.ControllerServiceCapability_RPC_Type{
		pb.ControllerServiceCapability_RPC_CREATE_DELETE_VOLUME,
		pb.ControllerServiceCapability_RPC_LIST_VOLUMES,
		pb.ControllerServiceCapability_RPC_GET_CAPACITY,
		pb.ControllerServiceCapability_RPC_GET_VOLUME,
		pb.ControllerServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER,
	} {
		response.Capabilities = append(response.Capabilities, &pb.ControllerServiceCapability{
			Type: &pb.ControllerServiceCapability_Rpc{Rpc: &pb.ControllerServiceCapability_RPC{Type: rpc}},
		})
	}
	return response, nil
}

func (c *controller) CreateVolume(ctx context.Context, q *pb.CreateVolumeRequest) (*pb.CreateVolumeResponse, error) {
	var v volume.Volume
	spec, err := c.specOf(q)
	if err == nil {
		v, err = c.Volumes.Create(ctx, spec)
	}
	if err != nil {
		return nil, toStatus(create, err)
	}
	return &pb.CreateVolumeResponse{Volume: c.answer(v)}, nil
}

func (c *controller) DeleteVolume(ctx context.Context, q *pb.DeleteVolumeRequest) (*pb.DeleteVolumeResponse, error) {
	err := volumeID("volume_id", q.GetVolumeId())
	if err == nil {
		err = c.Volumes.Delete(ctx, q.GetVolumeId())
	}
	if err := toStatus(remove, err); err != nil {
		return nil, err
	}
	return &pb.DeleteVolumeResponse{}, nil
}

func (c *controller) ControllerGetVolume(
	ctx context.Context, q *pb.ControllerGetVolumeRequest,
) (*pb.ControllerGetVolumeResponse, error) {
	var v volume.Volume
	err := volumeID("volume_id", q.GetVolumeId())
	if err == nil {
		v, _, err = c.Volumes.Get(ctx, q.GetVolumeId())
	}
	if err != nil {
		return nil, toStatus(read, err)
	}
	return &pb.ControllerGetVolumeResponse{Volume: c.answer(v), Status: &pb.ControllerGetVolumeResponse_VolumeStatus{}},
		nil
}

func (c *controller) ListVolumes(ctx context.Context, q *pb.ListVolumesRequest) (*pb.ListVolumesResponse, error) {
	after, err := fromToken(q.GetStartingToken())
	if err == nil && q.GetMaxEntries() < 0 {
		err = invalid("max_entries", "%d: must not be negative", q.GetMaxEntries())
	}
	if err != nil {
		return nil, toStatus(read, err)
	}
	volumes, next, err := c.Volumes.List(ctx, after, int(q.GetMaxEntries()))
	if err != nil {
		return nil, toStatus(read, err)
	}
	response := &pb.ListVolumesResponse{NextToken: toToken(next)}
	for _, v := range volumes {
		response.Entries = append(response.Entries, &pb.ListVolumesResponse_Entry{Volume: c.answer(v)})
	}
	return response, nil
}

func (c *controller) ValidateVolumeCapabilities(
	ctx context.Context, q *pb.ValidateVolumeCapabilitiesRequest,
) (*pb.ValidateVolumeCapabilitiesResponse, error) {
	err := volumeID("volume_id", q.GetVolumeId())
	if err == nil && len(q.GetVolumeCapabilities()) == 0 {
		err = invalid("volume_capabilities", "missing: want at least one")
	}
	if err == nil {
		_, _, err = c.Volumes.Get(ctx, q.GetVolumeId())
	}
	if err != nil {
		return nil, toStatus(read, err)
	}
	if err := capabilities("volume_capabilities", q.GetVolumeCapabilities()); err != nil {
		return &pb.ValidateVolumeCapabilitiesResponse{Message: err.Error()}, nil //nolint:nilerr // the refusal is the answer
	}
	return &pb.ValidateVolumeCapabilitiesResponse{Confirmed: &pb.ValidateVolumeCapabilitiesResponse_Confirmed{
		VolumeContext: q.GetVolumeContext(), VolumeCapabilities: q.GetVolumeCapabilities(), Parameters: q.GetParameters(),
	}}, nil
}

// capacityStep is what published capacity is rounded down to, in bytes: every other value would be one more write of a
// CSIStorageCapacity object whenever a pod writes a file.
const capacityStep = 64 << 20

// GetCapacity answers what volumes may grow by, and apart from that the largest new one: the scheduler goes by the
// latter wherever it is published, and csi-provisioner publishes a 0 as well. It reads only storagePool of a class's
// parameters and never fails: an error would leave an old figure standing in the cluster.
func (c *controller) GetCapacity(_ context.Context, q *pb.GetCapacityRequest) (*pb.GetCapacityResponse, error) {
	nothing := &pb.GetCapacityResponse{MaximumVolumeSize: wrapperspb.Int64(0)}
	if t := q.GetAccessibleTopology(); t != nil && !c.here(t) {
		return nothing, nil
	}
	name, err := c.Pools.Resolve(q.GetParameters()[keyPool])
	if err != nil {
		return nothing, nil //nolint:nilerr // an error would leave an old figure standing in the cluster
	}
	room, largest := c.Pools.Capacity(name)
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

// answer is a volume as the cluster sees it.
func (c *controller) answer(v volume.Volume) *pb.Volume {
	attributes := maps.Clone(v.Parameters)
	if attributes == nil {
		attributes = map[string]string{}
	}
	attributes[keyPool] = v.Pool
	attributes[keyEnforcement] = string(v.Enforcement)
	return &pb.Volume{
		VolumeId: v.ID, CapacityBytes: v.Bytes, VolumeContext: attributes, AccessibleTopology: []*pb.Topology{c.topology()},
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
