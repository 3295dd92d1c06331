package harness

import (
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/names"
)

// apart takes conditions of pools, which a real controller has given a pod, from all others.
func apart(all []corev1.PodCondition) (others, pools []corev1.PodCondition) {
	for _, c := range all {
		if strings.HasPrefix(string(c.Type), names.PoolCondition) {
			pools = append(pools, c)
		} else {
			others = append(others, c)
		}
	}
	return others, pools
}

// plain leaves out when a condition changed.
func plain(conditions []corev1.PodCondition) []corev1.PodCondition {
	all := make([]corev1.PodCondition, 0, len(conditions))
	for _, c := range conditions {
		all = append(all, corev1.PodCondition{Type: c.Type, Status: c.Status, Reason: c.Reason, Message: c.Message})
	}
	return all
}
