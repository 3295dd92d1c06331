package status

import (
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/v1beta1"
)

// ProgressDeadline is how long a rollout may go without getting further: since it began, or since a pod last became ready.
const ProgressDeadline = 15 * time.Minute

func progressing(in Input, r rollout) metav1.Condition {
	condition := metav1.Condition{Type: v1beta1.Progressing, Status: metav1.ConditionTrue, Message: strings.Join(r.behind, "; ")}
	missing := len(r.behind) > 0 && (r.updated < r.desired || len(r.failing) == 0)
	switch {
	case in.Deleting != nil:
		condition.Reason, condition.Message = ReasonDeleting, in.Deleting.Message
	case len(in.Replacing) > 0:
		condition.Reason, condition.Message = ReasonReplacing, "made anew, because they cannot be changed: "+strings.Join(in.Replacing, ", ")
	case !missing, !r.moving && failed(in) != "":
		condition.Status, condition.Reason, condition.Message = metav1.ConditionFalse, ReasonAsExpected, "nothing is being rolled out"
		if reason := failed(in); reason != "" {
			condition.Reason = reason
			condition.Message += ": see the condition Degraded"
		}
	case overdue(in):
		condition.Status, condition.Reason = metav1.ConditionFalse, ReasonDeadlineExceeded
		condition.Message = "no further for " + ProgressDeadline.String() + ": " + condition.Message
	default:
		rollingOut(in, r, &condition)
	}
	return condition
}

// failed is the reason why nothing new can come, "" if there is none.
func failed(in Input) string {
	switch {
	case in.RenderError != nil:
		return ReasonRenderFailed
	case in.ApplyError != nil:
		return ReasonApplyFailed
	default:
		return ""
	}
}

func rollingOut(in Input, r rollout, condition *metav1.Condition) {
	if in.Old.ObservedVersion != "" && in.Old.ObservedVersion != in.TargetVersion {
		condition.Reason = ReasonUpgrading
		return
	}
	condition.Reason = ReasonDeploying
	if len(in.Pods) < int(r.desired) {
		condition.Message += "; where pods are missing, the DaemonSet's events say why"
	}
}

// overdue tells whether the rollout that is under way has had its time, or had it already and has not got further since.
func overdue(in Input) bool {
	old := rolling(in)
	switch {
	case old == nil:
		return false
	case old.Status == metav1.ConditionTrue:
		return !in.Now.Before(deadline(in, *old))
	default:
		return old.Reason == ReasonDeadlineExceeded && !lastReady(in.Pods).After(old.LastTransitionTime.Time)
	}
}

// Deadline is when a status has to be looked at again, although nothing may have happened: then its rollout has had its time.
// Zero is never.
func Deadline(in Input, status v1beta1.HostPathProvisionerStatus) time.Time {
	now := meta.FindStatusCondition(status.Conditions, v1beta1.Progressing)
	if now == nil || now.Status != metav1.ConditionTrue || (now.Reason != ReasonDeploying && now.Reason != ReasonUpgrading) {
		return time.Time{}
	}
	return deadline(in, *now)
}

func deadline(in Input, progressing metav1.Condition) time.Time {
	from := progressing.LastTransitionTime.Time
	if ready := lastReady(in.Pods); ready.After(from) {
		from = ready
	}
	return from.Add(ProgressDeadline)
}

// rolling is the condition Progressing as it stands, nil if it is that of another rollout: of an older specification, or of
// another version (or of kubevirt's operator).
func rolling(in Input) *metav1.Condition {
	old := meta.FindStatusCondition(in.Old.Conditions, v1beta1.Progressing)
	if old == nil || old.ObservedGeneration != in.Generation || in.Old.TargetVersion != in.TargetVersion {
		return nil
	}
	return old
}

// lastReady is when a pod last became ready that still is: a rollout over many nodes takes long and yet gets further.
func lastReady(pods []corev1.Pod) time.Time {
	var last time.Time
	for i := range pods {
		for _, condition := range pods[i].Status.Conditions {
			if condition.Type == corev1.PodReady && condition.Status == corev1.ConditionTrue && condition.LastTransitionTime.After(last) {
				last = condition.LastTransitionTime.Time
			}
		}
	}
	return last
}
