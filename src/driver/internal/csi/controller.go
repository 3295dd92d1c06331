package csi

import (
	"cmp"
	"context"
	"encoding/base64"
	"fmt"
	"maps"
	"strings"

	pb "github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/names"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/volume"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/csi"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi/wire"
)

func (s *server) ControllerGetCapabilities(
	context.Context, *pb.ControllerGetCapabilitiesRequest,
) (*pb.ControllerGetCapabilitiesResponse, error) {
	return csi.ControllerCapabilities(
		pb.ControllerServiceCapability_RPC_CREATE_DELETE_VOLUME,
		pb.ControllerServiceCapability_RPC_CREATE_DELETE_SNAPSHOT,
		pb.ControllerServiceCapability_RPC_CLONE_VOLUME,
		pb.ControllerServiceCapability_RPC_LIST_SNAPSHOTS,
		pb.ControllerServiceCapability_RPC_LIST_VOLUMES,
		pb.ControllerServiceCapability_RPC_GET_CAPACITY,
		pb.ControllerServiceCapability_RPC_EXPAND_VOLUME,
		pb.ControllerServiceCapability_RPC_GET_VOLUME,
		pb.ControllerServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER,
	), nil
}

func (s *server) CreateVolume(ctx context.Context, q *pb.CreateVolumeRequest) (*pb.CreateVolumeResponse, error) {
	var v volume.Volume
	spec, err := s.specOf(q)
	if err == nil {
		if spec.Source != nil {
			from := wire.SourceOf(ctx, spec.Source.ID)
			spec.Remote, spec.Source.Move = from.Bytes, from.Move
		}
		v, err = s.Volumes.Create(ctx, spec)
	}
	return answered(create, &pb.CreateVolumeResponse{Volume: s.answer(v)}, err)
}

func (s *server) DeleteVolume(ctx context.Context, q *pb.DeleteVolumeRequest) (*pb.DeleteVolumeResponse, error) {
	err := csi.CheckVolumeID("volume_id", q.GetVolumeId())
	if err == nil {
		err = s.Volumes.Delete(ctx, q.GetVolumeId(), said(ctx, q.GetVolumeId()))
	}
	return answered(remove, &pb.DeleteVolumeResponse{}, err)
}

// said is what the caller says of a volume's PersistentVolume, nil where it does not say anything.
func said(ctx context.Context, id string) *volume.Said {
	if pv, named, known := wire.VolumeOf(ctx, id); known {
		return &volume.Said{PV: pv, Named: named}
	}
	return nil
}

// ControllerExpandVolume grows a volume at once, under running pods too: nothing is left for the kubelet to do.
func (s *server) ControllerExpandVolume(
	ctx context.Context, q *pb.ControllerExpandVolumeRequest,
) (*pb.ControllerExpandVolumeResponse, error) {
	var v volume.Volume
	bytes, limit, err := growth(q.GetCapacityRange())
	if q.GetCapacityRange() == nil {
		err = invalid("capacity_range", "missing: want the new size in required_bytes")
	}
	if err = cmp.Or(csi.CheckVolumeID("volume_id", q.GetVolumeId()), err); err == nil {
		v, err = s.Publisher.Expand(ctx, q.GetVolumeId(), bytes, limit, said(ctx, q.GetVolumeId()))
	}
	return answered(resize, &pb.ControllerExpandVolumeResponse{CapacityBytes: v.Bytes}, err)
}

func (s *server) ControllerGetVolume(
	ctx context.Context, q *pb.ControllerGetVolumeRequest,
) (*pb.ControllerGetVolumeResponse, error) {
	var v volume.Volume
	err := csi.CheckVolumeID("volume_id", q.GetVolumeId())
	if err == nil {
		v, _, err = s.Volumes.Get(ctx, q.GetVolumeId())
	}
	is := &pb.ControllerGetVolumeResponse_VolumeStatus{}
	if err == nil && s.Volumes.Published(v.ID) {
		is.PublishedNodeIds = []string{s.NodeName}
	}
	return answered(read, &pb.ControllerGetVolumeResponse{Volume: s.answer(v), Status: is}, err)
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
	var v volume.Volume
	err := csi.CheckVolumeID("volume_id", q.GetVolumeId())
	if err == nil && len(q.GetVolumeCapabilities()) == 0 {
		err = invalid("volume_capabilities", "missing: want at least one")
	}
	if err == nil {
		v, _, err = s.Volumes.Get(ctx, q.GetVolumeId())
	}
	response, asked := &pb.ValidateVolumeCapabilitiesResponse{}, q.GetVolumeCapabilities()
	refusal := cmp.Or(capabilities("volume_capabilities", asked), s.accessModes("volume_capabilities", asked, v.Pool))
	if refusal != nil {
		response.Message = refusal.Error()
	} else {
		response.Confirmed = &pb.ValidateVolumeCapabilitiesResponse_Confirmed{
			VolumeContext: q.GetVolumeContext(), VolumeCapabilities: asked, Parameters: q.GetParameters(),
		}
	}
	return answered(read, response, err)
}

// GetCapacity answers what volumes may grow by, and apart from that the largest new one: the scheduler goes by the
// latter wherever it is published, and csi-provisioner publishes a 0 as well. Of several pools it is the most that one
// has. It reads only storagePool of a class's parameters and never fails: an error would leave an old figure standing
// in the cluster.
func (s *server) GetCapacity(_ context.Context, q *pb.GetCapacityRequest) (*pb.GetCapacityResponse, error) {
	pools, err := s.Pools.Resolve(q.GetParameters()[names.StoragePoolParameter])
	if t := q.GetAccessibleTopology(); err != nil || t != nil && !s.here(t) {
		return csi.Capacity(0, 0), nil //nolint:nilerr // see above
	}
	return csi.Capacity(csi.Most(pools, s.Pools.Capacity)), nil
}

func (s *server) answer(v volume.Volume) *pb.Volume {
	attributes := map[string]string{}
	maps.Copy(attributes, v.Parameters)
	attributes[names.StoragePoolParameter] = v.Pool
	attributes[nodeapi.KeyEnforcement] = string(v.Enforcement)
	answer := &pb.Volume{
		VolumeId: v.ID, CapacityBytes: v.Bytes, VolumeContext: attributes, ContentSource: contentSource(v.Source),
	}
	if v.Node == "" { // one of a shared pool is everywhere
		answer.AccessibleTopology = []*pb.Topology{s.topology()}
	}
	return answer
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
	if !ok || err != nil || nodeapi.ValidateID(string(id)) != nil {
		return "", fmt.Errorf("%w: %.64q; begin again without one", errBadToken, token)
	}
	return string(id), nil
}
