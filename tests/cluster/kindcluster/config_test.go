package kindcluster_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/kind/pkg/apis/config/v1alpha4"
	"sigs.k8s.io/yaml"

	"github.com/hostpath-provisioner/hostpath-provisioner/tests/cluster/kindcluster"
)

func TestConfigIsWhatKindReads(t *testing.T) {
	for name, test := range map[string]struct {
		workers    int
		ownNetwork bool
		roles      []v1alpha4.NodeRole
	}{
		"public image": {
			2, false, []v1alpha4.NodeRole{v1alpha4.ControlPlaneRole, v1alpha4.WorkerRole, v1alpha4.WorkerRole},
		},
		"built here":     {1, true, []v1alpha4.NodeRole{v1alpha4.ControlPlaneRole, v1alpha4.WorkerRole}},
		"without worker": {0, true, []v1alpha4.NodeRole{v1alpha4.ControlPlaneRole}},
	} {
		t.Run(name, func(t *testing.T) {
			var got v1alpha4.Cluster
			if err := yaml.UnmarshalStrict([]byte(kindcluster.Config("c", test.workers, test.ownNetwork)), &got); err != nil {
				t.Fatal(err)
			}
			var roles []v1alpha4.NodeRole
			for _, node := range got.Nodes {
				roles = append(roles, node.Role)
			}
			if diff := cmp.Diff(test.roles, roles); diff != "" {
				t.Errorf("nodes (-want +got):\n%s", diff)
			}
			if got.Networking.DisableDefaultCNI != test.ownNetwork {
				t.Errorf("kind's network left out: %t, want %t", got.Networking.DisableDefaultCNI, test.ownNetwork)
			}
			if !got.FeatureGates["CSIVolumeHealth"] {
				t.Error("CSIVolumeHealth is off: the kubelet would never call the health RPCs")
			}
			var kubelet struct {
				Kind         string `json:"kind"`
				FailCgroupV1 *bool  `json:"failCgroupV1"`
			}
			if err := yaml.UnmarshalStrict([]byte(got.KubeadmConfigPatches[0]), &kubelet); err != nil {
				t.Fatal(err)
			}
			if kubelet.Kind != "KubeletConfiguration" || kubelet.FailCgroupV1 == nil || *kubelet.FailCgroupV1 {
				t.Errorf("patch %+v: the kubelet would not start on cgroup v1", kubelet)
			}
		})
	}
}

func TestCreateRefusesWrongOptions(t *testing.T) {
	for _, o := range []kindcluster.Options{
		{Name: ""}, {Name: "Upper"}, {Name: "-dash"}, {Name: "a/b"}, {Name: "a", Workers: -1}, {Name: "a", Workers: 99},
	} {
		if _, err := kindcluster.Create(t.Context(), o); err == nil {
			t.Errorf("%+v: no error", o)
		}
	}
}
