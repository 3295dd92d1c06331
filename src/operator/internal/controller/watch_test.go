package controller

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/event"
)

func TestNodeTurned(t *testing.T) {
	t.Parallel()
	old := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: map[string]string{"disk": "fast"}},
		Status: corev1.NodeStatus{
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
		},
	}
	for name, test := range map[string]struct {
		change func(*corev1.Node)
		want   bool
	}{
		"heartbeat": {func(n *corev1.Node) {
			n.ResourceVersion = "2"
			n.Status.Conditions[0].LastHeartbeatTime = metav1.NewTime(time.Unix(1, 0))
			n.Status.Images = []corev1.ContainerImage{{SizeBytes: 1}}
		}, false},
		"not ready":       {func(n *corev1.Node) { n.Status.Conditions[0].Status = corev1.ConditionUnknown }, true},
		"another label":   {func(n *corev1.Node) { n.Labels["disk"] = "slow" }, true},
		"label taken off": {func(n *corev1.Node) { n.Labels = nil }, true},
		"tainted": {func(n *corev1.Node) {
			n.Spec.Taints = []corev1.Taint{{Key: "k", Effect: corev1.TaintEffectNoExecute}}
		}, true},
		"cordoned": {func(n *corev1.Node) { n.Spec.Unschedulable = true }, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			changed := old.DeepCopy()
			test.change(changed)
			if got := nodeTurned(event.UpdateEvent{ObjectOld: old, ObjectNew: changed}); got != test.want {
				t.Errorf("it wakes the controller: %v, want %v", got, test.want)
			}
		})
	}
}
