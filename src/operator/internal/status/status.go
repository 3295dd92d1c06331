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
	"github.com/hostpath-provisioner/hostpath-provisioner/src/operator/internal/gates"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/operator/internal/poolclaims"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/operator/internal/pools"
)

// Reasons of the conditions.
const (
	ReasonAvailable            = "RolledOut"
	ReasonNoNodes              = "NoNodes"
	ReasonNoPools              = "NoPools"
	ReasonNotRolledOut         = "NotRolledOut"
	ReasonDeploying            = "Deploying"
	ReasonUpgrading            = "Upgrading"
	ReasonReplacing            = "Replacing"
	ReasonDeleting             = "Deleting"
	ReasonAsExpected           = "AsExpected"
	ReasonRenderFailed         = "RenderFailed"
	ReasonApplyFailed          = "ApplyFailed"
	ReasonInvalidSpec          = "InvalidSpec"
	ReasonPodsFailing          = "PodsFailing"
	ReasonDeadlineExceeded     = "DeadlineExceeded"
	ReasonPoolAbsent           = "PoolAbsent"
	ReasonNotServed            = "NotServed"
	ReasonUnsupportedName      = "UnsupportedName"
	ReasonKubevirtOperatorRuns = "KubevirtOperatorRuns"
	ReasonKubevirtRuns         = "KubevirtRuns"
	ReasonDowngradeRefused     = "DowngradeRefused"
	ReasonServedElsewhere      = "ServedElsewhere"
)

// Reasons of the events.
const (
	EventDeployStarted   = "DeployStarted"
	EventUpgradeStarted  = "UpgradeStarted"
	EventHealthy         = "ProvisionerHealthy"
	EventDegraded        = "Degraded"
	EventDeletionBlocked = "DeletionBlocked"
	EventWebhookRefuses  = "KubevirtWebhookRefuses"
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
	// Expected are the names of the DaemonSets that were rendered, ExpectedDeployments those of the Deployments; nil
	// when nothing was.
	Expected, ExpectedDeployments []string
	// DaemonSets and Deployments are the operator's own, Pods and Mounters their pods, Nodes all.
	DaemonSets     []appsv1.DaemonSet
	Deployments    []appsv1.Deployment
	Pods, Mounters []corev1.Pod
	Nodes          []corev1.Node
	Pools          []pools.Outcome
	// Claims are those that provide pools.
	Claims poolclaims.State
	// NotServed and Violations are the rendering's notes.
	NotServed, Violations []string
	// Replacing are objects that are being made anew.
	Replacing []string
	// RenderError and ApplyError are what went wrong.
	RenderError, ApplyError error
	// Deleting is the gate that blocks a deletion, nil when the resource is not being deleted.
	Deleting *gates.Gate
}

// Event is something that has just become so.
type Event struct {
	// Type is Normal or Warning.
	Type, Reason, Note string
}

// Compute makes the status, and the events of what it changes.
func Compute(in Input) (v1beta1.HostPathProvisionerStatus, []Event) {
	status := v1beta1.HostPathProvisionerStatus{
		ObservedGeneration:  in.Generation,
		OperatorVersion:     in.OperatorVersion,
		TargetVersion:       in.TargetVersion,
		ObservedVersion:     in.Old.ObservedVersion,
		StoragePoolStatuses: poolStatuses(in),
	}
	if in.RenderError != nil {
		// Which pools are served is not known now, and what runs was left alone.
		status.StoragePoolStatuses = in.Old.StoragePoolStatuses
	}
	// kubevirt's conditions have fields that ours do not; those of other types say nothing about this operator.
	for _, condition := range slices.DeleteFunc(slices.Clone(in.Old.Conditions), incomplete) {
		if condition.Type == v1beta1.Progressing && condition.Status == metav1.ConditionTrue && rolling(in) == nil {
			continue // that was another rollout, and the time of this one begins now
		}
		switch condition.Type {
		case v1beta1.Available, v1beta1.Progressing, v1beta1.Degraded, v1beta1.NotServed, v1beta1.Deleting:
			status.Conditions = append(status.Conditions, condition)
		}
	}
	r := countRollout(in)
	if r.complete && in.RenderError == nil && in.ApplyError == nil {
		status.ObservedVersion = in.TargetVersion
	}
	for _, condition := range []metav1.Condition{
		available(in, r), progressing(in, r), degraded(in, r, status.StoragePoolStatuses),
		notServed(in), deleting(in.Deleting),
	} {
		if condition.Status == "" {
			meta.RemoveStatusCondition(&status.Conditions, condition.Type)
			continue
		}
		condition.ObservedGeneration = in.Generation
		condition.LastTransitionTime = metav1.NewTime(in.Now)
		condition.Message = shortenMessage(condition.Message)
		meta.SetStatusCondition(&status.Conditions, condition)
	}
	return status, events(in, status)
}

// LeftAlone is the status of a resource that this operator leaves alone, for a reason of Degraded, and the event of it
// if the reason is new. Of the old status it keeps what the API takes back. A resource of another name than the only
// one (UnsupportedName) has no other status.
func LeftAlone(resource *v1beta1.HostPathProvisioner, now time.Time, reason, message string) (
	v1beta1.HostPathProvisionerStatus, []Event,
) {
	old, status := resource.Status, *resource.Status.DeepCopy()
	if reason == ReasonUnsupportedName {
		status = v1beta1.HostPathProvisionerStatus{ObservedGeneration: resource.Generation}
		if condition := meta.FindStatusCondition(old.Conditions, v1beta1.Degraded); condition != nil {
			status.Conditions = append(status.Conditions, *condition)
		}
	}
	status.Conditions = slices.DeleteFunc(status.Conditions, incomplete)
	meta.SetStatusCondition(&status.Conditions, metav1.Condition{
		Type: v1beta1.Degraded, Status: metav1.ConditionTrue, Reason: reason, Message: message,
		ObservedGeneration: resource.Generation, LastTransitionTime: metav1.NewTime(now),
	})
	if _, yes := became(v1beta1.Degraded, old, status); !yes {
		return status, nil
	}
	return status, []Event{{Type: corev1.EventTypeWarning, Reason: EventDegraded, Note: message}}
}

// incomplete reports whether a condition lacks what our definition demands and kubevirt's does not.
func incomplete(c metav1.Condition) bool { return c.Reason == "" || c.LastTransitionTime.IsZero() }

func notServed(in Input) metav1.Condition {
	if len(in.NotServed) > 0 {
		return condition(v1beta1.NotServed, true, ReasonNotServed, strings.Join(in.NotServed, "; "))
	}
	if old := meta.FindStatusCondition(in.Old.Conditions, v1beta1.NotServed); in.RenderError != nil && old != nil &&
		old.Reason == ReasonNotServed {
		return *old
	}
	return metav1.Condition{Type: v1beta1.NotServed}
}

func deleting(gate *gates.Gate) metav1.Condition {
	if gate == nil {
		return metav1.Condition{Type: v1beta1.Deleting}
	}
	return condition(v1beta1.Deleting, true, gate.Reason, gate.Message)
}

func shortenMessage(message string) string {
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
		note := "rolling out version " + in.TargetVersion + " over " + in.Old.ObservedVersion
		all = append(all, Event{corev1.EventTypeNormal, EventUpgradeStarted, note})
	}
	if condition, yes := became(v1beta1.Available, in.Old, status); yes {
		all = append(all, Event{corev1.EventTypeNormal, EventHealthy, condition.Message})
	}
	if condition, yes := became(v1beta1.Degraded, in.Old, status); yes {
		all = append(all, Event{corev1.EventTypeWarning, EventDegraded, condition.Message})
	}
	if condition, yes := became(v1beta1.Deleting, in.Old, status); yes &&
		in.Deleting.Reason != gates.ReasonPodsRunning {
		all = append(all, Event{corev1.EventTypeWarning, EventDeletionBlocked, condition.Message})
	}
	return all
}

// became gives a condition, and reports whether it has just become true, or true for another reason.
func became(kind string, old, status v1beta1.HostPathProvisionerStatus) (*metav1.Condition, bool) {
	before, now := meta.FindStatusCondition(old.Conditions, kind), meta.FindStatusCondition(status.Conditions, kind)
	if now == nil || now.Status != metav1.ConditionTrue {
		return now, false
	}
	return now, before == nil || before.Status != metav1.ConditionTrue || before.Reason != now.Reason
}
