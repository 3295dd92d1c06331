package status

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/names"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/v1beta1"
)

const (
	// componentLabel tells the driver's pods from those of the legacy provisioner.
	componentLabel  = "app.kubernetes.io/component"
	driverComponent = "csi-driver"
)

// failing says which pods will not become ready by waiting, and why.
func failing(pods []corev1.Pod, nodes []corev1.Node) []string {
	var found []string
	for i := range pods {
		pod := &pods[i]
		if pod.DeletionTimestamp != nil || isReady(pod) {
			continue
		}
		if why := trouble(pod, nodes); why != "" {
			found = append(found, fmt.Sprintf("pod %s on node %s: %s", pod.Name, pod.Spec.NodeName, why))
		}
	}
	slices.Sort(found)
	return found
}

func trouble(pod *corev1.Pod, nodes []corev1.Node) string {
	switch {
	case pod.Spec.NodeName != "" && !nodeReady(pod.Spec.NodeName, nodes):
		return "the node is not ready"
	case pod.Status.Phase == corev1.PodFailed:
		return strings.TrimSpace("it failed: " + pod.Status.Reason + " " + pod.Status.Message)
	}
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodScheduled && condition.Status == corev1.ConditionFalse && condition.Reason == corev1.PodReasonUnschedulable {
			return "it cannot be scheduled: " + condition.Message
		}
	}
	for _, container := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		if why := containerTrouble(container); why != "" {
			return fmt.Sprintf("container %s: %s", container.Name, why)
		}
	}
	return ""
}

func containerTrouble(container corev1.ContainerStatus) string {
	waiting := container.State.Waiting
	switch {
	case waiting != nil && !slices.Contains([]string{"", "ContainerCreating", "PodInitializing"}, waiting.Reason):
		return strings.TrimSuffix(waiting.Reason+": "+waiting.Message, ": ")
	case !container.Ready && container.RestartCount > 0:
		why := fmt.Sprintf("it was restarted %d times", container.RestartCount)
		if last := container.LastTerminationState.Terminated; last != nil {
			why += fmt.Sprintf(", last after it ended with code %d", last.ExitCode)
		}
		return why + "; see its log"
	default:
		return ""
	}
}

func isReady(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(condition corev1.PodCondition) bool {
		return condition.Type == corev1.PodReady && condition.Status == corev1.ConditionTrue
	})
}

func nodeReady(name string, nodes []corev1.Node) bool {
	i := slices.IndexFunc(nodes, func(node corev1.Node) bool { return node.Name == name })
	return i >= 0 && slices.ContainsFunc(nodes[i].Status.Conditions, func(condition corev1.NodeCondition) bool {
		return condition.Type == corev1.NodeReady && condition.Status == corev1.ConditionTrue
	})
}

// pools is the state of each pool over all nodes, from what the driver's pods say of themselves.
func pools(in Input) []v1beta1.StoragePoolStatus {
	var statuses []v1beta1.StoragePoolStatus
	for _, pool := range in.Pools {
		if slices.ContainsFunc(statuses, func(status v1beta1.StoragePoolStatus) bool { return status.Name == pool.Name }) {
			continue // an old violation, named in the condition; the list is a map by name
		}
		status := v1beta1.StoragePoolStatus{Name: pool.Name}
		switch {
		case pool.NotServed != "":
			status.Phase, status.Message = v1beta1.PoolNotServed, pool.NotServed
		case pool.Broken != "":
			status.Phase, status.Message = v1beta1.PoolDegraded, pool.Broken
		default:
			count(in, &status)
		}
		status.Message = cut(status.Message)
		statuses = append(statuses, status)
	}
	return statuses
}

// count asks every pod of the driver how a pool is.
func count(in Input, status *v1beta1.StoragePoolStatus) {
	var wrong, silent []string
	asked := 0
	for i := range in.Pods {
		pod := &in.Pods[i]
		if pod.DeletionTimestamp != nil || pod.Labels[componentLabel] != driverComponent {
			continue
		}
		asked++
		node := pod.Spec.NodeName
		switch condition := poolCondition(pod, status.Name); {
		case condition == nil:
			silent = append(silent, node)
		case condition.Reason == names.PoolNotSelected:
		case !nodeReady(node, in.Nodes):
			wrong = append(wrong, fmt.Sprintf("node %s is not ready", node))
		case condition.Status == corev1.ConditionTrue && condition.Reason != names.PoolDegraded:
			status.CurrentReady++
		default:
			wrong = append(wrong, fmt.Sprintf("node %s: %s", node, condition.Message))
		}
	}
	slices.Sort(wrong)
	slices.Sort(silent)
	status.DesiredReady = status.CurrentReady + int32(len(wrong)+len(silent))
	status.Phase, status.Message = phase(wrong, silent, asked, status.CurrentReady)
}

func phase(wrong, silent []string, asked int, present int32) (v1beta1.StoragePoolPhase, string) {
	switch {
	case len(wrong) > 0:
		return v1beta1.PoolDegraded, strings.Join(wrong, "; ")
	case len(silent) > 0:
		return v1beta1.PoolPreparing, "waits for word from the nodes " + strings.Join(silent, ", ")
	case asked == 0:
		return v1beta1.PoolPreparing, "the driver runs on no node yet"
	case present == 0:
		return v1beta1.PoolPreparing, "no node that runs the driver is selected for it"
	default:
		return v1beta1.PoolReady, ""
	}
}

func poolCondition(pod *corev1.Pod, pool string) *corev1.PodCondition {
	for i := range pod.Status.Conditions {
		if string(pod.Status.Conditions[i].Type) == names.PoolCondition+pool {
			return &pod.Status.Conditions[i]
		}
	}
	return nil
}
