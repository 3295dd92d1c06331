package csi_test

import (
	"fmt"
	"slices"
	"testing"

	pb "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/pool"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/store"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/volume"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/poolspec"
)

// twoPools resolves nvme* to two pools, and refuses anything else.
func twoPools(named string) ([]string, error) {
	if named != "nvme*" {
		return nil, fmt.Errorf("%w: %q", pool.ErrSeveral, named)
	}
	return []string{"nvme0", "nvme1"}, nil
}

func ofClass(named string) map[string]string { return map[string]string{"storagePool": named} }

func TestCreateInOneOfSeveralPools(t *testing.T) {
	var asked volume.Spec
	c := serve(t, &fake{several: twoPools, create: func(s volume.Spec) (volume.Volume, error) {
		asked = s
		return volume.Volume{Record: store.Record{ID: s.ID, Pool: "nvme1", Parameters: s.Parameters}}, nil
	}})
	got, err := c.CreateVolume(t.Context(), &pb.CreateVolumeRequest{
		Name: "pvc-1", VolumeCapabilities: writer(), Parameters: ofClass("nvme*"),
	})
	if err != nil {
		t.Fatal(err)
	}
	if asked.Pool != "" || !slices.Equal(asked.Among, []string{"nvme0", "nvme1"}) {
		t.Errorf("asked for is %+v", asked)
	}
	if in := got.GetVolume().GetVolumeContext()["storagePool"]; in != "nvme1" {
		t.Errorf("the PersistentVolume is to name pool %q", in)
	}
	_, err = c.CreateVolume(t.Context(), &pb.CreateVolumeRequest{
		Name: "pvc-1", VolumeCapabilities: writer(), Parameters: ofClass("ssd*"),
	})
	refused(t, err, codes.InvalidArgument, "parameters.storagePool", "no class can name these pools", "ssd*")
}

// TestManyNodesInSeveralPools are refused unless each pool allows them.
func TestManyNodesInSeveralPools(t *testing.T) {
	c := serve(t, &fake{several: twoPools, spec: func(name string) poolspec.Pool {
		return poolspec.Pool{Name: name, SharedAccess: name == "nvme0"}
	}})
	many := []*pb.VolumeCapability{mountCapability(pb.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER)}
	_, err := c.CreateVolume(t.Context(), &pb.CreateVolumeRequest{
		Name: "pvc-1", VolumeCapabilities: many, Parameters: ofClass("nvme*"),
	})
	refused(t, err, codes.InvalidArgument, "volume_capabilities[0].access_mode", "pool nvme1")
}

func TestInlineVolumesAreInOnePool(t *testing.T) {
	c := serve(t, &fake{}) // nothing is resolved or published
	_, err := c.NodePublishVolume(t.Context(), &pb.NodePublishVolumeRequest{
		VolumeId: "csi-0a", TargetPath: target, VolumeCapability: writer()[0],
		VolumeContext: inlineContext(ofClass("nvme*")),
	})
	refused(t, err, codes.InvalidArgument, "volume_context.storagePool", `"nvme*"`, "one pool")
}

// TestGetCapacityOfSeveralPools is the most that one has, never the sum.
func TestGetCapacityOfSeveralPools(t *testing.T) {
	c := serve(t, &fake{several: twoPools, capacity: func(pool string) (int64, int64) {
		if pool == "nvme0" {
			return 5 << 30, 4 << 30
		}
		return 7 << 30, 2 << 30
	}})
	for named, want := range map[string][2]int64{"nvme*": {7 << 30, 4 << 30}, "ssd*": {}} {
		got, err := c.GetCapacity(t.Context(), &pb.GetCapacityRequest{Parameters: ofClass(named)})
		if err != nil || got.GetAvailableCapacity() != want[0] || got.GetMaximumVolumeSize().GetValue() != want[1] {
			t.Errorf("of %s: %v, %v", named, got, err)
		}
	}
}
