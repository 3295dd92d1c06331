package status

import (
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/v1beta1"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/operator/internal/pools"
)

// rollout is how far the DaemonSets and Deployments are.
type rollout struct {
	// complete: every pod is of this version and available. idle: no node is to have a pod.
	complete, idle bool
	// moving: a DaemonSet that is there is not complete.
	moving bool
	// desired, updated and available are nodes, of the DaemonSet that is furthest back.
	desired, updated, available int32
	// behind names the DaemonSets and Deployments that are not complete, selector the nodes of one that is idle.
	behind   []string
	selector string
	// down are Deployments without an available pod, such as the controller.
	down []string
	// failing are pods that will not start by waiting.
	failing []string
}

func countRollout(in Input) rollout {
	r := rollout{complete: true, failing: failing(in.Pods, in.Nodes)}
	expected := in.Expected
	if expected == nil {
		for i := range in.DaemonSets {
			expected = append(expected, in.DaemonSets[i].Name)
		}
	}
	if len(expected) == 0 {
		return rollout{behind: []string{"no DaemonSet has been made yet"}}
	}
	for _, name := range expected {
		i := slices.IndexFunc(in.DaemonSets,
			func(set appsv1.DaemonSet) bool { return set.Name == name && set.DeletionTimestamp == nil })
		if i < 0 {
			r.addCounts(0, 0, 1, fmt.Sprintf("DaemonSet %s is not there", name))
			continue
		}
		r.addDaemonSet(&in.DaemonSets[i])
	}
	for _, name := range in.ExpectedDeployments {
		if !slices.ContainsFunc(in.Deployments, func(d appsv1.Deployment) bool {
			return d.Name == name && d.DeletionTimestamp == nil && d.Status.AvailableReplicas > 0
		}) {
			r.down = append(r.down, name)
		}
		if why := behind(in.Deployments, name); why != "" {
			r.complete = false
			r.behind = append(r.behind, why)
		}
	}
	return r
}

// behind says what a Deployment lacks, "" if nothing. It counts for no node: pods start and end without it, but no
// volume is made, deleted or grown.
func behind(deployments []appsv1.Deployment, name string) string {
	i := slices.IndexFunc(deployments,
		func(d appsv1.Deployment) bool { return d.Name == name && d.DeletionTimestamp == nil })
	if i < 0 {
		return fmt.Sprintf("Deployment %s is not there", name)
	}
	desired, at := int32(1), deployments[i].Status
	if replicas := deployments[i].Spec.Replicas; replicas != nil {
		desired = *replicas
	}
	switch {
	case at.ObservedGeneration < deployments[i].Generation:
		return fmt.Sprintf("Deployment %s: its change has not been taken up yet", name)
	case at.UpdatedReplicas < desired || at.AvailableReplicas < desired:
		return fmt.Sprintf("Deployment %s: %d of %d pods are available, %d of this version", name, at.AvailableReplicas,
			desired, at.UpdatedReplicas)
	default:
		return ""
	}
}

// addDaemonSet counts a DaemonSet.
func (r *rollout) addDaemonSet(set *appsv1.DaemonSet) {
	at := set.Status
	switch {
	case at.ObservedGeneration < set.Generation:
		r.moving = true
		r.addCounts(0, at.NumberAvailable, at.DesiredNumberScheduled,
			fmt.Sprintf("DaemonSet %s: its change has not been taken up yet", set.Name))
	case at.DesiredNumberScheduled == 0:
		r.complete, r.idle, r.selector = false, true, selector(set)
	case at.UpdatedNumberScheduled < at.DesiredNumberScheduled || at.NumberAvailable < at.DesiredNumberScheduled:
		r.moving = true
		r.addCounts(at.UpdatedNumberScheduled, at.NumberAvailable, at.DesiredNumberScheduled, fmt.Sprintf(
			"DaemonSet %s: %d of %d nodes have an available pod, %d of this version", set.Name, at.NumberAvailable,
			at.DesiredNumberScheduled, at.UpdatedNumberScheduled))
	default:
		r.addCounts(at.UpdatedNumberScheduled, at.NumberAvailable, at.DesiredNumberScheduled, "")
	}
}

// addCounts takes over the counts of the DaemonSet that lacks most.
func (r *rollout) addCounts(updated, available, desired int32, behind string) {
	if behind != "" {
		r.complete = false
		r.behind = append(r.behind, behind)
	}
	if r.desired == 0 || desired-available > r.desired-r.available || desired-updated > r.desired-r.updated {
		r.desired, r.updated, r.available = desired, updated, available
	}
}

// selector says which nodes a DaemonSet wants.
func selector(set *appsv1.DaemonSet) string {
	text := "no nodeSelector"
	if wanted := set.Spec.Template.Spec.NodeSelector; len(wanted) > 0 {
		text = "nodeSelector " + labels.Set(wanted).String()
	}
	if affinity := set.Spec.Template.Spec.Affinity; affinity != nil && affinity.NodeAffinity != nil {
		text += " and a node affinity"
	}
	return fmt.Sprintf("DaemonSet %s with %s", set.Name, text)
}

func available(in Input, r rollout) metav1.Condition {
	was := meta.IsStatusConditionTrue(in.Old.Conditions, v1beta1.Available)
	without := noPools(in)
	switch {
	case without != "":
		return condition(v1beta1.Available, false, ReasonNoPools, without)
	case r.idle:
		return condition(v1beta1.Available, false, ReasonNoNodes,
			"no node of the cluster is one for the "+r.selector+"; label a node, or change spec.workload")
	case r.desired > 0 && r.available >= r.desired && len(r.down) == 0:
		return condition(v1beta1.Available, true, ReasonAvailable,
			fmt.Sprintf("the driver runs on every node that it should (%d)", r.desired))
	case r.available > 0 && len(r.failing) == 0 && !overdue(in) && was:
		if r.available >= r.desired {
			return condition(v1beta1.Available, true, ReasonAvailable,
				fmt.Sprintf("the driver runs on every node that it should (%d); starting: Deployment %s", r.desired,
					strings.Join(r.down, ", ")))
		}
		return condition(v1beta1.Available, true, ReasonAvailable,
			fmt.Sprintf("the driver runs on %d of %d nodes; the others are starting", r.available, r.desired))
	}
	return condition(v1beta1.Available, false, ReasonNotRolledOut, strings.Join(r.behind, "; "))
}

// condition is without the time and the generation, which Of sets.
func condition(kind string, is bool, reason, message string) metav1.Condition {
	made := metav1.Condition{Type: kind, Status: metav1.ConditionFalse, Reason: reason, Message: message}
	if is {
		made.Status = metav1.ConditionTrue
	}
	return made
}

// noPools says why no pool is served, "" if one is. What could not be rendered says nothing about pools: then it
// stays as it was.
func noPools(in Input) string {
	if in.RenderError != nil {
		old := meta.FindStatusCondition(in.Old.Conditions, v1beta1.Available)
		if old == nil || old.Reason != ReasonNoPools {
			return ""
		}
		return old.Message
	}
	var why []string
	for _, pool := range in.Pools {
		if pool.Broken == "" {
			return ""
		}
		why = append(why, fmt.Sprintf("pool %q: %s", pool.Name, pool.Broken))
	}
	if len(why) == 0 {
		return "the resource has no pool; add one to spec.storagePools"
	}
	return "no pool is served: " + strings.Join(why, "; ")
}

// degraded collects all that is wrong. The reason is that of the first.
func degraded(in Input, r rollout, states []v1beta1.StoragePoolStatus) metav1.Condition {
	var first string
	var messages []string
	add := func(reason string, found ...string) {
		if len(messages) == 0 {
			first = reason
		}
		messages = append(messages, found...)
	}
	if in.RenderError != nil {
		add(ReasonRenderFailed, in.RenderError.Error()+"; what runs is left as it is")
	}
	if in.ApplyError != nil {
		add(ReasonApplyFailed, in.ApplyError.Error())
	}
	add(ReasonInvalidSpec, in.Violations...)
	add(ReasonPodsFailing, r.failing...)
	if progressing(in, r).Reason == ReasonDeadlineExceeded {
		add(ReasonDeadlineExceeded, fmt.Sprintf("no further for %s: %s; the events of the DaemonSet and of its pods "+
			"say why (kubectl describe): a namespace without the label pod-security.kubernetes.io/enforce=privileged "+
			"and a quota refuse pods", ProgressDeadline, strings.Join(r.behind, "; ")))
	}
	for _, pool := range states {
		fine := func(p pools.Outcome) bool { return p.Name == pool.Name && p.Broken == "" }
		if pool.Phase == v1beta1.PoolDegraded && slices.ContainsFunc(in.Pools, fine) {
			add(ReasonPoolAbsent, fmt.Sprintf("pool %q: %s", pool.Name, pool.Message))
		}
	}
	if len(messages) == 0 {
		return condition(v1beta1.Degraded, false, ReasonAsExpected, "nothing is wrong")
	}
	return condition(v1beta1.Degraded, true, first, strings.Join(messages, "; "))
}
