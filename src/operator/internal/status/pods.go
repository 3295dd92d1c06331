package status

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/names"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/v1beta1"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/operator/internal/gates"
)

const (
	// componentLabel distinguishes the driver's pods from those of the legacy provisioner.
	componentLabel  = "app.kubernetes.io/component"
	driverComponent = "csi-driver"
)

// failing says which pods will not become ready by waiting, and why.
func failing(pods []corev1.Pod, nodes []corev1.Node) []string {
	var found []string
	for i := range pods {
		pod := &pods[i]
		if pod.DeletionTimestamp != nil || podCondition(pod, corev1.PodReady).Status == corev1.ConditionTrue {
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
	scheduled := podCondition(pod, corev1.PodScheduled)
	if scheduled.Status == corev1.ConditionFalse && scheduled.Reason == corev1.PodReasonUnschedulable {
		return "it cannot be scheduled: " + scheduled.Message
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

// podCondition is a condition of a pod, empty if the pod has none of this type.
func podCondition(pod *corev1.Pod, kind corev1.PodConditionType) corev1.PodCondition {
	for _, condition := range pod.Status.Conditions {
		if condition.Type == kind {
			return condition
		}
	}
	return corev1.PodCondition{}
}

func nodeReady(name string, nodes []corev1.Node) bool {
	i := slices.IndexFunc(nodes, func(node corev1.Node) bool { return node.Name == name })
	if i < 0 {
		return false
	}
	ready, _ := gates.NodeReady(&nodes[i])
	return ready
}

// poolStatuses are the state of each pool over all nodes, from the conditions that the controller writes to the
// driver's pods.
func poolStatuses(in Input) []v1beta1.StoragePoolStatus {
	var statuses []v1beta1.StoragePoolStatus
	room := maxClaims
	for _, pool := range in.Pools {
		if slices.ContainsFunc(statuses, func(s v1beta1.StoragePoolStatus) bool { return s.Name == pool.Name }) {
			continue // an old violation, named in the condition; the list is a map by name
		}
		status := v1beta1.StoragePoolStatus{Name: pool.Name, ClaimStatuses: claimStatuses(in, pool.Name, room)}
		room -= len(status.ClaimStatuses)
		switch {
		case pool.Broken != "":
			status.Phase, status.Message = v1beta1.PoolDegraded, pool.Broken
		default:
			countPool(in, &status)
		}
		status.Message = shortenMessage(status.Message)
		statuses = append(statuses, status)
	}
	return statuses
}

// tally is how a pool is on the nodes.
type tally struct {
	// blockers are those of the nodes that have not been counted yet.
	blockers map[string]blocker
	asked    int
	present  int32
	// lacking are the nodes without the pool, by why; without a reason the node is not ready. Of silent nodes nothing
	// is known: they have not said yet, or are not connected to the controller.
	lacking map[blocker][]string
	silent  []string
}

// countPool looks at every pod of the driver for how a pool is. Where it is not there, and a claim is to provide it,
// what the claim and its mounter lack says more.
func countPool(in Input, status *v1beta1.StoragePoolStatus) {
	kind := corev1.PodConditionType(names.PoolCondition + status.Name)
	found, general := blockers(in, status.Name)
	t := tally{blockers: found, lacking: map[blocker][]string{}}
	for i := range in.Pods {
		pod := &in.Pods[i]
		if pod.DeletionTimestamp != nil || pod.Labels[componentLabel] != driverComponent {
			continue
		}
		t.asked++
		t.addNode(pod.Spec.NodeName, podCondition(pod, kind), in.Nodes)
	}
	for node, left := range t.blockers {
		t.lacking[left] = append(t.lacking[left], node)
	}
	status.CurrentReady = t.present
	status.DesiredReady = t.present + int32(len(t.silent))
	for _, nodes := range t.lacking {
		status.DesiredReady += int32(len(nodes))
	}
	status.Phase, status.Message = t.phase(general)
}

// addNode counts a node of which this is reported.
func (t *tally) addNode(node string, said corev1.PodCondition, nodes []corev1.Node) {
	found, hindered := t.blockers[node]
	delete(t.blockers, node)
	switch {
	case said.Type == "" && !hindered:
		t.silent = append(t.silent, node)
	case said.Reason == names.PoolNotSelected:
	case said.Type != "" && !nodeReady(node, nodes):
		t.lacking[blocker{wrong: true}] = append(t.lacking[blocker{wrong: true}], node)
	case said.Status == corev1.ConditionUnknown && !hindered:
		t.silent = append(t.silent, node)
	case said.Status == corev1.ConditionTrue && said.Reason != names.PoolDegraded:
		t.present++
	case hindered:
		t.lacking[found] = append(t.lacking[found], node)
	default:
		why := blocker{said.Message, true}
		t.lacking[why] = append(t.lacking[why], node)
	}
}

// sentences are about nodes without the pool: what is wrong, and what they wait for. Nodes that share a claim have the
// same reason.
func (t *tally) sentences() (wrong, waits []string) {
	for why, nodes := range t.lacking {
		slices.Sort(nodes)
		sentence, is := "node "+nodes[0], " is not ready"
		if len(nodes) > 1 {
			sentence, is = "nodes "+gates.List(nodes), " are not ready"
		}
		if why.text != "" {
			is = ": " + why.text
		}
		if sentence += is; why.wrong {
			wrong = append(wrong, sentence)
		} else {
			waits = append(waits, sentence)
		}
	}
	slices.Sort(wrong)
	slices.Sort(waits)
	return wrong, waits
}

// phase takes what is wrong with the pool on no node in particular.
func (t *tally) phase(general []string) (v1beta1.StoragePoolPhase, string) {
	wrong, waits := t.sentences()
	slices.Sort(t.silent)
	switch {
	case len(general)+len(wrong) > 0:
		return v1beta1.PoolDegraded, strings.Join(slices.Concat(general, wrong, waits), "; ")
	case len(waits) > 0:
		return v1beta1.PoolPreparing, strings.Join(waits, "; ")
	case len(t.silent) > 0:
		return v1beta1.PoolPreparing, "waits for a report from the nodes " + strings.Join(t.silent, ", ")
	case t.asked == 0:
		return v1beta1.PoolPreparing, "the driver runs on no node yet"
	case t.present == 0:
		return v1beta1.PoolPreparing, "no node that runs the driver is selected for it"
	default:
		return v1beta1.PoolReady, ""
	}
}
