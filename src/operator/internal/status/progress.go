package status

import (
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/v1beta1"
)

// ProgressDeadline is how long a rollout may go without getting further: since it began, or since a pod last became
// ready.
const ProgressDeadline = 15 * time.Minute

func progressing(in Input, r rollout) metav1.Condition {
	const kind, nothing = v1beta1.Progressing, "nothing is being rolled out"
	behind := strings.Join(r.behind, "; ")
	missing := len(r.behind) > 0 && (r.updated < r.desired || len(r.failing) == 0)
	switch {
	case in.Deleting != nil:
		return condition(kind, true, ReasonDeleting, in.Deleting.Message)
	case len(in.Replacing) > 0:
		return condition(kind, true, ReasonReplacing,
			"made anew, because they cannot be changed: "+strings.Join(in.Replacing, ", "))
	case failed(in) != "" && (!missing || !r.moving):
		return condition(kind, false, failed(in), nothing+": see the condition Degraded")
	case !missing:
		return condition(kind, false, ReasonAsExpected, nothing)
	case overdue(in):
		return condition(kind, false, ReasonDeadlineExceeded, "no further for "+ProgressDeadline.String()+": "+behind)
	case len(in.Pods) < int(r.desired) && rolloutReason(in) == ReasonDeploying:
		behind += "; where pods are missing, the DaemonSet's events say why"
	}
	return condition(kind, true, rolloutReason(in), behind)
}

func rolloutReason(in Input) string {
	if in.Old.ObservedVersion != "" && in.Old.ObservedVersion != in.TargetVersion {
		return ReasonUpgrading
	}
	return ReasonDeploying
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

// overdue reports whether the rollout that is under way has had its time, or had it already and has not got further
// since.
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

// Deadline is when a status has to be looked at again, although nothing may have happened: then its rollout has had
// its time. Zero is never.
func Deadline(in Input, status v1beta1.HostPathProvisionerStatus) time.Time {
	now := meta.FindStatusCondition(status.Conditions, v1beta1.Progressing)
	if now == nil || now.Status != metav1.ConditionTrue ||
		(now.Reason != ReasonDeploying && now.Reason != ReasonUpgrading) {
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

// rolling is the condition Progressing as it stands, nil if it is that of another rollout: of an older specification,
// or of another version (or of kubevirt's operator).
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
		ready := podCondition(&pods[i], corev1.PodReady)
		if ready.Status == corev1.ConditionTrue && ready.LastTransitionTime.After(last) {
			last = ready.LastTransitionTime.Time
		}
	}
	return last
}
