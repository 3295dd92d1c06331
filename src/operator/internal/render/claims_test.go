package render_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/names"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/v1beta1"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/poolspec"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/operator/internal/poolclaims"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/operator/internal/pools"
)

// mount is the pool of claimResource on a node.
func mount(node string, block bool) poolclaims.Mount {
	return poolclaims.Mount{
		Pool: "local", Path: "/var/hpvolumes", Node: node, Claim: poolclaims.ClaimName("local", node), Block: block,
	}
}

// The driver serves the pool. What of a template is none of its business must not roll it out.
func TestClaimResource(t *testing.T) {
	t.Parallel()
	spec := resource(t, claimResource)
	result := mustRender(t, input("{}", spec))
	want := []poolspec.Pool{{
		Name: "local", Path: "/var/hpvolumes", Scope: "node", Quota: "auto",
		PVCTemplate: map[string]any{"accessModes": []any{"ReadWriteOnce"}, "resources": map[string]any{}},
	}}
	if diff := cmp.Diff(want, served(t, result)); diff != "" {
		t.Errorf("pools (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]pools.Outcome{{Name: "local"}}, result.Pools); diff != "" || len(result.NotServed) > 0 {
		t.Errorf("not served: %q; pools (-want +got):\n%s", result.NotServed, diff)
	}
	checksum := object[appsv1.DaemonSet](t, result, "DaemonSet", driver).Spec.Template.Annotations["checksum/config"]
	spec.StoragePools[0].PVCTemplate.StorageClassName = new("fast")
	other := object[appsv1.DaemonSet](t, mustRender(t, input("{}", spec)), "DaemonSet", driver)
	if got := other.Spec.Template.Annotations["checksum/config"]; got != checksum {
		t.Errorf("the driver's configuration is another (%s, was %s) because of the template's class", got, checksum)
	}
}

func TestWhichTemplatesAreServed(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		change                     func(*corev1.PersistentVolumeClaimSpec)
		notServed, broken, planned string
	}{
		"as in the seed": {func(*corev1.PersistentVolumeClaimSpec) {}, "", "", "local"},
		"one for all": {func(c *corev1.PersistentVolumeClaimSpec) {
			c.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}
		}, "is served once scope shared is", "", ""},
		"no size": {
			func(c *corev1.PersistentVolumeClaimSpec) { c.Resources.Requests = nil }, "",
			"left out: spec.storagePools[0].pvcTemplate.resources.requests.storage: Required value: want the size", "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			spec := resource(t, claimResource)
			test.change(spec.StoragePools[0].PVCTemplate)
			got := mustRender(t, input("{}", spec)).Pools[0]
			if (got.NotServed == "") != (test.notServed == "") || !strings.Contains(got.NotServed, test.notServed) ||
				(got.Broken == "") != (test.broken == "") || !strings.Contains(got.Broken, test.broken) {
				t.Errorf("%+v", got)
			}
			plan, err := renderer(t).Plan(input("{}", spec))
			if err != nil {
				t.Fatal(err)
			}
			var planned []string
			for _, pool := range plan.Pools {
				planned = append(planned, pool.Name)
			}
			if got := strings.Join(planned, " "); got != test.planned {
				t.Errorf("pools with claims: %q, want %q", got, test.planned)
			}
		})
	}
}

// The placement is that of the driver's DaemonSet, wherever it comes from.
func TestPlanHasThePlacementOfTheDriver(t *testing.T) {
	t.Parallel()
	base := "driver: {nodeSelector: {disk: fast}, tolerations: [{key: base, operator: Exists}]}"
	spec := resource(t, claimResource)
	spec.Workload = v1beta1.Workload{Affinity: &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
		RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
			MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "zone", Operator: "In", Values: []string{"a"}}},
		}}},
	}}}
	plan, err := renderer(t).Plan(input(base, spec))
	if err != nil {
		t.Fatal(err)
	}
	pod := object[appsv1.DaemonSet](t, mustRender(t, input(base, spec)), "DaemonSet", driver).Spec.Template.Spec
	want := poolclaims.Placement{NodeSelector: pod.NodeSelector, Affinity: pod.Affinity, Tolerations: pod.Tolerations}
	if diff := cmp.Diff(want, plan.Placement); diff != "" || len(want.Tolerations) == 0 || want.Affinity == nil {
		t.Errorf("placement (-DaemonSet's +plan's):\n%s", diff)
	}
}

func TestMounters(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("node", 40) + ".example.com"
	base := `{networkPolicies: {enabled: true}, openshift: true}`
	in := input(base, resource(t, claimResource))
	in.Mounts = []poolclaims.Mount{mount("n1", false), mount(long, true)}
	result := mustRender(t, in)
	byNode := map[string]appsv1.Deployment{}
	for _, name := range listed(result) {
		kind, name, _ := strings.Cut(name, "/")
		if kind == "Deployment" && strings.Contains(name, "-mounter-") {
			found := object[appsv1.Deployment](t, result, kind, name)
			byNode[found.Annotations["hostpathprovisioner.kubevirt.io/node"]] = found
		}
	}
	if len(byNode) != 2 {
		t.Fatalf("%d mounters, want one for each node", len(byNode))
	}
	a, b := byNode["n1"], byNode[long]
	if a.Spec.Selector.MatchLabels[names.MountLabel] == b.Spec.Selector.MatchLabels[names.MountLabel] {
		t.Error("two mounters have one selector")
	}
	for node, mounter := range byNode {
		pod := mounter.Spec.Template
		if mark := mounter.Labels[names.MountLabel]; mark == "" || mark != pod.Labels[names.MountLabel] {
			t.Errorf("the mount of node %s is %q, of its pod %q", node, mark, pod.Labels[names.MountLabel])
		}
		if got := pod.Annotations["hostpathprovisioner.kubevirt.io/node"]; got != node || !poolclaims.IsMounter(pod.Labels) ||
			pod.Labels["hostpathprovisioner.kubevirt.io/pool"] != "local" {
			t.Errorf("pod of node %q, labels %v", got, pod.Labels)
		}
		required := pod.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution
		field := required.NodeSelectorTerms[0].MatchFields
		if len(field) != 1 || field[0].Key != "metadata.name" || !slices.Equal(field[0].Values, []string{node}) {
			t.Errorf("it is placed by %+v", field)
		}
		if pod.Spec.ServiceAccountName != "hpp-hostpath-provisioner-mounter" || *pod.Spec.AutomountServiceAccountToken {
			t.Errorf("account %q, token %v", pod.Spec.ServiceAccountName, *pod.Spec.AutomountServiceAccountToken)
		}
		if got := pod.Annotations["openshift.io/required-scc"]; got != driver {
			t.Errorf("constraint %q", got)
		}
	}
	object[networkingv1.NetworkPolicy](t, result, "NetworkPolicy", "hpp-hostpath-provisioner-mounter")
	use := object[rbacv1.RoleBinding](t, result, "RoleBinding", "hpp-hostpath-provisioner-csi-scc")
	if got := use.Subjects[len(use.Subjects)-1].Name; got != "hpp-hostpath-provisioner-mounter" {
		t.Errorf("the constraint is for %q at last", got)
	}
	for _, name := range listed(mustRender(t, input(base, resource(t, claimResource)))) {
		if strings.Contains(name, "mounter") {
			t.Errorf("%s without a mount", name)
		}
	}
}

// An entry of the chart's value has exactly the keys of a Mount.
func TestMountsAreTheValue(t *testing.T) {
	t.Parallel()
	data, err := json.Marshal(mount("n", true))
	if want := `{"pool":"local","path":"/var/hpvolumes","node":"n","claim":"hpp-pool-local-n","block":true}`; err != nil ||
		string(data) != want {
		t.Errorf("%s, %v; want %s", data, err, want)
	}
}
