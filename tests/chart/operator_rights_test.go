package chart

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hostpath-provisioner/hostpath-provisioner/tests/chart/helmcli"
	"github.com/hostpath-provisioner/hostpath-provisioner/tests/chart/helmsdk"
)

// rights are an account's rules, in the whole cluster and in its namespace.
type rights struct{ cluster, namespaced []rbacv1.PolicyRule }

// operatorRights are those of the operator in a rendering.
func operatorRights(t *testing.T, objects []client.Object, name string) rights {
	t.Helper()
	return rights{
		cluster:    helmcli.Find[*rbacv1.ClusterRole](t, objects, name).Rules,
		namespaced: helmcli.Find[*rbacv1.Role](t, objects, name).Rules,
	}
}

// in are the rules that hold in the namespace, or only those that hold everywhere.
func (r rights) in(namespaced bool) []rbacv1.PolicyRule {
	if namespaced {
		return slices.Concat(r.cluster, r.namespaced)
	}
	return r.cluster
}

// right is one of the things that a rule allows; name "" is every object.
type right struct{ group, resource, name, verb string }

func rightsOf(rule rbacv1.PolicyRule) []right {
	names := rule.ResourceNames
	if len(names) == 0 {
		names = []string{""}
	}
	var all []right
	for _, group := range rule.APIGroups {
		for _, resource := range rule.Resources {
			for _, name := range names {
				for _, verb := range rule.Verbs {
					all = append(all, right{group, resource, name, verb})
				}
			}
		}
	}
	return all
}

func allowed(rules []rbacv1.PolicyRule, wanted right) bool {
	return slices.ContainsFunc(rules, func(rule rbacv1.PolicyRule) bool {
		return slices.Contains(rule.APIGroups, wanted.group) && slices.Contains(rule.Resources, wanted.resource) &&
			slices.Contains(rule.Verbs, wanted.verb) &&
			(len(rule.ResourceNames) == 0 || wanted.name != "" && slices.Contains(rule.ResourceNames, wanted.name))
	})
}

// driverSides are values with which the operator may come to render the chart, whatever its base says.
func driverSides() map[string]helmcli.Values {
	everything := renderings()["everything"]
	everything.JSON = map[string]string{
		"extraObjects": "[]", "mounter.managed": "true", "adminRoles.create": "false",
		"legacyProvisioner.enabled":        "true",
		"legacyProvisioner.shared.enabled": "true", "legacyProvisioner.shared.instances": networkFSInstances,
		"legacyProvisioner.everyNode.enabled": "true",
	}
	return map[string]helmcli.Values{
		"everything": everything,
		"default": {JSON: map[string]string{
			"mounter.managed": "true", "legacyProvisioner.enabled": "true",
			"openshift": "true", "snapshots": "true",
			"legacyProvisioner.shared.enabled": "true", "legacyProvisioner.shared.instances": networkFSInstances,
			"legacyProvisioner.everyNode.enabled": "true",
			"networkPolicies.enabled":             "true",
			"monitoring.serviceMonitor.enabled":   "true", "monitoring.prometheusRule.enabled": "true",
		}},
		"cert-manager": {JSON: map[string]string{
			"controller.certificates": `"cert-manager"`, "controller.replicas": "2", "mounter.managed": "true",
		}},
	}
}

// TestOperatorMayDoWhatTheChartNeeds: Kubernetes lets an account hand out only rights that it has, and each object of
// the driver has to be read, applied and removed.
func TestOperatorMayDoWhatTheChartNeeds(t *testing.T) {
	t.Parallel()
	helm := helmsdk.Newest()
	for name, values := range driverSides() {
		// Its base has the same instances: their names are in its rights.
		shared, _ := networkFSValues()
		shared.JSON["legacyProvisioner.everyNode.enabled"] = "true"
		full := operator
		with := withOperator(shared, nil)
		if name == "everything" {
			full, with = "storage-driver-operator", renderings()["operator, everything"]
			with.JSON = shared.JSON
		}
		own := operatorRights(t, helmcli.Objects(t, helm.MustTemplate(t, with)), full)
		for _, object := range helmcli.Objects(t, helm.MustTemplate(t, values)) {
			if object.GetAnnotations()["helm.sh/hook"] == "" {
				checkHandedOut(t, own, object)
				checkApplied(t, own, object)
			}
		}
	}
}

func checkHandedOut(t *testing.T, own rights, object client.Object) {
	t.Helper()
	var rules []rbacv1.PolicyRule
	switch role := object.(type) {
	case *rbacv1.ClusterRole:
		rules = role.Rules
	case *rbacv1.Role:
		rules = role.Rules
	}
	for _, rule := range rules {
		for _, wanted := range rightsOf(rule) {
			if !allowed(own.in(object.GetNamespace() != ""), wanted) {
				t.Errorf("the operator cannot hand out %+v of %T %s", wanted, object, object.GetName())
			}
		}
	}
}

func checkApplied(t *testing.T, own rights, object client.Object) {
	t.Helper()
	kind := object.GetObjectKind().GroupVersionKind()
	resource := strings.ToLower(kind.Kind) + "s"
	switch kind.Kind {
	case "NetworkPolicy":
		resource = "networkpolicies"
	case "ValidatingAdmissionPolicy":
		resource = "validatingadmissionpolicies"
	case "StorageClass", "VolumeSnapshotClass":
		resource = strings.ToLower(kind.Kind) + "es"
	case "SecurityContextConstraints":
		resource = "securitycontextconstraints"
	}
	for _, verb := range []string{"get", "list", "watch", "create", "patch", "delete"} {
		wanted := right{group: kind.Group, resource: resource, verb: verb}
		if verb == "patch" || verb == "delete" {
			wanted.name = object.GetName()
		}
		if !allowed(own.in(object.GetNamespace() != ""), wanted) {
			t.Errorf("the operator cannot %s %s.%s %q", verb, resource, kind.Group, object.GetName())
		}
	}
}

// TestOperatorRightsAreLeast: what would let the operator become more than it is has to be bound to names.
func TestOperatorRightsAreLeast(t *testing.T) {
	t.Parallel()
	objects := helmcli.Objects(t, helmsdk.Newest().MustTemplate(t, withOperator(helmcli.Values{}, nil)))
	own := operatorRights(t, objects, operator)
	for _, rule := range own.in(true) {
		for _, each := range rightsOf(rule) {
			if strings.Contains(each.group+each.resource+each.verb, "*") || each.verb == "escalate" ||
				each.verb == "bind" ||
				each.verb == "impersonate" {
				t.Errorf("%+v lets the operator become anybody", each)
			}
		}
	}
	for _, unbound := range []right{
		{"rbac.authorization.k8s.io", "clusterroles", "", "patch"},
		{"rbac.authorization.k8s.io", "clusterrolebindings", "", "delete"},
		{"security.openshift.io", "securitycontextconstraints", "", "use"},
		{"security.openshift.io", "securitycontextconstraints", "", "patch"},
		{"apiextensions.k8s.io", "customresourcedefinitions", "", "patch"},
		{"apiextensions.k8s.io", "customresourcedefinitions", "", "update"},
		{"apiextensions.k8s.io", "customresourcedefinitions/status", "", "patch"},
		{"apiextensions.k8s.io", "customresourcedefinitions", "", "delete"},
		{"admissionregistration.k8s.io", "validatingwebhookconfigurations", "", "patch"},
		{"admissionregistration.k8s.io", "validatingwebhookconfigurations", "", "delete"},
		{"security.openshift.io", "securitycontextconstraints", "", "delete"},
		{"", "secrets", "", "get"},
		{"", "secrets", "", "list"},
		{"", "secrets", "", "create"},
		{"", "pods", "", "create"},
		{"", "pods/exec", "", "create"},
		{"", "serviceaccounts/token", "", "create"},
		{"", "nodes", "", "patch"},
		{"storage.k8s.io", "csidrivers", "", "patch"},
		{"storage.k8s.io", "csidrivers", "", "delete"},
	} {
		if allowed(own.in(true), unbound) {
			t.Errorf("the operator may do %+v to every object", unbound)
		}
	}
	for _, elsewhere := range []right{
		{"", "secrets", "", "create"},
		{"", "configmaps", "", "patch"},
		{"apps", "daemonsets", "", "create"},
		{"apps", "daemonsets", "", "delete"},
		{"apps", "deployments", "", "delete"},
		{"apps", "deployments", operator, "patch"},
		{"", "pods", "", "watch"},
		{"", "pods", "", "delete"},
		{"", "serviceaccounts", "", "list"},
		{"", "serviceaccounts", "", "delete"},
		{"", "services", "", "delete"},
		{"rbac.authorization.k8s.io", "roles", "", "delete"},
		{"batch", "jobs", "", "list"},
		{"batch", "jobs", "", "delete"},
		{"rbac.authorization.k8s.io", "rolebindings", "", "create"},
		{"coordination.k8s.io", "leases", "", "create"},
	} {
		if allowed(own.cluster, elsewhere) {
			t.Errorf("the operator may do %+v in every namespace", elsewhere)
		}
	}
}

// TestOperatorReadsItsCertificate in every mode, and writes it in one. It makes no Secret, and hands out no such right.
func TestOperatorReadsItsCertificate(t *testing.T) {
	t.Parallel()
	for mode, secret := range map[string]string{
		"self-managed": operator + "-tls", "cert-manager": operator + "-certificate",
		"openshift": operator + "-certificate", "existingSecret": "mine",
	} {
		set := map[string]string{"operator.webhook.certificates": mode, "controller.certificates": mode}
		if mode == "existingSecret" {
			set["operator.webhook.existingSecret"], set["controller.existingSecret"] = secret, "the-controllers"
		}
		own := operatorRights(t,
			helmcli.Objects(t, helmsdk.Newest().MustTemplate(t, withOperator(helmcli.Values{}, set))), operator)
		got := map[string]bool{}
		for _, verb := range []string{"get", "watch", "update", "patch", "delete"} {
			got[verb] = allowed(own.in(true), right{"", "secrets", secret, verb})
		}
		got["create"] = allowed(own.in(true), right{"", "secrets", "", "create"})
		writes := mode == "self-managed"
		want := map[string]bool{
			"get": true, "watch": true, "update": writes, "patch": false, "create": false, "delete": false,
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: rights to Secret %s (-want +got):\n%s", mode, secret, diff)
		}
	}
}

// TestOperatorBindings: both roles go to the operator's account and to nobody else.
func TestOperatorBindings(t *testing.T) {
	t.Parallel()
	objects := helmcli.Objects(t, helmsdk.Newest().MustTemplate(t, renderings()["operator, everything"]))
	const name = "storage-driver-operator"
	want := []rbacv1.Subject{{Kind: "ServiceAccount", Name: "operator-account", Namespace: "kube-storage"}}
	cluster, namespaced := helmcli.Find[*rbacv1.ClusterRoleBinding](t, objects, name),
		helmcli.Find[*rbacv1.RoleBinding](t, objects, name)
	got := []string{fmt.Sprint(cluster.RoleRef.Kind, " ", cluster.RoleRef.Name), fmt.Sprint(
		namespaced.RoleRef.Kind, " ", namespaced.RoleRef.Name,
	)}
	if diff := cmp.Diff([]string{"ClusterRole " + name, "Role " + name}, got); diff != "" {
		t.Errorf("roles (-want +got):\n%s", diff)
	}
	for _, subjects := range [][]rbacv1.Subject{cluster.Subjects, namespaced.Subjects} {
		if diff := cmp.Diff(want, subjects); diff != "" {
			t.Errorf("subjects (-want +got):\n%s", diff)
		}
	}
}
