package move_test

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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

// beside is a pod that another of keepApart does not run beside, with another claim.
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

// TestDrain chooses the roomiest node that takes pods, and says what stays.
func TestDrain(t *testing.T) {
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
	err := m.Drain(t.Context(), move.Drain{Node: "a", Driver: "driver", Apply: true})
	if err == nil || !strings.Contains(err.Error(), "of 1 volumes, 1 stay on node a: shop/data") {
		t.Errorf("%v: %s", err, out)
	}
	if !slices.Contains(c.asked, "move start pv-1 --to b --dry-run") {
		t.Errorf("asked %q", c.asked)
	}
	// Where one that it must not run beside is on b, the next is taken.
	apart := podOn("db-0", "a", corev1.PodRunning, true)
	keepApart(apart)
	for _, pod := range []*corev1.Pod{apart, beside("b")} {
		if _, err := api.CoreV1().Pods("shop").Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if err := m.Drain(t.Context(), move.Drain{Node: "a", Driver: "driver"}); err == nil ||
		c.asked[len(c.asked)-1] != "move start pv-1 --to d --dry-run" {
		t.Errorf("%v, asked %q", err, c.asked)
	}
	if err := m.Drain(t.Context(), move.Drain{Node: "b", Driver: "driver"}); err == nil ||
		!strings.Contains(err.Error(), "kubectl cordon b") {
		t.Error(err)
	}
}
