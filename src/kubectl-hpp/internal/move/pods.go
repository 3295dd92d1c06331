package move

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/kubectl-hpp/internal/pods"
)

// problemsOf are pods that nobody would make again, and a claim that goes with its pod.
func problemsOf(claim *corev1.PersistentVolumeClaim, using []corev1.Pod) (problems []string) {
	for _, owner := range claim.OwnerReferences {
		if owner.Kind == "Pod" {
			problems = append(problems, fmt.Sprintf("the claim is owned by pod %s, and goes with it", owner.Name))
		}
	}
	for _, pod := range using {
		if why := pods.Kept(pod); why != "" {
			problems = append(problems, why)
		}
	}
	return problems
}

// clear ends the pods that the move waits for: those that have the volume, and once it is elsewhere those that were
// bound to the node which it has left, where they cannot start any more.
func (m *Mover) clear(ctx context.Context, q Request, is nodeapi.Move) error {
	if !slices.Contains([]string{"retain", "leave", "discard", "restore"}, is.Phase) {
		return nil
	}
	all, err := pods.Using(ctx, m.API, q.Namespace, q.Claim)
	if err != nil {
		return err
	}
	here := slices.DeleteFunc(all, func(pod corev1.Pod) bool { return pod.Spec.NodeName != is.From })
	if is.Phase == "retain" || is.Phase == "leave" {
		return m.vacate(ctx, here, is.Published)
	}
	return m.unbind(ctx, here)
}

// vacate evicts the pods that have the volume. One that is pending may have it while it pulls its image.
func (m *Mover) vacate(ctx context.Context, here []corev1.Pod, published bool) error {
	published = published && !slices.ContainsFunc(here, func(pod corev1.Pod) bool {
		return pod.DeletionTimestamp != nil || pod.Status.Phase == corev1.PodRunning
	})
	for _, pod := range here {
		if pod.Status.Phase == corev1.PodPending && !published {
			continue
		}
		if err := pods.Evict(ctx, m.API, pod); err != nil {
			return err
		}
	}
	return nil
}

// unbind deletes the pods that wait on the node which the volume has left.
func (m *Mover) unbind(ctx context.Context, here []corev1.Pod) error {
	for _, pod := range here {
		if pod.Status.Phase != corev1.PodPending || pod.DeletionTimestamp != nil || pods.Kept(pod) != "" {
			continue
		}
		err := m.API.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name,
			metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &pod.UID}})
		if err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("delete pod %s, which cannot start on node %s any more: %w", pod.Name, pod.Spec.NodeName,
				err)
		}
	}
	return nil
}
