package webhook_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/v1beta1"
)

// tiedToNode ties a volume to a node.
func tiedToNode(node string) func(*corev1.PersistentVolume) {
	return func(pv *corev1.PersistentVolume) {
		pv.Spec.NodeAffinity = &corev1.VolumeNodeAffinity{
			Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
				MatchExpressions: []corev1.NodeSelectorRequirement{
					{Key: "topology.hostpath.csi/node", Operator: corev1.NodeSelectorOpIn, Values: []string{node}},
				},
			}}},
		}
	}
}

// node has been ready, or not, for a time.
func node(name string, ready corev1.ConditionStatus, since time.Duration, labels map[string]string) *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels},
		Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{
			Type: corev1.NodeReady, Status: ready, LastTransitionTime: metav1.NewTime(time.Now().Add(-since)),
		}}},
	}
}

// The webhook lets go what the deletion's gate lets go, and not before.
func TestNodesThatAreGone(t *testing.T) {
	two := pools(pool{Name: "a", Path: "/data/a"}, pool{Name: "b", Path: "/data/b"})
	soon := node("soon", corev1.ConditionUnknown, time.Minute, nil)
	stamp := soon.Status.Conditions[0].LastTransitionTime.Add(10 * time.Minute).UTC().Format(time.RFC3339)
	nodes := []client.Object{
		node("up", corev1.ConditionTrue, time.Hour, nil), node("down", corev1.ConditionFalse, 11*time.Minute, nil),
		soon,
	}
	const givenUp = "1 volume on nodes that are gone, or not ready for 10m0s or more: pv-b; "
	waiting := "1 volume on nodes that are gone or not ready: pv-b; "
	retry := "bring these nodes back, or try again after " + stamp + ", or set " + override
	resourceHas := `the HostPathProvisioner "hostpath-provisioner" still has `
	poolHas := `the pool "b", which is removed, still has `
	for name, test := range map[string]struct {
		node string
		// refused is why each of the two is, warned what is said where they are not.
		refused, warned [2]string
	}{
		"ready": {"up", [2]string{
			resourceHas + "1 volume: pv-b; delete their claims first, or set " + override +
				" on it to delete it and leave the data on the nodes",
			"spec.storagePools: Forbidden: " + poolHas + "1 volume: pv-b; keep it, delete their claims first, or set " +
				override + " to leave their data on the nodes",
		}, [2]string{}},
		"not ready for a minute": {"soon", [2]string{
			resourceHas + waiting + retry + " on it to delete it and leave the data on the nodes",
			"spec.storagePools: Forbidden: " + poolHas + waiting + "keep it, " + retry +
				" to leave their data on the nodes",
		}, [2]string{}},
		"not ready for longer": {"down", [2]string{}, [2]string{
			resourceHas + givenUp + "it goes without them, unless a node comes back within 10m0s",
			"spec.storagePools: " + poolHas + givenUp + "their data stays there",
		}},
		"without a Node": {"gone", [2]string{}, [2]string{
			resourceHas + givenUp + "it goes without them, unless a node comes back within 10m0s",
			"spec.storagePools: " + poolHas + givenUp + "their data stays there",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			cluster := reader(append([]client.Object{pv("pv-b", csi("b"), tiedToNode(test.node))}, nodes...)...)
			deleted := ask(t, cluster, admissionv1.Delete, resource(two), nil)
			removed := ask(t, cluster, admissionv1.Update, resource(two), resource(pools(two.StoragePools[0])))
			if deleted.Result.Message != test.refused[0] || removed.Result.Message != test.refused[1] {
				t.Errorf("refused with\n%s\n%s\nwant\n%s", deleted.Result.Message, removed.Result.Message,
					strings.Join(test.refused[:], "\n"))
			}
			if deleted.Allowed != (test.refused[0] == "") || removed.Allowed != (test.refused[1] == "") {
				t.Errorf("deletion allowed: %v, removal of the pool: %v", deleted.Allowed, removed.Allowed)
			}
			if test.warned[0] == "" {
				return
			}
			if diff := cmp.Diff([]string{test.warned[0]}, deleted.Warnings); diff != "" {
				t.Error(diff)
			}
			// The other warning there is of every pool that goes.
			if len(removed.Warnings) != 2 || removed.Warnings[1] != test.warned[1] {
				t.Errorf("warnings %q, want %q", removed.Warnings, test.warned[1])
			}
		})
	}
}

// A pool that backs another one stays for as long as that one's claim does, though the claim keeps no resource.
func TestPoolBehindAPool(t *testing.T) {
	two := pools(pool{Name: "a", Path: "/data/a"}, pool{Name: "b", Path: "/data/b"})
	cluster := reader(node("up", corev1.ConditionTrue, time.Hour, nil),
		pv("pv-x", csi("a"), claimed("hpp", "hpp-pool-b-up"), tiedToNode("up")))
	judged(t, ask(t, cluster, admissionv1.Delete, resource(two), nil), nil)
	judged(t, ask(t, cluster, admissionv1.Update, resource(two), resource(pools(two.StoragePools[1]))), []string{
		`spec.storagePools: Forbidden: the pool "a", which is removed, still has 1 volume: hpp/hpp-pool-b-up (pv-x); ` +
			`keep it, delete their claims first, or set ` + override + " to leave their data on the nodes",
	})
	judged(t, ask(t, cluster, admissionv1.Update, resource(two), resource(pools(two.StoragePools[0]))), nil)
}

func TestNarrowing(t *testing.T) {
	fast, slow := map[string]string{"disk": "fast"}, map[string]string{"disk": "slow"}
	volumes := []client.Object{
		pv("pv-1", csi("a"), tiedToNode("n1")), pv("pv-2", csi("a"), tiedToNode("n2")),
		pv("pv-3", csi("b"), tiedToNode("n2")),
		pv("pv-4", hostPath, tiedToNode("n2")), pv("pv-5", csi("a"), tiedToNode("gone")),
		node("n1", corev1.ConditionTrue, time.Hour, fast), node("n2", corev1.ConditionTrue, time.Hour, slow),
		node("n3", corev1.ConditionTrue, time.Hour, slow),
	}
	two := pools(pool{Name: "a", Path: "/data/a"}, pool{Name: "b", Path: "/data/b"})
	placed := func(workload v1beta1.Workload) spec {
		return changed(two, func(s *spec) { s.Workload = workload })
	}
	selected := func(pool int, labels map[string]string) spec {
		return changed(two, func(s *spec) { s.StoragePools[pool].NodeSelector = labels })
	}
	affine := v1beta1.Workload{Affinity: &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
		RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
			NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{
				{Key: "disk", Operator: corev1.NodeSelectorOpNotIn, Values: []string{"slow"}},
			}}},
		},
	}}}
	leaves := func(nodes string) []string {
		return []string{"spec.workload: the driver leaves nodes that have volumes, " + nodes + ": pods keep these " +
			"volumes while they run, but until the driver is back there, none can start or end with them, and they " +
			"are not deleted"}
	}
	for name, test := range map[string]struct {
		old, now spec
		want     []string
	}{
		"nodeSelector": {two, placed(v1beta1.Workload{NodeSelector: fast}), leaves("n2 (3 volumes)")},
		"nodeSelector that none has": {
			two, placed(v1beta1.Workload{NodeSelector: map[string]string{"x": "y"}}),
			leaves("n1 (1 volume), n2 (3 volumes)"),
		},
		"affinity":               {two, placed(affine), leaves("n2 (3 volumes)")},
		"nodeSelector taken off": {placed(v1beta1.Workload{NodeSelector: fast}), two, nil},
		"nodeSelector to other nodes": {
			placed(v1beta1.Workload{NodeSelector: slow}), placed(v1beta1.Workload{NodeSelector: fast}),
			leaves("n2 (3 volumes)"),
		},
		"something else": {
			placed(v1beta1.Workload{NodeSelector: fast}),
			changed(placed(v1beta1.Workload{NodeSelector: fast}), func(s *spec) { s.StoragePools[0].MaxVolumes = 7 }),
			nil,
		},
		"a pool's": {two, selected(0, fast), []string{
			"spec.storagePools[0].nodeSelector: no new volumes are made on nodes that have some, n2 (1 volume): " +
				"those are still served",
		}},
		"a pool's, nothing there": {two, selected(1, slow), nil},
	} {
		t.Run(name, func(t *testing.T) {
			response := ask(t, reader(volumes...), admissionv1.Update, resource(test.old), resource(test.now))
			judged(t, response, nil)
			if diff := cmp.Diff(test.want, response.Warnings); diff != "" {
				t.Error(diff)
			}
		})
	}
}
