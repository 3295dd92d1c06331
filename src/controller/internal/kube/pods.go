package kube

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	applycore "k8s.io/client-go/applyconfigurations/core/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/names"
)

func stripPod(o *corev1.Pod) *pod {
	is := &pod{ObjectMeta: stripMeta(&o.ObjectMeta), node: o.Spec.NodeName}
	is.CreationTimestamp, is.DeletionTimestamp = o.CreationTimestamp, o.DeletionTimestamp
	for _, condition := range o.Status.Conditions {
		if strings.HasPrefix(string(condition.Type), names.PoolCondition) {
			is.conditions = append(is.conditions, condition)
		}
	}
	return is
}

// Pod gives the driver's pod on a node, the newest where one is being replaced, and its conditions of pools; name is ""
// where there is none.
func (c *Cluster) Pod(node string) (name string, conditions []corev1.PodCondition) {
	objects, _ := c.pods.ByIndex(byNode, node) // fails only for an index that does not exist
	var newest *pod
	for _, object := range objects {
		if p, ok := object.(*pod); ok && (newest == nil || newest.CreationTimestamp.Before(&p.CreationTimestamp)) {
			newest = p
		}
	}
	if newest == nil {
		return "", nil
	}
	return newest.Name, newest.conditions
}

// SetConditions makes these a pod's conditions of pools, in one request. It is a server-side apply, so those of earlier
// ones that are not among them go, and everybody else's stay.
func (c *Cluster) SetConditions(ctx context.Context, name string, conditions []corev1.PodCondition) error {
	status := applycore.PodStatus()
	for _, is := range conditions {
		status.WithConditions(applycore.PodCondition().WithType(is.Type).WithStatus(is.Status).WithReason(is.Reason).
			WithMessage(shorten(is.Message)).WithLastTransitionTime(is.LastTransitionTime))
	}
	_, err := c.api.CoreV1().Pods(c.PodNamespace).ApplyStatus(ctx,
		applycore.Pod(name, c.PodNamespace).WithStatus(status), metav1.ApplyOptions{FieldManager: manager, Force: true})
	if err != nil {
		return fmt.Errorf("apply the conditions of pod %s/%s: %w", c.PodNamespace, name, err)
	}
	return nil
}
