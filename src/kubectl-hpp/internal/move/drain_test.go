package move_test

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/kubectl-hpp/internal/move"
)

// keepApart gives a pod what docs/how-to/databases.md names beside the constraint.
func keepApart(pod *corev1.Pod) {
	pod.Labels = map[string]string{"app": "db"}
	pod.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{
		RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{
			TopologyKey: corev1.LabelHostname, LabelSelector: &metav1.LabelSelector{MatchLabels: pod.Labels},
		}},
	}}
}

// beside is a pod that another of keepApart does not run beside; it has no claim.
func beside(node string) *corev1.Pod {
	pod := podOn("db-1", node, corev1.PodRunning, true)
	pod.Labels, pod.Spec.Volumes = map[string]string{"app": "db"}, nil
	return pod
}

func node(name string, cordoned bool) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: name, Labels: map[string]string{corev1.LabelHostname: name},
	}}
	n.Spec.Unschedulable = cordoned
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	return n
}

// drained is a cordoned node a with a volume, and nodes of which b is the roomiest that takes pods, and d the next.
func drained() (*controller, *move.Mover, *fake.Clientset, *strings.Builder) {
	pool := func(node string, room int64) nodeapi.NodeStatus {
		return nodeapi.NodeStatus{Name: node, State: "connected", Pools: []nodeapi.PoolStatus{{
			Name: "local", State: nodeapi.StatePresent, Selected: true, Allocatable: room,
		}}}
	}
	c := &controller{answer: func(line string) (any, error) {
		switch line {
		case "move list":
			return []nodeapi.Move{}, nil
		case "status":
			all := []nodeapi.NodeStatus{pool("a", 9), pool("b", 5), pool("c", 7), pool("d", 3)}
			return nodeapi.Status{Nodes: all}, nil
		}
		return nodeapi.Move{PV: "pv-1", Claim: "shop/data", From: "a", To: "b", Problems: []string{"no luck"}}, nil
	}}
	m, api, out := newMover(c, claim(), volumeOn("a"), node("a", true), node("b", false), node("c", true),
		node("d", false))
	return c, m, api, out
}

// TestDrain chooses the roomiest node that takes pods, and says what stays.
func TestDrain(t *testing.T) {
	c, m, _, out := drained()
	err := m.Drain(t.Context(), move.Drain{Node: "a", Driver: "driver", Apply: true})
	if err == nil || !strings.Contains(err.Error(), "of 1 volumes, 1 stay on node a: shop/data") {
		t.Errorf("%v: %s", err, out)
	}
	if !slices.Contains(c.asked, "move start pv-1 --to b --dry-run") {
		t.Errorf("asked %q", c.asked)
	}
	if err := m.Drain(t.Context(), move.Drain{Node: "b", Driver: "driver"}); err == nil ||
		!strings.Contains(err.Error(), "kubectl cordon b") {
		t.Error(err)
	}
}

// TestDrainApart: where one that the pod must not run beside is on b, the next is taken; where one is on d too, it
// stays.
func TestDrainApart(t *testing.T) {
	c, m, api, out := drained()
	apart, third := podOn("db-0", "a", corev1.PodRunning, true), beside("d")
	keepApart(apart)
	third.Name = "db-2"
	for _, test := range []struct {
		more []runtime.Object
		says string
	}{
		{[]runtime.Object{apart, beside("b")}, "asked move start pv-1 --to d --dry-run"},
		{[]runtime.Object{third}, "no other node, on which its pods may run, has room"},
	} {
		for _, pod := range test.more {
			if err := api.Tracker().Add(pod); err != nil {
				t.Fatal(err)
			}
		}
		err := m.Drain(t.Context(), move.Drain{Node: "a", Driver: "driver"})
		says := out.String() + "asked " + c.asked[len(c.asked)-1]
		if err == nil || !strings.Contains(says, test.says) {
			t.Errorf("%v: it does not say %q:\n%s", err, test.says, says)
		}
	}
}
