package csi_test

import (
	"strings"
	"testing"

	pb "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/store"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/volume"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/poolspec"
)

// TestManyNodes: access modes for many nodes are for pools that allow them, for new volumes and for those that are
// there.
func TestManyNodes(t *testing.T) {
	for name, test := range map[string]struct {
		local poolspec.Pool
		code  codes.Code
	}{
		"scope node":   {poolspec.Pool{Scope: poolspec.ScopeNode}, codes.InvalidArgument},
		"sharedAccess": {poolspec.Pool{Scope: poolspec.ScopeNode, SharedAccess: true}, codes.OK},
		"scope shared": {poolspec.Pool{Scope: poolspec.ScopeShared}, codes.OK},
	} {
		t.Run(name, func(t *testing.T) {
			made := volume.Volume{Record: store.Record{ID: "v", Pool: "local"}}
			c := serve(t, &fake{
				resolve: onePool, spec: configured(test.local),
				create: func(volume.Spec) (volume.Volume, error) { return made, nil },
				get:    func(string) (volume.Volume, volume.Health, error) { return made, volume.Health{}, nil },
			})
			for _, mode := range []pb.VolumeCapability_AccessMode_Mode{
				pb.VolumeCapability_AccessMode_MULTI_NODE_READER_ONLY,
				pb.VolumeCapability_AccessMode_MULTI_NODE_SINGLE_WRITER,
				pb.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER,
			} {
				asked := append(writer(), mountCapability(mode))
				_, err := c.CreateVolume(t.Context(), &pb.CreateVolumeRequest{Name: "v", VolumeCapabilities: asked})
				if status.Code(err) != test.code {
					t.Errorf("create with %s: %v, want %s", mode, err, test.code)
				}
				got, err := c.ValidateVolumeCapabilities(t.Context(), &pb.ValidateVolumeCapabilitiesRequest{
					VolumeId: "v", VolumeCapabilities: asked,
				})
				allowed, where := test.code == codes.OK, "volume_capabilities[1].access_mode: "
				if err != nil || (got.GetConfirmed() != nil) != allowed ||
					strings.Contains(got.GetMessage(), where+mode.String()) == allowed {
					t.Errorf("validate %s: %v, %v", mode, got, err)
				}
			}
		})
	}
}
