// Package csi is what the CSI services of a node and of the controller answer alike.
package csi

import (
	"context"
	"fmt"

	pb "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// Identity is the identity service of a driver.
type Identity struct {
	pb.UnimplementedIdentityServer
	Name, Version string
	// Ready reports whether calls are to be made already.
	Ready func() bool
}

// GetPluginInfo implements csi.IdentityServer.
func (i Identity) GetPluginInfo(context.Context, *pb.GetPluginInfoRequest) (*pb.GetPluginInfoResponse, error) {
	return &pb.GetPluginInfoResponse{Name: i.Name, VendorVersion: i.Version}, nil
}

// GetPluginCapabilities implements csi.IdentityServer.
func (i Identity) GetPluginCapabilities(
	context.Context, *pb.GetPluginCapabilitiesRequest,
) (*pb.GetPluginCapabilitiesResponse, error) {
	service := func(t pb.PluginCapability_Service_Type) *pb.PluginCapability {
		return &pb.PluginCapability{Type: &pb.PluginCapability_Service_{Service: &pb.PluginCapability_Service{Type: t}}}
	}
	online := &pb.PluginCapability_VolumeExpansion{Type: pb.PluginCapability_VolumeExpansion_ONLINE}
	return &pb.GetPluginCapabilitiesResponse{Capabilities: []*pb.PluginCapability{
		service(pb.PluginCapability_Service_CONTROLLER_SERVICE),
		service(pb.PluginCapability_Service_VOLUME_ACCESSIBILITY_CONSTRAINTS),
		{Type: &pb.PluginCapability_VolumeExpansion_{VolumeExpansion: online}},
	}}, nil
}

// Probe implements csi.IdentityServer.
func (i Identity) Probe(context.Context, *pb.ProbeRequest) (*pb.ProbeResponse, error) {
	return &pb.ProbeResponse{Ready: wrapperspb.Bool(i.Ready())}, nil
}

// Alive is nil where a CSI driver answers, ready or not: restarting one that only waits would not help it.
func Alive(ctx context.Context, conn grpc.ClientConnInterface) error {
	if _, err := pb.NewIdentityClient(conn).Probe(ctx, &pb.ProbeRequest{}); err != nil {
		return fmt.Errorf("probe the driver on its socket: %w", err)
	}
	return nil
}

// ControllerCapabilities is the answer of a controller service that can do these.
func ControllerCapabilities(can ...pb.ControllerServiceCapability_RPC_Type) *pb.ControllerGetCapabilitiesResponse {
	answer := &pb.ControllerGetCapabilitiesResponse{}
	for _, t := range can {
		rpc := &pb.ControllerServiceCapability_Rpc{Rpc: &pb.ControllerServiceCapability_RPC{Type: t}}
		answer.Capabilities = append(answer.Capabilities, &pb.ControllerServiceCapability{Type: rpc})
	}
	return answer
}
