package operator

import (
	"testing"

	"github.com/hostpath-provisioner/hostpath-provisioner/tests/api/harness"
)

// rights asks the authorizer what the operator may not do: it holds what it hands out, and that
// is the driver's rights, no more.
func rights(t *testing.T, w *world) {
	for _, test := range []struct {
		want                         bool
		verb, group, resource, named string
	}{
		{true, "get", "", "secrets", harness.OperatorName + "-tls"},
		{false, "create", "", "secrets", ""},
		{true, "create", "apps", "daemonsets", ""},
		{true, "create", "", "persistentvolumeclaims", ""},
		{false, "delete", "", "persistentvolumeclaims", ""},
		{false, "get", "", "secrets", "another"},
		{false, "list", "", "secrets", ""},
		{false, "create", "", "pods", ""},
		{false, "create", "", "pods/exec", ""},
		{false, "create", "", "serviceaccounts/token", ""},
		{false, "impersonate", "", "users", "admin"},
		{false, "escalate", "rbac.authorization.k8s.io", "clusterroles", ""},
		{false, "bind", "rbac.authorization.k8s.io", "clusterroles", "cluster-admin"},
		{false, "update", "", "nodes", ""},
		{false, "delete", "", "namespaces", ""},
		{false, "patch", "admissionregistration.k8s.io", "validatingwebhookconfigurations", "another"},
		{false, "delete", "admissionregistration.k8s.io", "validatingwebhookconfigurations", "another"},
		{true, "patch", "apiextensions.k8s.io", "customresourcedefinitions/status", definitionName},
		{false, "patch", "apiextensions.k8s.io", "customresourcedefinitions/status", "another"},
		{false, "delete", "apiextensions.k8s.io", "customresourcedefinitions", definitionName},
	} {
		review := subjectAccessReview(harness.OperatorName, test.verb, test.group, test.resource, test.named)
		w.Create(t, review)
		if review.Status.Allowed != test.want {
			t.Errorf("%s %s.%s %q: allowed %v, want %v (%s)", test.verb, test.resource, test.group, test.named,
				review.Status.Allowed, test.want, review.Status.Reason)
		}
	}
}
