package csi

import (
	"context"
	"errors"

	pb "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
)

// Growth allows volumes to grow.
type Growth interface {
	// Begin says that a new process will ask from now on, which may not have seen what others did meanwhile.
	Begin()
	// Expand gives the size that a volume may have, in bytes.
	Expand(ctx context.Context, id string, bytes, limit int64) (int64, error)
}

// Expander is the identity and controller services of the cluster's one controller, which csi-resizer asks before a
// PersistentVolume grows. Only its socket advertises the controller's EXPAND_VOLUME.
type Expander struct {
	identity *announcer
	expander *expander
}

// NewExpander returns the services; every argument is required.
func NewExpander(driverName, version string, growth Growth) (*Expander, error) {
	if driverName == "" || version == "" || growth == nil {
		return nil, errors.New("csi services of the controller: driver name, version or growth is missing")
	}
	own := &identity{name: driverName, version: version}
	return &Expander{identity: &announcer{identity: own, growth: growth}, expander: &expander{growth: growth}}, nil
}

// Register adds the services to a gRPC server.
func (e *Expander) Register(r grpc.ServiceRegistrar) {
	pb.RegisterIdentityServer(r, e.identity)
	pb.RegisterControllerServer(r, e.expander)
}

type expander struct {
	pb.UnimplementedControllerServer
	growth Growth
}

// announcer is an identity that says when somebody gets to know it.
type announcer struct {
	*identity
	growth Growth
}

// GetPluginInfo is asked by each process of csi-resizer once, when it starts: see growth.Judge. Capabilities it asks
// for before each growth as well.
func (a *announcer) GetPluginInfo(ctx context.Context, q *pb.GetPluginInfoRequest) (*pb.GetPluginInfoResponse, error) {
	a.growth.Begin()
	return a.identity.GetPluginInfo(ctx, q)
}

func (*expander) ControllerGetCapabilities(
	context.Context, *pb.ControllerGetCapabilitiesRequest,
) (*pb.ControllerGetCapabilitiesResponse, error) {
	grow := &pb.ControllerServiceCapability_RPC{Type: pb.ControllerServiceCapability_RPC_EXPAND_VOLUME}
	return &pb.ControllerGetCapabilitiesResponse{Capabilities: []*pb.ControllerServiceCapability{
		{Type: &pb.ControllerServiceCapability_Rpc{Rpc: grow}},
	}}, nil
}

// ControllerExpandVolume only says whether the volume may grow; its node does the growing.
func (e *expander) ControllerExpandVolume(
	ctx context.Context, q *pb.ControllerExpandVolumeRequest,
) (*pb.ControllerExpandVolumeResponse, error) {
	if err := volumeID("volume_id", q.GetVolumeId()); err != nil {
		return nil, toStatus(expand, err)
	}
	if q.GetCapacityRange() == nil {
		return nil, toStatus(expand, invalid("capacity_range", "missing: want the new size in required_bytes"))
	}
	bytes, limit, err := growth(q.GetCapacityRange())
	if err != nil {
		return nil, toStatus(expand, err)
	}
	size, err := e.growth.Expand(ctx, q.GetVolumeId(), bytes, limit)
	if err != nil {
		return nil, toStatus(expand, err)
	}
	return &pb.ControllerExpandVolumeResponse{CapacityBytes: size, NodeExpansionRequired: true}, nil
}
