// Package pods knows who uses a claim, and ends them by eviction, with the rights of the user.
package pods

import (
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	scheduling "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/klog/v2"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/kubectl-hpp/internal/facts"
)

// ErrNotYet is for a pod that a PodDisruptionBudget keeps for now.
var ErrNotYet = errors.New("it cannot be evicted yet")

// Using are the pods that use a claim and have not ended.
func Using(ctx context.Context, api kubernetes.Interface, namespace, claim string) ([]corev1.Pod, error) {
	all, err := api.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("look which pods use claim %s/%s: %w", namespace, claim, err)
	}
	return slices.DeleteFunc(all.Items, func(pod corev1.Pod) bool {
		return ended(pod) || !slices.Contains(facts.ClaimsOf(pod), claim)
	}), nil
}

func ended(pod corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

// Kept is why a pod must not be evicted, "" of one that is made again.
func Kept(pod corev1.Pod) string {
	if metav1.GetControllerOf(&pod) != nil {
		return ""
	}
	return fmt.Sprintf("pod %s has no owner that would make it again once it is evicted: delete it yourself, and make "+
		"it again afterwards", pod.Name)
}

// untoleratedTaint is a taint of a node that keeps a pod out.
func untoleratedTaint(pod corev1.Pod, node *corev1.Node) (corev1.Taint, bool) {
	keepsOut := func(t *corev1.Taint) bool { return t.Effect != corev1.TaintEffectPreferNoSchedule }
	return scheduling.FindMatchingUntoleratedTaint(klog.Background(), node.Spec.Taints, pod.Spec.Tolerations, keepsOut,
		true)
}

// leftOut reports whether a pod's nodeSelector or affinity leaves a node out.
func leftOut(pod corev1.Pod, node *corev1.Node) bool {
	fits, err := nodeaffinity.GetRequiredNodeAffinity(&pod).Match(node)
	return err == nil && !fits
}

// Evict begins to end a pod, unless it is Kept. ErrNotYet is to be tried again; one that ends or is gone is no error.
func Evict(ctx context.Context, api kubernetes.Interface, pod corev1.Pod) error {
	if pod.DeletionTimestamp != nil {
		return nil
	}
	if why := Kept(pod); why != "" {
		return errors.New(why)
	}
	err := api.PolicyV1().Evictions(pod.Namespace).Evict(ctx, &policyv1.Eviction{
		ObjectMeta:    metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name},
		DeleteOptions: &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &pod.UID}},
	})
	switch {
	case apierrors.IsTooManyRequests(err):
		return fmt.Errorf("pod %s: %w: %w", pod.Name, ErrNotYet, err)
	case err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err): // another one has its name
		return fmt.Errorf("evict pod %s: %w", pod.Name, err)
	}
	return nil
}
