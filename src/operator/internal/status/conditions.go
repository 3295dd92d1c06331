package status

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/v1beta1"
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
	// failing are pods that will not start by waiting.
	failing []string
}

func roll(in Input) rollout {
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
		i := slices.IndexFunc(in.DaemonSets, func(set appsv1.DaemonSet) bool { return set.Name == name && set.DeletionTimestamp == nil })
		if i < 0 {
			r.count(0, 0, 1, fmt.Sprintf("DaemonSet %s is not there", name))
			continue
		}
		r.add(&in.DaemonSets[i])
	}
	for _, name := range in.ExpectedDeployments {
		if why := behind(in.Deployments, name); why != "" {
			r.complete = false
			r.behind = append(r.behind, why)
		}
	}
	return r
}

// behind says what a Deployment lacks, "" if nothing. It counts for no node: volumes are served without it, they only do not grow.
func behind(deployments []appsv1.Deployment, name string) string {
	i := slices.IndexFunc(deployments, func(d appsv1.Deployment) bool { return d.Name == name && d.DeletionTimestamp == nil })
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
		return fmt.Sprintf("Deployment %s: %d of %d pods are available, %d of this version", name, at.AvailableReplicas, desired, at.UpdatedReplicas)
	default:
		return ""
	}
}

// add counts a DaemonSet.
func (r *rollout) add(set *appsv1.DaemonSet) {
	at := set.Status
	switch {
	case at.ObservedGeneration < set.Generation:
		r.moving = true
		r.count(0, at.NumberAvailable, at.DesiredNumberScheduled, fmt.Sprintf("DaemonSet %s: its change has not been taken up yet", set.Name))
	case at.DesiredNumberScheduled == 0:
		r.complete, r.idle, r.selector = false, true, selector(set)
	case at.UpdatedNumberScheduled < at.DesiredNumberScheduled || at.NumberAvailable < at.DesiredNumberScheduled:
		r.moving = true
		r.count(at.UpdatedNumberScheduled, at.NumberAvailable, at.DesiredNumberScheduled, fmt.Sprintf(
			"DaemonSet %s: %d of %d nodes have an available pod, %d of this version", set.Name, at.NumberAvailable, at.DesiredNumberScheduled, at.UpdatedNumberScheduled))
	default:
		r.count(at.UpdatedNumberScheduled, at.NumberAvailable, at.DesiredNumberScheduled, "")
	}
}

// count takes over the numbers of the DaemonSet that lacks most.
func (r *rollout) count(updated, available, desired int32, behind string) {
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
	var wanted []string
	for key, value := range set.Spec.Template.Spec.NodeSelector {
		wanted = append(wanted, key+"="+value)
	}
	slices.Sort(wanted)
	text := "nodeSelector " + strings.Join(wanted, ",")
	if len(wanted) == 0 {
		text = "no nodeSelector"
	}
	if affinity := set.Spec.Template.Spec.Affinity; affinity != nil && affinity.NodeAffinity != nil {
		text += " and a node affinity"
	}
	return fmt.Sprintf("DaemonSet %s with %s", set.Name, text)
}

func available(in Input, r rollout) metav1.Condition {
	condition := metav1.Condition{Type: v1beta1.Available, Status: metav1.ConditionFalse}
	poolless := noPools(in)
	switch {
	case poolless != "":
		condition.Reason, condition.Message = ReasonNoPools, poolless
	case r.idle:
		condition.Reason = ReasonNoNodes
		condition.Message = "no node of the cluster is one for the " + r.selector + "; label a node, or change spec.workload"
	case r.desired > 0 && r.available >= r.desired:
		condition.Status, condition.Reason = metav1.ConditionTrue, ReasonAvailable
		condition.Message = fmt.Sprintf("the driver runs on every node that it should (%d)", r.desired)
	case r.available > 0 && len(r.failing) == 0 && !overdue(in) && meta.IsStatusConditionTrue(in.Old.Conditions, v1beta1.Available):
		condition.Status, condition.Reason = metav1.ConditionTrue, ReasonAvailable
		condition.Message = fmt.Sprintf("the driver runs on %d of %d nodes; the others are starting", r.available, r.desired)
	default:
		condition.Reason = ReasonNotRolledOut
		condition.Message = strings.Join(r.behind, "; ")
	}
	return condition
}

// noPools says why no pool is served, "" if one is. What could not be rendered says nothing about pools: then it stays as it was.
func noPools(in Input) string {
	if in.RenderError != nil {
		if old := meta.FindStatusCondition(in.Old.Conditions, v1beta1.Available); old != nil && old.Reason == ReasonNoPools {
			return old.Message
		}
		return ""
	}
	var why []string
	for _, pool := range in.Pools {
		if pool.NotServed == "" && pool.Broken == "" {
			return ""
		}
		why = append(why, fmt.Sprintf("pool %q: %s", pool.Name, cmp.Or(pool.NotServed, pool.Broken)))
	}
	if len(why) == 0 {
		return "the resource has no pool; add one to spec.storagePools"
	}
	return "no pool is served: " + strings.Join(why, "; ")
}

// degraded collects all that is wrong. The reason is that of the first.
func degraded(in Input, r rollout, pools []v1beta1.StoragePoolStatus) metav1.Condition {
	condition := metav1.Condition{Type: v1beta1.Degraded, Status: metav1.ConditionFalse, Reason: ReasonAsExpected, Message: "nothing is wrong"}
	var messages []string
	add := func(reason string, found ...string) {
		if len(found) > 0 && len(messages) == 0 {
			condition.Status, condition.Reason = metav1.ConditionTrue, reason
		}
		messages = append(messages, found...)
	}
	if in.RenderError != nil {
		add(ReasonRenderFailed, in.RenderError.Error()+"; what runs is left as it is")
	}
	if in.ApplyError != nil {
		add(ReasonApplyFailed, in.ApplyError.Error())
	}
	add(ReasonSpecViolation, in.Violations...)
	add(ReasonPodsFailing, r.failing...)
	if progressing(in, r).Reason == ReasonDeadlineExceeded {
		add(ReasonDeadlineExceeded, fmt.Sprintf("no further for %s: %s; the events of the DaemonSet and of its pods say why "+
			"(kubectl describe): a namespace without the label pod-security.kubernetes.io/enforce=privileged and a quota refuse pods",
			ProgressDeadline, strings.Join(r.behind, "; ")))
	}
	for _, pool := range pools {
		if i := slices.IndexFunc(in.Pools, func(p Pool) bool { return p.Name == pool.Name && p.Broken == "" }); i >= 0 && pool.Phase == v1beta1.PoolDegraded {
			add(ReasonPoolAbsent, fmt.Sprintf("pool %q: %s", pool.Name, pool.Message))
		}
	}
	if len(messages) > 0 {
		condition.Message = strings.Join(messages, "; ")
	}
	return condition
}
