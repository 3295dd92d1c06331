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
	storagev1 "k8s.io/api/storage/v1"

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
		change          func(*corev1.PersistentVolumeClaimSpec)
		broken, planned string
	}{
		"as in the seed": {func(*corev1.PersistentVolumeClaimSpec) {}, "", "local"},
		"one for all":    {manyNodes, "", "local"},
		"no size": {
			func(c *corev1.PersistentVolumeClaimSpec) { c.Resources.Requests = nil },
			"left out: spec.storagePools[0].pvcTemplate.resources.requests.storage: Required value: want the size", "",
		},
		"one device for all": {
			func(c *corev1.PersistentVolumeClaimSpec) {
				manyNodes(c)
				c.VolumeMode = new(corev1.PersistentVolumeBlock)
			}, "with ReadWriteMany all nodes would mount the filesystem of one device at once, and destroy it", "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			spec := resource(t, claimResource)
			test.change(spec.StoragePools[0].PVCTemplate)
			got := mustRender(t, input("{}", spec)).Pools[0]
			if (got.Broken == "") != (test.broken == "") || !strings.Contains(got.Broken, test.broken) {
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

// manyNodes makes a template one for all nodes.
func manyNodes(c *corev1.PersistentVolumeClaimSpec) {
	c.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}
}

// overlayResource has pools whose nodes share a claim, with these names for their classes.
func overlayResource(t *testing.T, classes ...string) v1beta1.HostPathProvisionerSpec {
	t.Helper()
	spec := resource(t, claimResource)
	template := spec.StoragePools[0].PVCTemplate
	manyNodes(template)
	spec.StoragePools = nil
	for i, class := range classes {
		name := string(rune('a' + i))
		spec.StoragePools = append(spec.StoragePools, v1beta1.StoragePool{
			Name: name, Path: "/srv/" + name, PVCTemplate: template.DeepCopy(), OverlayClassName: class,
		})
	}
	return spec
}

// TestOneClaimForAllNodes: the driver has a shared pool, the mounters one claim, and users the class of kubevirt's.
func TestOneClaimForAllNodes(t *testing.T) {
	t.Parallel()
	in := input("{}", overlayResource(t, ""))
	for _, node := range []string{"n1", "n2"} {
		in.Mounts = append(in.Mounts, poolclaims.Mount{
			Pool: "a", Path: "/srv/a", Node: node, Claim: poolclaims.SharedClaimName("a"), Shared: true,
		})
	}
	result := mustRender(t, in)
	want := []poolspec.Pool{{
		Name: "a", Path: "/srv/a", Scope: "shared", Quota: "none",
		PVCTemplate: map[string]any{"accessModes": []any{"ReadWriteMany"}, "resources": map[string]any{}},
	}}
	if diff := cmp.Diff(want, served(t, result)); diff != "" || len(result.NotServed)+len(result.Violations) > 0 {
		t.Errorf("notes %q %q, pools (-want +got):\n%s", result.NotServed, result.Violations, diff)
	}
	class := object[storagev1.StorageClass](t, result, "StorageClass", "hpp-overlay")
	if diff := cmp.Diff(map[string]string{"storagePool": "a", "overlayCSI": "true"}, class.Parameters); diff != "" ||
		class.Provisioner != "kubevirt.io.hostpath-provisioner" ||
		*class.VolumeBindingMode != storagev1.VolumeBindingImmediate ||
		*class.ReclaimPolicy != corev1.PersistentVolumeReclaimDelete {
		t.Errorf("class %+v\nparameters (-want +got):\n%s", class, diff)
	}
	claims := map[string]string{}
	for _, made := range result.Objects {
		if made.GetKind() != "Deployment" || !poolclaims.IsMounter(made.GetLabels()) {
			continue
		}
		pod := object[appsv1.Deployment](t, result, "Deployment", made.GetName()).Spec.Template
		for _, volume := range pod.Spec.Volumes {
			if volume.PersistentVolumeClaim != nil {
				claims[pod.Annotations[names.NodeAnnotation]] = volume.PersistentVolumeClaim.ClaimName
			}
		}
	}
	if diff := cmp.Diff(map[string]string{"n1": "hpp-pool-a-shared", "n2": "hpp-pool-a-shared"}, claims); diff != "" {
		t.Errorf("claims of mounters (-want +got):\n%s", diff)
	}
}

// TestOverlayClasses: which pool has a class of which name.
func TestOverlayClasses(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		classes []string // of the pools a, b …
		base    string
		want    map[string]string // pools by class
		says    string            // of what is left out, or wrong
	}{
		"kubevirt's":   {classes: []string{""}, base: "{}", want: map[string]string{"hpp-overlay": "a"}},
		"another name": {classes: []string{"vm-state"}, base: "{}", want: map[string]string{"vm-state": "a"}},
		"two": {
			classes: []string{"", "hpp-overlay-b"}, base: "{}",
			want: map[string]string{"hpp-overlay": "a", "hpp-overlay-b": "b"},
		},
		"two of one name": {
			classes: []string{"", ""}, base: "{}", want: map[string]string{"hpp-overlay": "a"},
			says: `spec.storagePools[1].overlayClassName: Invalid value: "": the StorageClass of the pool "a" is ` +
				"called hpp-overlay already: want a name of its own, such as hpp-overlay-b",
		},
		"two of one name, said": {
			classes: []string{"", "hpp-overlay"}, base: "{}", want: map[string]string{"hpp-overlay": "a"},
			says: `spec.storagePools[1].overlayClassName: Invalid value: "hpp-overlay"`,
		},
		"the base has one of the name": {
			classes: []string{""}, base: "storageClasses: [{name: hpp-overlay, storagePool: a}]",
			want: map[string]string{"hpp-overlay": "a"},
			says: `pool "a": its class hpp-overlay is left out: storageClasses of the base values has one of that name`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			result := mustRender(t, input(test.base, overlayResource(t, test.classes...)))
			got := map[string]string{}
			for _, made := range result.Objects {
				if made.GetKind() == "StorageClass" {
					class := object[storagev1.StorageClass](t, result, "StorageClass", made.GetName())
					got[class.Name] = class.Parameters["storagePool"]
				}
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("pools by class (-want +got):\n%s", diff)
			}
			if len(served(t, result)) != len(test.classes) {
				t.Errorf("served are %+v", served(t, result))
			}
			notes := strings.Join(append(result.NotServed, result.Violations...), "\n")
			if (notes == "") != (test.says == "") || !strings.Contains(notes, test.says) {
				t.Errorf("it says %q, want %q", notes, test.says)
			}
		})
	}
}

// The placement is that of the driver's DaemonSet, wherever it comes from.
func TestPlanHasThePlacementOfTheDriver(t *testing.T) {
	t.Parallel()
	base := "driver: {nodeSelector: {disk: fast}, tolerations: [{key: base, operator: Exists}]}"
	spec := resource(t, claimResource)
	terms := []corev1.NodeSelectorTerm{{
		MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "zone", Operator: "In", Values: []string{"a"}}},
	}}
	spec.Workload = v1beta1.Workload{Affinity: &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
		RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: terms},
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
		if got := pod.Annotations["hostpathprovisioner.kubevirt.io/node"]; got != node ||
			!poolclaims.IsMounter(pod.Labels) ||
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
	once := mount("n", true)
	once.OncePod = true
	data, err := json.Marshal(once)
	const want = `{"pool":"local","path":"/var/hpvolumes","node":"n","claim":"hpp-pool-local-n","block":true,` +
		`"oncePod":true}`
	if err != nil || string(data) != want {
		t.Errorf("%s, %v; want %s", data, err, want)
	}
}
