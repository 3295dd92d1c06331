package csi_test

import (
	"testing"

	pb "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/names"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/controller/internal/csi/csitest"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/poolspec"
)

// TestManyNodesInAPoolForOne: as soon as a second node is selected, nothing is made for many nodes. What was made
// before stays, and is not refused where a node cannot look.
func TestManyNodesInAPoolForOne(t *testing.T) {
	a, b := csitest.NewNode("a", csitest.GiB), csitest.NewNode("b", csitest.GiB)
	a.Show(nodeapi.PoolStatus{
		Name: "local", ID: "local", Growable: csitest.GiB,
		Allocatable: csitest.GiB,
	}) // on b it is absent
	selector := map[string]string{"disk": "nvme"}
	r := csitest.StartWith(t, []poolspec.Pool{{Name: "local", SharedAccess: true, NodeSelector: selector}}, a, b)
	create := func(uid, node string, mode pb.VolumeCapability_AccessMode_Mode) error {
		_, err := r.CreateVolume(t.Context(), &pb.CreateVolumeRequest{
			Name: "pvc-" + uid, CapacityRange: &pb.CapacityRange{RequiredBytes: 1},
			Parameters: map[string]string{names.StoragePoolParameter: "local"},
			VolumeCapabilities: []*pb.VolumeCapability{{
				AccessMode: &pb.VolumeCapability_AccessMode{Mode: mode},
				AccessType: &pb.VolumeCapability_Mount{Mount: &pb.VolumeCapability_MountVolume{}},
			}},
			AccessibilityRequirements: &pb.TopologyRequirement{Requisite: []*pb.Topology{csitest.Topology(node)}},
		})
		return err
	}
	const one = pb.VolumeCapability_AccessMode_SINGLE_NODE_WRITER
	const many = pb.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER
	const refused = "which has sharedAccess, and 2 nodes are selected: a, b"
	r.Set(func() { r.NVMe = []string{"a"} })
	csitest.WantCode(t, create("1", "a", many), codes.OK, "")
	r.Set(func() { r.NVMe = []string{"b", "a"} })
	csitest.WantCode(t, create("2", "a", many), codes.InvalidArgument, refused)
	csitest.WantCode(t, create("2", "a", one), codes.OK, "")
	csitest.WantCode(t, create("1", "a", many), codes.OK, "") // asked again
	a.Absent.Store("pool", true)
	b.Absent.Store("pool", true)
	csitest.WantCode(t, create("3", "a", many), codes.InvalidArgument, refused) // another pool of a is absent
	csitest.WantCode(t, create("3", "b", many), codes.Unavailable, "is absent")
	r.Set(func() { r.Syncing = true })
	csitest.WantCode(t, create("3", "a", many), codes.Unavailable, "waiting for the Kubernetes API")
}
