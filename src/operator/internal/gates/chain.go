package gates

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/names"
)

// DeadNodeTimeout is how long volumes and pods block a deletion when their node is gone or NotReady: nothing on such
// a node can be removed, and it may never come back. It is counted from the deletion timestamp, or from when the last
// of their nodes stopped being ready if that was later: a node that restarts while something else blocks the deletion
// comes back.
const DeadNodeTimeout = 10 * time.Minute

// Names of the gates, in the order in which they have to open.
const (
	// VolumesGone has to open before the workloads are deleted.
	VolumesGone = "VolumesGone"
	// NestedEnded has to open before the driver is deleted: it unmounts what these mounters use.
	NestedEnded = "NestedEnded"
	// PodsEnded has to open before the mounters are deleted: they keep in place what the driver's pods use.
	PodsEnded = "PodsEnded"
	// MountersEnded has to open before the last of the workloads can be gone.
	MountersEnded = "MountersEnded"
	// WorkloadsGone has to open before everything else, and at last the finalizer, is removed: Helm, or the next
	// resource, may make workloads of the same names at once.
	WorkloadsGone = "WorkloadsGone"
)

// Reasons of a closed gate, fit for a condition.
const (
	ReasonVolumesLeft     = "VolumesLeft"
	ReasonPodsRunning     = "PodsRunning"
	ReasonWaitingForNodes = "WaitingForNodes"
	ReasonWorkloadsLeft   = "WorkloadsLeft"
)

// Deletion is what is known about a HostPathProvisioner that is being deleted.
type Deletion struct {
	// Now is the time of the decision.
	Now time.Time
	// Since is the resource's deletion timestamp.
	Since time.Time
	// Annotations are the resource's; names.ForceDelete opens the gate of the volumes.
	Annotations map[string]string
	// Volumes are all that Volumes found.
	Volumes []Volume
	// Pods are those of the driver and of the legacy provisioner, on all nodes.
	Pods []corev1.Pod
	// Nested are the pods that put claims at the places of pools, where those are volumes of our own driver; Mounters
	// are those with other claims.
	Nested, Mounters []corev1.Pod
	// Workloads are the resource's DaemonSets and Deployments, by kind and name.
	Workloads []string
	// Nodes are all nodes of the cluster.
	Nodes []corev1.Node
}

// Gate is one thing that has to be over before a deletion goes on.
type Gate struct {
	// Name is one of those above.
	Name string
	// Open says that this gate does not block the deletion any more.
	Open bool
	// Reason is a CamelCase identifier of what keeps it closed, "" of an open one.
	Reason string
	// Message is a sentence for the condition Deleting, and of what is left for an event.
	Message string
	// Deadline is when a closed gate opens by itself. Zero: never.
	Deadline time.Time
	// Left says, for an event, what an open gate leaves behind. Empty: nothing.
	Left string
}

// Forced reports whether annotations allow a resource, or a pool of it, to go although volumes are left.
func Forced(annotations map[string]string) bool { return annotations[names.ForceDelete] == "true" }

// Chain are all gates in their order. Those of mounters and of workloads are there only where there are any.
func (d Deletion) Chain() []Gate {
	chain := []Gate{d.VolumesGone()}
	if len(d.Nested) > 0 {
		chain = append(chain, d.podsEnded(NestedEnded, d.Nested))
	}
	chain = append(chain, d.podsEnded(PodsEnded, d.Pods))
	if len(d.Mounters) > 0 {
		chain = append(chain, d.podsEnded(MountersEnded, d.Mounters))
	}
	if len(d.Workloads) > 0 {
		chain = append(chain, d.workloadsGone())
	}
	return chain
}

// workloadsGone waits for the garbage collector. That waits for pods in turn, on a dead node for ever.
func (d Deletion) workloadsGone() Gate {
	var since time.Time
	dead := func(pod corev1.Pod) bool { return pod.Spec.NodeName != "" && d.allDead(&since, pod.Spec.NodeName) }
	if slices.ContainsFunc(slices.Concat(d.Nested, d.Pods, d.Mounters), dead) {
		return Gate{Name: WorkloadsGone, Open: true, Message: "workloads are left on nodes that are gone or not ready"}
	}
	return Gate{
		Name: WorkloadsGone, Reason: ReasonWorkloadsLeft,
		Message: "waits for the garbage collector to remove " + List(d.Workloads),
	}
}

// VolumesGone is the gate of the volumes. Asked for a deletion that began at the zero time it says whether volumes
// stand in the way of something that is not being deleted yet.
func (d Deletion) VolumesGone() Gate {
	gate := Gate{Name: VolumesGone}
	deadline := d.Since
	live := matching(d.Volumes, func(volume Volume) bool { return !d.allDead(&deadline, volume.Nodes...) })
	deadline = deadline.Add(DeadNodeTimeout)
	switch {
	case len(d.Volumes) == 0:
		gate.Open, gate.Message = true, "no volumes are left"
	case Forced(d.Annotations):
		gate.Open, gate.Left = true, Describe(d.Volumes)
		gate.Message = fmt.Sprintf("the annotation %s lets it go with %s left", names.ForceDelete, Count(d.Volumes))
	case len(live) > 0:
		gate.Reason = ReasonVolumesLeft
		gate.Message = fmt.Sprintf(
			"%s left: %s; delete the claims, or set the annotation %s to \"true\" to leave the data on the nodes",
			Count(d.Volumes), Describe(d.Volumes), names.ForceDelete)
	case d.Now.Before(deadline):
		gate.Reason, gate.Deadline = ReasonWaitingForNodes, deadline
		gate.Message = fmt.Sprintf("%s left on nodes that are gone or not ready: %s; waits for the nodes until %s",
			Count(d.Volumes), Describe(d.Volumes), formatTime(gate.Deadline))
	default:
		gate.Open, gate.Left = true, Describe(d.Volumes)
		gate.Message = fmt.Sprintf("%s left on nodes that are gone, or not ready for %s or more: goes on without them",
			Count(d.Volumes), DeadNodeTimeout)
	}
	return gate
}

// podsEnded waits for pods to end.
func (d Deletion) podsEnded(name string, pods []corev1.Pod) Gate {
	var live, dead []string
	deadline := d.Since
	for i := range pods {
		pod := &pods[i]
		text := fmt.Sprintf("%s/%s on %s", pod.Namespace, pod.Name, orNone(pod.Spec.NodeName))
		switch {
		case pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed:
		case pod.Spec.NodeName != "" && d.allDead(&deadline, pod.Spec.NodeName):
			dead = append(dead, text)
		default:
			live = append(live, text)
		}
	}
	slices.Sort(live)
	slices.Sort(dead)
	deadline = deadline.Add(DeadNodeTimeout)
	gate := Gate{Name: name}
	switch {
	case len(live) > 0:
		gate.Reason, gate.Message = ReasonPodsRunning, "waits for pods to end: "+List(live)
	case len(dead) == 0:
		gate.Open, gate.Message = true, "all pods have ended"
	case d.Now.Before(deadline):
		gate.Reason, gate.Deadline = ReasonWaitingForNodes, deadline
		gate.Message = fmt.Sprintf(
			"pods are left on nodes that are gone or not ready: %s; waits for the nodes until %s", List(dead),
			formatTime(gate.Deadline))
	default:
		gate.Open, gate.Left = true, List(dead)
		gate.Message = fmt.Sprintf(
			"pods are left on nodes that are gone, or not ready for %s or more: goes on without them", DeadNodeTimeout)
	}
	return gate
}

// allDead reports whether none of the nodes can do anything, and then moves latest to when the last of them stopped.
// Without a node to name nobody is dead. A node without an object is gone since it is not known when.
func (d Deletion) allDead(latest *time.Time, wanted ...string) bool {
	last := *latest
	for i := range d.Nodes {
		node := &d.Nodes[i]
		if !OnNode(wanted, node) {
			continue
		}
		ready, since := NodeReady(node)
		if ready {
			return false
		}
		if since.After(last) {
			last = since
		}
	}
	if len(wanted) == 0 {
		return false
	}
	*latest = last
	return true
}

// OnNode reports whether a node is one of those that a volume or a pod is tied to. Legacy volumes are tied to a node by
// its host name, which is the node's name nearly everywhere.
func OnNode(wanted []string, node *corev1.Node) bool {
	return slices.Contains(wanted, node.Name) || slices.Contains(wanted, node.Labels[corev1.LabelHostname])
}

// NodeReady reports whether a node is ready, and since when it is or is not. A node that has never reported is not
// ready since it was made.
func NodeReady(node *corev1.Node) (bool, time.Time) {
	for _, condition := range node.Status.Conditions {
		if condition.Type == corev1.NodeReady {
			return condition.Status == corev1.ConditionTrue, condition.LastTransitionTime.Time
		}
	}
	return false, node.CreationTimestamp.Time
}

func formatTime(at time.Time) string { return at.UTC().Format(time.RFC3339) }

func orNone(node string) string {
	if node == "" {
		return "no node yet"
	}
	return node
}
