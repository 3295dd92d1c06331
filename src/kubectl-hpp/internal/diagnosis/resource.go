package diagnosis

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/v1beta1"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/kubectl-hpp/internal/facts"
)

// Resources are the findings of what an operator is to serve, by its own conditions.
func Resources(f facts.Facts) (all []Finding) {
	for _, r := range f.Resources {
		for _, c := range r.Status.Conditions {
			severity := troubles()[c.Type]
			if bad := c.Type != v1beta1.Available; severity == 0 || (c.Status == metav1.ConditionTrue) != bad {
				continue
			}
			all = append(all, Finding{
				Severity: severity, Reason: c.Reason, What: fmt.Sprintf("%s %s: %s", c.Type, c.Status, c.Reason),
				More: c.Message,
				Message: fmt.Sprintf("The HostPathProvisioner %s has %s %s (%s): %s", r.Name, c.Type, c.Status,
					c.Reason, c.Message),
				Next: []string{"kubectl describe hostpathprovisioner " + r.Name},
			})
		}
	}
	return all
}

// troubles are the conditions that say that something is wrong, Available where it is not true.
func troubles() map[string]Severity {
	return map[string]Severity{
		v1beta1.Available: Unusable, v1beta1.Degraded: Limited,
		v1beta1.NotServed: Noteworthy, v1beta1.Deleting: Noteworthy,
	}
}
