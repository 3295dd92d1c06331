// Package status says, in a HostPathProvisioner's status, how it goes. It is pure: what was seen in, the status and the
// events of this moment out.
package status

import (
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/v1beta1"
)

// Reasons of the conditions.
const (
	ReasonAvailable        = "RolledOut"
	ReasonNoNodes          = "NoNodes"
	ReasonNoPools          = "NoPools"
	ReasonNotRolledOut     = "NotRolledOut"
	ReasonDeploying        = "Deploying"
	ReasonUpgrading        = "Upgrading"
	ReasonReplacing        = "Replacing"
	ReasonDeleting         = "Deleting"
	ReasonAsExpected       = "AsExpected"
	ReasonRenderFailed     = "RenderFailed"
	ReasonApplyFailed      = "ApplyFailed"
	ReasonSpecViolation    = "SpecViolation"
	ReasonPodsFailing      = "PodsFailing"
	ReasonDeadlineExceeded = "DeadlineExceeded"
	ReasonPoolAbsent       = "PoolAbsent"
	ReasonNotServed        = "NotServed"
	ReasonNotTheSingleton  = "NotTheSingleton"
	ReasonPredecessorRuns  = "PredecessorRuns"
)

// Reasons of the events.
const (
	EventDeployStarted   = "DeployStarted"
	EventUpgradeStarted  = "UpgradeStarted"
	EventHealthy         = "ProvisionerHealthy"
	EventDegraded        = "Degraded"
	EventDeletionBlocked = "DeletionBlocked"
)

// maxMessage is what the API allows in a condition, less a little.
const maxMessage = 32000

// Input is all that a status depends on.
type Input struct {
	// Old is the status as it stands, Generation the resource's.
	Old        v1beta1.HostPathProvisionerStatus
	Generation int64
	Now        time.Time
	// OperatorVersion is the running operator's, TargetVersion that of what it renders.
	OperatorVersion, TargetVersion string
	// Expected are the names of the DaemonSets that were rendered, ExpectedDeployments those of the Deployments; nil when nothing was.
	Expected, ExpectedDeployments []string
	// DaemonSets, Deployments and Pods are the operator's own, Nodes all.
	DaemonSets  []appsv1.DaemonSet
	Deployments []appsv1.Deployment
	Pods        []corev1.Pod
	Nodes       []corev1.Node
	Pools       []Pool
	// NotServed and Violations are the rendering's notes.
	NotServed, Violations []string
	// Replacing are objects that are being made anew.
	Replacing []string
	// RenderError and ApplyError are what went wrong.
	RenderError, ApplyError error
	// Deleting is the gate that holds a deletion, nil when the resource is not being deleted.
	Deleting *Gate
}

// Pool is a pool of the resource.
type Pool struct {
	Name string
	// NotServed and Broken say why it was left out.
	NotServed, Broken string
}

// Gate is what a deletion waits for.
type Gate struct {
	Reason, Message string
	// Blocked says that it will not open by itself at once.
	Blocked bool
}

// Event is something that has just become so.
type Event struct {
	// Type is Normal or Warning.
	Type, Reason, Note string
}

// Of makes the status, and the events of what it changes.
func Of(in Input) (v1beta1.HostPathProvisionerStatus, []Event) {
	status := v1beta1.HostPathProvisionerStatus{
		ObservedGeneration:  in.Generation,
		OperatorVersion:     in.OperatorVersion,
		TargetVersion:       in.TargetVersion,
		ObservedVersion:     in.Old.ObservedVersion,
		StoragePoolStatuses: pools(in),
	}
	if in.RenderError != nil {
		// Which pools are served is not known now, and what runs was left alone.
		status.StoragePoolStatuses = in.Old.StoragePoolStatuses
	}
	// kubevirt's conditions have fields that ours do not; those of other types say nothing about this operator.
	for _, condition := range in.Old.Conditions {
		if condition.Type == v1beta1.Progressing && condition.Status == metav1.ConditionTrue && rolling(in) == nil {
			continue // that was another rollout, and the time of this one begins now
		}
		if slices.Contains([]string{v1beta1.Available, v1beta1.Progressing, v1beta1.Degraded, v1beta1.NotServed, v1beta1.Deleting}, condition.Type) {
			status.Conditions = append(status.Conditions, condition)
		}
	}
	r := roll(in)
	if r.complete && in.RenderError == nil && in.ApplyError == nil {
		status.ObservedVersion = in.TargetVersion
	}
	for _, condition := range []metav1.Condition{
		available(in, r), progressing(in, r), degraded(in, r, status.StoragePoolStatuses), notServed(in), deleting(in.Deleting),
	} {
		if condition.Status == "" {
			meta.RemoveStatusCondition(&status.Conditions, condition.Type)
			continue
		}
		condition.ObservedGeneration = in.Generation
		condition.LastTransitionTime = metav1.NewTime(in.Now)
		condition.Message = cut(condition.Message)
		meta.SetStatusCondition(&status.Conditions, condition)
	}
	return status, events(in, status)
}

// Refused is the status of a resource that has another name than the only one.
func Refused(old v1beta1.HostPathProvisionerStatus, generation int64, now time.Time, message string) v1beta1.HostPathProvisionerStatus {
	status := v1beta1.HostPathProvisionerStatus{ObservedGeneration: generation}
	if condition := meta.FindStatusCondition(old.Conditions, v1beta1.Degraded); condition != nil {
		status.Conditions = append(status.Conditions, *condition)
	}
	meta.SetStatusCondition(&status.Conditions, metav1.Condition{
		Type: v1beta1.Degraded, Status: metav1.ConditionTrue, Reason: ReasonNotTheSingleton, Message: message,
		ObservedGeneration: generation, LastTransitionTime: metav1.NewTime(now),
	})
	return status
}

// Yielded is the status of a resource that is left to kubevirt's operator: its own, as far as the API takes it back, and that it is.
func Yielded(old v1beta1.HostPathProvisionerStatus, generation int64, now time.Time, message string) v1beta1.HostPathProvisionerStatus {
	status := *old.DeepCopy()
	status.Conditions = slices.DeleteFunc(status.Conditions, func(condition metav1.Condition) bool { return condition.Reason == "" })
	meta.SetStatusCondition(&status.Conditions, metav1.Condition{
		Type: v1beta1.Degraded, Status: metav1.ConditionTrue, Reason: ReasonPredecessorRuns, Message: message,
		ObservedGeneration: generation, LastTransitionTime: metav1.NewTime(now),
	})
	return status
}

func notServed(in Input) metav1.Condition {
	condition := metav1.Condition{Type: v1beta1.NotServed}
	if old := meta.FindStatusCondition(in.Old.Conditions, v1beta1.NotServed); old != nil && in.RenderError != nil {
		condition = *old
	}
	if len(in.NotServed) > 0 {
		condition.Status, condition.Reason, condition.Message = metav1.ConditionTrue, ReasonNotServed, strings.Join(in.NotServed, "; ")
	}
	return condition
}

func deleting(gate *Gate) metav1.Condition {
	if gate == nil {
		return metav1.Condition{Type: v1beta1.Deleting}
	}
	return metav1.Condition{Type: v1beta1.Deleting, Status: metav1.ConditionTrue, Reason: gate.Reason, Message: gate.Message}
}

func cut(message string) string {
	if len(message) <= maxMessage {
		return message
	}
	return strings.ToValidUTF8(message[:maxMessage], "") + " …"
}

// events are what became so with this status.
func events(in Input, status v1beta1.HostPathProvisionerStatus) []Event {
	var all []Event
	switch {
	case in.Deleting != nil:
	case meta.FindStatusCondition(in.Old.Conditions, v1beta1.Progressing) == nil:
		all = append(all, Event{corev1.EventTypeNormal, EventDeployStarted, "rolling out version " + in.TargetVersion})
	case in.Old.ObservedVersion != "" && in.Old.TargetVersion != in.TargetVersion:
		all = append(all, Event{corev1.EventTypeNormal, EventUpgradeStarted, "rolling out version " + in.TargetVersion + " over " + in.Old.ObservedVersion})
	}
	if condition, yes := became(v1beta1.Available, in.Old, status); yes {
		all = append(all, Event{corev1.EventTypeNormal, EventHealthy, condition.Message})
	}
	if condition, yes := became(v1beta1.Degraded, in.Old, status); yes {
		all = append(all, Event{corev1.EventTypeWarning, EventDegraded, condition.Message})
	}
	if condition, yes := became(v1beta1.Deleting, in.Old, status); yes && in.Deleting.Blocked {
		all = append(all, Event{corev1.EventTypeWarning, EventDeletionBlocked, condition.Message})
	}
	return all
}

// became gives a condition, and tells whether it has just become true, or true for another reason.
func became(kind string, old, status v1beta1.HostPathProvisionerStatus) (*metav1.Condition, bool) {
	before, now := meta.FindStatusCondition(old.Conditions, kind), meta.FindStatusCondition(status.Conditions, kind)
	if now == nil || now.Status != metav1.ConditionTrue {
		return now, false
	}
	return now, before == nil || before.Status != metav1.ConditionTrue || before.Reason != now.Reason
}
