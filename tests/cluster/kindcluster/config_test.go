package kindcluster_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/kind/pkg/apis/config/v1alpha4"
	"sigs.k8s.io/yaml"

	"github.com/hostpath-provisioner/hostpath-provisioner/tests/cluster/kindcluster"
)

func TestConfigIsWhatKindReads(t *testing.T) {
	for name, test := range map[string]struct {
		workers int
		lines   string
		roles   []v1alpha4.NodeRole
	}{
		"public image": {
			2, "", []v1alpha4.NodeRole{v1alpha4.ControlPlaneRole, v1alpha4.WorkerRole, v1alpha4.WorkerRole},
		},
		"built here": {
			1, "networking:\n  disableDefaultCNI: true\n",
			[]v1alpha4.NodeRole{v1alpha4.ControlPlaneRole, v1alpha4.WorkerRole},
		},
		"without worker": {0, "", []v1alpha4.NodeRole{v1alpha4.ControlPlaneRole}},
	} {
		t.Run(name, func(t *testing.T) {
			var got v1alpha4.Cluster
			if err := yaml.UnmarshalStrict([]byte(kindcluster.Config("c", test.workers, test.lines)),
				&got); err != nil {
				t.Fatal(err)
			}
			var roles []v1alpha4.NodeRole
			for _, node := range got.Nodes {
				roles = append(roles, node.Role)
			}
			if diff := cmp.Diff(test.roles, roles); diff != "" {
				t.Errorf("nodes (-want +got):\n%s", diff)
			}
			if want := test.lines != ""; got.Networking.DisableDefaultCNI != want {
				t.Errorf("kind's network left out: %t, want %t", got.Networking.DisableDefaultCNI, want)
			}
			if !got.FeatureGates["CSIVolumeHealth"] {
				t.Error("CSIVolumeHealth is off: the kubelet would never call the health RPCs")
			}
			var kubelet struct {
				Kind          string `json:"kind"`
				FailCgroupV1  *bool  `json:"failCgroupV1"`
				LeaseDuration int    `json:"nodeLeaseDurationSeconds"`
			}
			if err := yaml.UnmarshalStrict([]byte(got.KubeadmConfigPatches[0]), &kubelet); err != nil {
				t.Fatal(err)
			}
			if kubelet.Kind != "KubeletConfiguration" || kubelet.FailCgroupV1 == nil || *kubelet.FailCgroupV1 {
				t.Errorf("patch %+v: the kubelet would not start on cgroup v1", kubelet)
			}
			type component struct {
				ExtraArgs map[string]string `json:"extraArgs"`
			}
			var kubeadm struct {
				APIVersion        string    `json:"apiVersion"`
				Kind              string    `json:"kind"`
				ControllerManager component `json:"controllerManager"`
				Scheduler         component `json:"scheduler"`
			}
			if err := yaml.UnmarshalStrict([]byte(got.KubeadmConfigPatches[1]), &kubeadm); err != nil {
				t.Fatal(err)
			}
			// kind takes arguments as a map into any version of kubeadm's file, as long as the patch names none.
			grace, err := time.ParseDuration(kubeadm.ControllerManager.ExtraArgs["node-monitor-grace-period"])
			if err != nil || kubeadm.Kind != "ClusterConfiguration" || kubeadm.APIVersion != "" {
				t.Fatalf("patch %+v, %v: want a grace period for nodes", kubeadm, err)
			}
			for _, c := range []component{kubeadm.ControllerManager, kubeadm.Scheduler} {
				if c.ExtraArgs["leader-elect"] != "false" {
					t.Errorf("%v: a busy machine would end what has lost its lease", c.ExtraArgs)
				}
			}
			// A kubelet renews its lease four times in its duration.
			if reports := grace / (time.Duration(kubelet.LeaseDuration) * time.Second / 4); reports < 4 {
				t.Errorf("a node that misses %d reports is NotReady, want 4: a busy machine would lose nodes", reports)
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
