package status

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/v1beta1"
)

// TestWaiting: kubevirt's definition drops a condition's generation, and counts each status that is written.
func TestWaiting(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	complete := metav1.Condition{
		Type: v1beta1.Available, Status: metav1.ConditionTrue, Reason: "Complete",
		LastTransitionTime: metav1.NewTime(at),
	}
	resource := &v1beta1.HostPathProvisioner{ObjectMeta: metav1.ObjectMeta{Generation: 3}}
	resource.Status = v1beta1.HostPathProvisionerStatus{ObservedVersion: "v0.25.2", Conditions: []metav1.Condition{
		complete,
		{Type: v1beta1.Progressing, Status: metav1.ConditionFalse, LastTransitionTime: metav1.NewTime(at)},
		{Type: v1beta1.Degraded, Status: metav1.ConditionFalse, Reason: "Complete"},
	}}
	status, events := Waiting(resource, at, ReasonKubevirtOperatorRuns, "it runs")
	want := v1beta1.HostPathProvisionerStatus{ObservedVersion: "v0.25.2", Conditions: []metav1.Condition{
		complete,
		{
			Type: v1beta1.NotServed, Status: metav1.ConditionTrue, Reason: ReasonKubevirtOperatorRuns,
			Message: "it runs", LastTransitionTime: metav1.NewTime(at),
		},
	}}
	if diff := cmp.Diff(want, status); diff != "" {
		t.Errorf("status (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]Event{{"Warning", ReasonKubevirtOperatorRuns, "it runs"}}, events); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	// kubevirt's operator writes its own conditions again, and that is not undone.
	status.Conditions = append(status.Conditions,
		metav1.Condition{Type: v1beta1.Progressing, Status: metav1.ConditionFalse})
	resource.Status, resource.Generation = status, 4
	if again, events := Waiting(resource, at.Add(time.Hour), ReasonKubevirtOperatorRuns, "it runs"); events != nil ||
		cmp.Diff(status, again) != "" {
		t.Errorf("again: %v, events %v", cmp.Diff(status, again), events)
	}
	if next, events := Waiting(resource, at, ReasonKubevirtRuns, "its pods end"); len(events) != 1 ||
		next.Conditions[1].Message != "its pods end" {
		t.Errorf("another reason: %+v, events %v", next, events)
	}
}
