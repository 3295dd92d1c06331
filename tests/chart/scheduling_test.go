package chart

import (
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/tests/chart/helmcli"
	"github.com/hostpath-provisioner/hostpath-provisioner/tests/chart/helmsdk"
)

// everywhere are the scheduling keys of global.
func everywhere() map[string]string {
	return map[string]string{
		"global.nodeSelector": `{"zone":"a","kubernetes.io/os":"nowhere"}`,
		"global.tolerations": `[{"key":"dedicated","operator":"Exists"},` +
			`{"key":"node.kubernetes.io/not-ready","operator":"Exists","tolerationSeconds":900}]`,
		"global.affinity":                  `{"nodeAffinity":{"preferredDuringSchedulingIgnoredDuringExecution":[]}}`,
		"global.priorityClassName":         `"everywhere"`,
		"global.topologySpreadConstraints": `[{"maxSkew":2,"topologyKey":"zone","whenUnsatisfiable":"DoNotSchedule"}]`,
	}
}

// scheduled is where a pod runs, in short.
type scheduled struct {
	Priority    string
	Selector    map[string]string
	Tolerations []string
	Affinity    bool
	Spread      []string
}

func scheduling(spec corev1.PodSpec) scheduled {
	s := scheduled{Priority: spec.PriorityClassName, Selector: spec.NodeSelector, Affinity: spec.Affinity != nil}
	for _, toleration := range spec.Tolerations {
		s.Tolerations = append(s.Tolerations, toleration.Key)
	}
	for _, spread := range spec.TopologySpreadConstraints {
		s.Spread = append(s.Spread,
			spread.TopologyKey+" "+spread.LabelSelector.MatchLabels["app.kubernetes.io/component"])
	}
	return s
}

// TestGlobalScheduling: global's values where a workload has none, or beside its own.
func TestGlobalScheduling(t *testing.T) {
	t.Parallel()
	values := helmcli.Values{JSON: everywhere()}
	selector := map[string]string{"zone": "a", "kubernetes.io/os": "linux"}
	want := map[string]scheduled{
		"driver": {"everywhere", selector, []string{"", "dedicated", "node.kubernetes.io/not-ready"}, true, nil},
		"controller": {"everywhere", selector, []string{
			"node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable", "dedicated",
		}, true, []string{"zone csi-controller"}},
		"operator": {
			"everywhere", selector,
			[]string{"dedicated", "node.kubernetes.io/not-ready"},
			true,
			[]string{"zone operator"},
		},
	}
	for who, spec := range legacyPods(t, values) {
		tolerations := []string{"node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable", "dedicated"}
		spread := []string{"zone " + map[string]string{
			"shared": "shared-torchbox-com-hostpath", "every node": "every-node",
		}[who]}
		if who == "legacy" || who == "manager" {
			tolerations, spread = []string{"", "dedicated", "node.kubernetes.io/not-ready"}, nil
		}
		want := scheduled{"everywhere", selector, tolerations, true, spread}
		if diff := cmp.Diff(want, scheduling(spec)); diff != "" {
			t.Errorf("%s with global's values (-want +got):\n%s", who, diff)
		}
	}
	operators := controllerPod(t, withOperator(values, nil), operator).Spec
	got := map[string]scheduled{
		"driver":     scheduling(daemonSet(t, values).Spec.Template.Spec),
		"controller": scheduling(controllerPod(t, values, controller).Spec),
		"operator":   scheduling(operators),
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("with global's values (-want +got):\n%s", diff)
	}
	// A Deployment of one pod has nothing to spread.
	alone := scheduling(controllerPod(t, helmcli.Values{}, controller).Spec)
	if alone.Priority != "system-cluster-critical" || alone.Spread != nil || alone.Affinity {
		t.Errorf("the controller without global's values: %+v", alone)
	}
}

// legacyPods are those of all legacy provisioners.
func legacyPods(t *testing.T, values helmcli.Values) map[string]corev1.PodSpec {
	t.Helper()
	on := map[string]string{
		"legacyProvisioner.enabled": "true", "legacyProvisioner.everyNode.enabled": "true",
		"legacyProvisioner.shared.enabled": "true", "legacyProvisioner.shared.instances": networkFSInstances,
	}
	maps.Copy(on, values.JSON)
	values.JSON = on
	objects := legacyObjects(t, values)
	return map[string]corev1.PodSpec{
		"legacy":     helmcli.Find[*appsv1.DaemonSet](t, objects, "hpp-hostpath-provisioner-legacy").Spec.Template.Spec,
		"shared":     helmcli.Find[*appsv1.Deployment](t, objects, networkFSPlain).Spec.Template.Spec,
		"every node": helmcli.Find[*appsv1.Deployment](t, objects, everyNodePlain).Spec.Template.Spec,
		"manager":    helmcli.Find[*appsv1.DaemonSet](t, objects, everyNodePlain+ofManagers).Spec.Template.Spec,
	}
}

// TestLegacyPodsAreCritical for their nodes where nobody names a class.
func TestLegacyPodsAreCritical(t *testing.T) {
	t.Parallel()
	for who, spec := range legacyPods(t, helmcli.Values{}) {
		got := scheduling(spec)
		if got.Priority != "system-node-critical" || got.Spread != nil || got.Affinity {
			t.Errorf("%s without global's values: %+v", who, got)
		}
	}
}

// TestWorkloadsWinOverGlobal in testdata/everything.yaml, which sets all of theirs.
func TestWorkloadsWinOverGlobal(t *testing.T) {
	t.Parallel()
	values := renderings()["everything"]
	values.JSON = everywhere()
	values.JSON["controller.topologySpreadConstraints"] = `[{"maxSkew":1,"topologyKey":"rack",` +
		`"whenUnsatisfiable":"ScheduleAnyway","labelSelector":{"matchLabels":{"app.kubernetes.io/component":"mine"}}}]`
	objects := helmcli.Objects(t, helmsdk.Newest().MustTemplate(t, values))
	for name, spec := range map[string]corev1.PodSpec{
		"driver":     helmcli.Find[*appsv1.DaemonSet](t, objects, "storage-driver-csi").Spec.Template.Spec,
		"controller": helmcli.Find[*appsv1.Deployment](t, objects, "storage-driver-controller").Spec.Template.Spec,
	} {
		got := scheduling(spec)
		affinity := spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution
		if got.Priority != "important" || got.Selector["kubernetes.io/os"] != "linux" || affinity == nil {
			t.Errorf("%s: %+v", name, got)
		}
		if name == "controller" && cmp.Diff([]string{"rack mine"}, got.Spread) != "" {
			t.Errorf("%s: spread %v", name, got.Spread)
		}
	}
	values = renderings()["legacy"]
	values.JSON = everywhere()
	legacy := helmcli.Find[*appsv1.DaemonSet](t, legacyObjects(t, values), "storage-driver-legacy")
	got := scheduling(legacy.Spec.Template.Spec)
	if got.Priority != "important" || got.Selector["kubernetes.io/os"] != "linux" ||
		!slices.Equal(got.Tolerations, []string{"dedicated", "node.kubernetes.io/not-ready"}) {
		t.Errorf("the legacy provisioner: %+v", got)
	}
}

func TestWrongSchedulingIsRefused(t *testing.T) {
	t.Parallel()
	helmsdk.Each(t, func(t *testing.T, helm helmsdk.Helm) {
		expectRefusals(t, helm, map[string]refusal{
			"a number": {
				json: set("global.nodeSelector", `{"zone":1}`), want: []string{"/global/nodeSelector/zone", "string"},
			},
			"a map": {json: set("global.tolerations", `{}`), want: []string{"/global/tolerations", "array"}},
			"text":  {set: set("global.affinity", "near"), want: []string{"/global/affinity", "object"}},
			"a class": {
				json: set("global.priorityClassName", `1`), want: []string{"/global/priorityClassName", "string"},
			},
			"half of it": {
				json: set("global.topologySpreadConstraints", `[{"maxSkew":1}]`), want: []string{"topologyKey"},
			},
			"no skew": {
				json: set("controller.topologySpreadConstraints",
					`[{"maxSkew":0,"topologyKey":"a","whenUnsatisfiable":"DoNotSchedule"}]`),
				want: []string{"/controller/topologySpreadConstraints/0/maxSkew"},
			},
			"hope": {
				json: set("operator.topologySpreadConstraints",
					`[{"maxSkew":1,"topologyKey":"a","whenUnsatisfiable":"Hope"}]`),
				want: []string{"/operator/topologySpreadConstraints/0/whenUnsatisfiable"},
			},
		})
	})
}
