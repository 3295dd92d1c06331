package chart

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	policyv1 "k8s.io/api/policy/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/tests/chart/helmcli"
	"github.com/hostpath-provisioner/hostpath-provisioner/tests/chart/helmsdk"
)

// TestDrainsLeaveAnOperator: a budget that fits its pods where there are several. With one it would keep its node from
// being drained.
func TestDrainsLeaveAnOperator(t *testing.T) {
	t.Parallel()
	const name = "storage-driver-operator"
	objects := helmcli.Objects(t, helmsdk.Newest().MustTemplate(t, renderings()["operator, everything"]))
	budget := helmcli.Find[*policyv1.PodDisruptionBudget](t, objects, name).Spec
	labels := helmcli.Find[*appsv1.Deployment](t, objects, name).Spec.Template.Labels
	if budget.MaxUnavailable.String() != "2" || !within(budget.Selector.MatchLabels, labels) {
		t.Errorf("budget %+v for pods with %v, want one of 2 that fits them", budget, labels)
	}
	for _, object := range helmcli.Objects(
		t, helmsdk.Newest().MustTemplate(t, withOperator(helmcli.Values{}, nil)),
	) {
		if _, is := object.(*policyv1.PodDisruptionBudget); is {
			t.Errorf("%s is rendered for one replica", object.GetName())
		}
	}
	helmsdk.Each(t, func(t *testing.T, helm helmsdk.Helm) {
		expectRefusals(t, helm, map[string]refusal{
			"no drain": {
				json: set("operator.podDisruptionBudget.maxUnavailable", "0"), want: []string{"maxUnavailable"},
			},
			"in words": {
				set: set("operator.podDisruptionBudget.maxUnavailable", "one"), want: []string{"maxUnavailable"},
			},
			"no object": {
				json: set("operator.podDisruptionBudget", "1"), want: []string{"/operator/podDisruptionBudget"},
			},
		})
	})
}
