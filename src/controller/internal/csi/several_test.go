package csi_test

import (
	"strings"
	"testing"
	"time"

	pb "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/names"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/controller/internal/csi/csitest"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/poolspec"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/waittest"
)

// disks are pools for one class: nvme*.
func disks() []poolspec.Pool {
	return []poolspec.Pool{{Name: "nvme0"}, {Name: "nvme1"}, {Name: "hdd"}}
}

// withDisks is a node with so much room in its pools, "" where one is absent.
func withDisks(name string, gib map[string]int64) *csitest.Node {
	n := csitest.NewNode(name, 0)
	var shown []nodeapi.PoolStatus
	for _, pool := range []string{"nvme0", "nvme1", "hdd"} {
		is := nodeapi.PoolStatus{Name: pool, State: "absent", Message: "nothing is mounted at /mnt/" + pool}
		if room, ok := gib[pool]; ok {
			room *= csitest.GiB
			is = nodeapi.PoolStatus{Name: pool, ID: pool, State: "present", Growable: room, Allocatable: room}
		}
		shown = append(shown, is)
	}
	n.Show(shown...)
	return n
}

func ofClass(named string) map[string]string {
	return map[string]string{names.StoragePoolParameter: named}
}

// TestSeveralPools: the node with the most room in one of them makes the volume, and says in which.
func TestSeveralPools(t *testing.T) {
	t.Parallel()
	a := withDisks("a", map[string]int64{"nvme0": 2, "nvme1": 2, "hdd": 9})
	b := withDisks("b", map[string]int64{"nvme1": 3})
	r := csitest.StartWith(t, disks(), a, b)
	taken := ""
	b.Lie = func(v *pb.Volume) {
		v.VolumeContext = map[string]string{names.StoragePoolParameter: taken, nodeapi.KeyEnforcement: "strict"}
	}
	create := func(id, named string, gib int64) (*pb.CreateVolumeResponse, error) {
		return r.CreateVolume(t.Context(), &pb.CreateVolumeRequest{
			Name: id, CapacityRange: &pb.CapacityRange{RequiredBytes: gib * csitest.GiB},
			Parameters: ofClass(named),
		})
	}
	taken = "nvme1"
	answer, err := create("pvc-1", "nvme*", 3)
	csitest.WantCode(t, err, codes.OK, "")
	if in := answer.GetVolume().GetVolumeContext()[names.StoragePoolParameter]; in != "nvme1" || a.Asked() != "" {
		t.Errorf("it is in pool %q", in)
	}
	taken = "hdd"
	_, err = create("pvc-1", "nvme*", 3)
	csitest.WantCode(t, err, codes.Internal, `answered about pool "hdd"`)
	_, err = create("pvc-2", "nvme0,nvme1", 4)
	csitest.WantCode(t, err, codes.ResourceExhausted,
		"no connected node has 4Gi in pool nvme0 or nvme1; the most is 3Gi")
	_, err = create("pvc-3", "ssd*", 1)
	csitest.WantCode(t, err, codes.InvalidArgument, `parameters.storagePool: "ssd*": no pool's name begins with "ssd"`)
}

// TestCapacityOfSeveralPools is the most that one has, never the sum.
func TestCapacityOfSeveralPools(t *testing.T) {
	t.Parallel()
	r := csitest.StartWith(t, disks(), withDisks("a", map[string]int64{"nvme0": 2, "nvme1": 3, "hdd": 9}),
		withDisks("b", map[string]int64{"nvme0": 1}))
	for _, test := range []struct {
		named, node string
		gib         int64
	}{{"nvme*", "a", 3}, {"nvme*", "b", 1}, {"nvme*", "", 3}, {"hdd,nvme0", "a", 9}, {"ssd*", "a", 0}} {
		q := &pb.GetCapacityRequest{Parameters: ofClass(test.named)}
		if test.node != "" {
			q.AccessibleTopology = csitest.Topology(test.node)
		}
		got, err := r.GetCapacity(t.Context(), q)
		if err != nil || got.GetMaximumVolumeSize().GetValue() != test.gib*csitest.GiB {
			t.Errorf("of %s on %q: %v, %v", test.named, test.node, got, err)
		}
	}
}

// TestManyNodesInSeveralPools are counted together.
func TestManyNodesInSeveralPools(t *testing.T) {
	t.Parallel()
	pools := []poolspec.Pool{
		{Name: "nvme0", SharedAccess: true, NodeSelector: map[string]string{"disk": "nvme"}},
		{Name: "nvme1", SharedAccess: true},
	}
	a := withDisks("a", map[string]int64{"nvme0": 2})
	r := csitest.StartWith(t, pools, a, withDisks("b", nil))
	r.Set(func() { r.NVMe = []string{"a"} })
	const many = pb.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER
	for named, want := range map[string]codes.Code{"nvme0": codes.OK, "nvme*": codes.InvalidArgument} {
		_, err := r.CreateVolume(t.Context(), &pb.CreateVolumeRequest{
			Name: "pvc-" + strings.Trim(named, "*"), Parameters: ofClass(named),
			VolumeCapabilities: []*pb.VolumeCapability{{
				AccessMode: &pb.VolumeCapability_AccessMode{Mode: many},
			}},
			AccessibilityRequirements: &pb.TopologyRequirement{Requisite: []*pb.Topology{csitest.Topology("a")}},
		})
		csitest.WantCode(t, err, want, "in pool nvme0 or nvme1, which has sharedAccess, and 2 nodes are selected: a, b")
	}
}

// TestWhyClaimsOfSeveralPoolsWait: a node with one of the disks has the pool.
func TestWhyClaimsOfSeveralPoolsWait(t *testing.T) {
	t.Parallel()
	r := csitest.StartWith(t, disks(), withDisks("a", map[string]int64{"nvme1": 2}), withDisks("b", nil))
	claim := func(name, named string, gib int64) nodeapi.WaitingClaim {
		return nodeapi.WaitingClaim{
			Claim: nodeapi.Claim{Namespace: "shop", Name: name, UID: name}, Pool: named, Bytes: gib * csitest.GiB,
			Since: r.Clock.Add(-time.Minute),
		}
	}
	r.Set(func() {
		r.Pending = []nodeapi.WaitingClaim{
			claim("fits", "nvme*", 1), claim("large", "nvme*", 5), claim("lost", "ssd*", 1),
		}
	})
	r.Look(t)
	var events []string
	waittest.Until(t, "two are told", func() bool {
		events = append(events, r.Told("")...)
		return len(events) >= 2
	})
	want := []string{
		"Warning shop/large PoolMissing: pool nvme0 or nvme1 is present on 1 of 2 nodes; b: nothing is mounted at " +
			"/mnt/nvme0; where it is, a new volume can have 2Gi, and the claim asks for 5Gi",
		`Warning shop/lost PoolUnknown: storagePool of the StorageClass: "ssd*": no pool's name begins with "ssd"; ` +
			"configured are: nvme0, nvme1, hdd",
	}
	if strings.Join(events, "\n") != strings.Join(want, "\n") {
		t.Errorf("told was %q", events)
	}
}
