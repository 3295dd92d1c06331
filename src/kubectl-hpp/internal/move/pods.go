package move

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
)

// problemsOf are pods that nobody would make again, and a claim that goes with its pod.
func problemsOf(claim *corev1.PersistentVolumeClaim, pods []corev1.Pod) (problems []string) {
	for _, owner := range claim.OwnerReferences {
		if owner.Kind == "Pod" {
			problems = append(problems, fmt.Sprintf("the claim is owned by pod %s, and goes with it", owner.Name))
		}
	}
	for _, pod := range pods {
		if metav1.GetControllerOf(&pod) == nil {
			problems = append(problems, fmt.Sprintf("nobody makes pod %s again once it is evicted: delete it "+
				"yourself, move the volume, and make it again", pod.Name))
		}
	}
	return problems
}

// podsOf are the pods that use a claim and have not ended.
func (m *Mover) podsOf(ctx context.Context, namespace, claim string) ([]corev1.Pod, error) {
	all, err := m.API.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("look which pods use claim %s/%s: %w", namespace, claim, err)
	}
	return slices.DeleteFunc(all.Items, func(pod corev1.Pod) bool {
		return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed ||
			!slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool {
				return v.PersistentVolumeClaim != nil && v.PersistentVolumeClaim.ClaimName == claim ||
					v.Ephemeral != nil && pod.Name+"-"+v.Name == claim
			})
	}), nil
}

// clear ends the pods that the move waits for: those that have the volume, and once it is elsewhere those that were
// bound to the node which it has left, where they cannot start any more.
func (m *Mover) clear(ctx context.Context, q Request, is nodeapi.Move) error {
	waits, left := is.Phase == "retain" || is.Phase == "leave", is.Phase == "discard" || is.Phase == "restore"
	if !waits && !left {
		return nil
	}
	pods, err := m.podsOf(ctx, q.Namespace, q.Claim)
	pods = slices.DeleteFunc(pods, func(pod corev1.Pod) bool { return pod.Spec.NodeName != is.From })
	inUse := slices.ContainsFunc(pods, func(pod corev1.Pod) bool {
		return pod.DeletionTimestamp != nil || pod.Status.Phase == corev1.PodRunning
	})
	for i := 0; i < len(pods) && err == nil; i++ {
		pod := pods[i]
		pending := pod.Status.Phase == corev1.PodPending
		switch {
		case pod.DeletionTimestamp != nil:
		case waits && (!pending || !inUse && is.Published): // it may have the volume, and pull its image
			err = m.evict(ctx, pod)
		case left && pending:
			err = m.remove(ctx, pod)
		}
	}
	return err
}

// evict evicts a pod. One that a PodDisruptionBudget keeps is tried again.
func (m *Mover) evict(ctx context.Context, pod corev1.Pod) error {
	if metav1.GetControllerOf(&pod) == nil {
		return fmt.Errorf("pod %s is waited for: nobody would make it again, so delete it yourself", pod.Name)
	}
	err := m.API.PolicyV1().Evictions(pod.Namespace).Evict(ctx, &policyv1.Eviction{
		ObjectMeta:    metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name},
		DeleteOptions: &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &pod.UID}},
	})
	switch {
	case apierrors.IsTooManyRequests(err):
		return fmt.Errorf("pod %s cannot be evicted yet: %w", pod.Name, err)
	case err != nil && !apierrors.IsNotFound(err):
		return fmt.Errorf("evict pod %s: %w", pod.Name, err)
	}
	return nil
}

func (m *Mover) remove(ctx context.Context, pod corev1.Pod) error {
	if metav1.GetControllerOf(&pod) == nil {
		return nil
	}
	err := m.API.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name,
		metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &pod.UID}})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete pod %s, which cannot start on node %s any more: %w", pod.Name, pod.Spec.NodeName, err)
	}
	return nil
}
