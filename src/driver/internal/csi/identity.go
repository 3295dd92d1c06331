package csi

import (
	"context"

	pb "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

type identity struct {
	pb.UnimplementedIdentityServer
	name, version string
}

func (i *identity) GetPluginInfo(context.Context, *pb.GetPluginInfoRequest) (*pb.GetPluginInfoResponse, error) {
	return &pb.GetPluginInfoResponse{Name: i.name, VendorVersion: i.version}, nil
}

func (i *identity) GetPluginCapabilities(
	context.Context, *pb.GetPluginCapabilitiesRequest,
) (*pb.GetPluginCapabilitiesResponse, error) {
	response := &pb.GetPluginCapabilitiesResponse{}
	for _, service := range []pb.PluginCapability_Service_Type{
		pb.PluginCapability_Service_CONTROLLER_SERVICE,
		pb.PluginCapability_Service_VOLUME_ACCESSIBILITY_CONSTRAINTS,
	} {
		response.Capabilities = append(response.Capabilities, &pb.PluginCapability{
			Type: &pb.PluginCapability_Service_{Service: &pb.PluginCapability_Service{Type: service}},
		})
	}
	response.Capabilities = append(response.Capabilities, &pb.PluginCapability{
		Type: &pb.PluginCapability_VolumeExpansion_{VolumeExpansion: &pb.PluginCapability_VolumeExpansion{
			Type: pb.PluginCapability_VolumeExpansion_ONLINE,
		}},
	})
	return response, nil
}

// Probe answers that the driver serves. Pools that are absent do not count: restarting the driver would not help them.
func (i *identity) Probe(context.Context, *pb.ProbeRequest) (*pb.ProbeResponse, error) {
	return &pb.ProbeResponse{Ready: wrapperspb.Bool(true)}, nil
}
