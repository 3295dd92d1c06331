package poolclaims

import (
	"slices"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	scheduling "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
)

// Placement is where the driver's pods may run, as its DaemonSet says.
type Placement struct {
	NodeSelector map[string]string   `json:"nodeSelector,omitempty"`
	Affinity     *corev1.Affinity    `json:"affinity,omitempty"`
	Tolerations  []corev1.Toleration `json:"tolerations,omitempty"`
}

// admits reports whether the DaemonSet has a pod on a node in spite of the node's taints with one of the effects: a pod
// is started where neither NoSchedule nor NoExecute is in the way, and stays until NoExecute is. It decides as the
// DaemonSet controller does (kubernetes, pkg/controller/daemon), from the Node alone.
func (p Placement) admits(node *corev1.Node, effects ...corev1.TaintEffect) bool {
	matches, err := nodeaffinity.NewRequiredNodeAffinity(p.NodeSelector, p.Affinity).Match(node)
	if err != nil || !matches {
		return false
	}
	counts := func(taint *corev1.Taint) bool { return slices.Contains(effects, taint.Effect) }
	_, refused := scheduling.FindMatchingUntoleratedTaint(logr.Discard(), node.Spec.Taints,
		slices.Concat(p.Tolerations, ofDaemonSets()), counts, true)
	return !refused
}

// ofDaemonSets are the tolerations that the DaemonSet controller adds to every pod without the host's network. The
// mounters, which no DaemonSet makes, have them from the chart, and every NoExecute beside: they stay for volumes.
func ofDaemonSets() []corev1.Toleration {
	tolerate := func(key string, effect corev1.TaintEffect) corev1.Toleration {
		return corev1.Toleration{Key: key, Operator: corev1.TolerationOpExists, Effect: effect}
	}
	return []corev1.Toleration{
		tolerate(corev1.TaintNodeNotReady, corev1.TaintEffectNoExecute),
		tolerate(corev1.TaintNodeUnreachable, corev1.TaintEffectNoExecute),
		tolerate(corev1.TaintNodeDiskPressure, corev1.TaintEffectNoSchedule),
		tolerate(corev1.TaintNodeMemoryPressure, corev1.TaintEffectNoSchedule),
		tolerate(corev1.TaintNodePIDPressure, corev1.TaintEffectNoSchedule),
		tolerate(corev1.TaintNodeUnschedulable, corev1.TaintEffectNoSchedule),
	}
}
