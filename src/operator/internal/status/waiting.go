package status

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/v1beta1"
)

// Waiting is the status of a resource that is not served while something of kubevirt's runs, and the event of it if
// the reason is new. The condition is NotServed, which kubevirt's operator leaves alone; it writes the others itself.
// They stay, but for those that the API would not take back. The condition has no generation: under kubevirt's
// definition that is dropped, and each write makes a new one.
func Waiting(resource *v1beta1.HostPathProvisioner, now time.Time, reason, message string) (
	v1beta1.HostPathProvisionerStatus, []Event,
) {
	old := resource.Status
	before := meta.FindStatusCondition(old.Conditions, v1beta1.NotServed)
	if before != nil && before.Status == metav1.ConditionTrue && before.Reason == reason &&
		before.Message == shortenMessage(message) {
		return old, nil
	}
	status := *old.DeepCopy()
	status.Conditions = slices.DeleteFunc(status.Conditions, incomplete)
	wanted := condition(v1beta1.NotServed, true, reason, shortenMessage(message))
	wanted.LastTransitionTime = metav1.NewTime(now)
	meta.SetStatusCondition(&status.Conditions, wanted)
	if _, yes := became(v1beta1.NotServed, old, status); !yes {
		return status, nil
	}
	return status, []Event{{Type: corev1.EventTypeWarning, Reason: reason, Note: message}}
}
