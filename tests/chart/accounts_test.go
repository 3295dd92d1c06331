package chart

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/names"
	"github.com/hostpath-provisioner/hostpath-provisioner/tests/chart/helmcli"
	"github.com/hostpath-provisioner/hostpath-provisioner/tests/chart/helmsdk"
)

// lost are the objects that a rendering has only without these values.
func lost(t *testing.T, values helmcli.Values, without map[string]string) []string {
	t.Helper()
	helm := helmsdk.Newest()
	before := helmcli.Objects(t, helm.MustTemplate(t, values))
	values.JSON = without
	after := helmcli.Ids(helmcli.Objects(t, helm.MustTemplate(t, values)))
	before = slices.DeleteFunc(before, func(object client.Object) bool {
		return slices.Contains(after, helmcli.Ids([]client.Object{object})[0])
	})
	return sorted(helmcli.Ids(before))
}

// TestRolesOfSomebodyElse: without rbac.create there is no role and no binding, and all else is there.
func TestRolesOfSomebodyElse(t *testing.T) {
	t.Parallel()
	node := "hpp-hostpath-provisioner-csi-driver"
	provisioner := func(name, scc string) []string {
		return []string{
			"ClusterRole /" + name, "ClusterRoleBinding /" + name, "ClusterRole /" + scc, "RoleBinding storage/" + scc,
		}
	}
	const legacy, shared = "storage-driver-legacy", "storage-driver-shared"
	const manager = everyNodeFull + ofManagers
	for name, want := range map[string][]string{
		"legacy": provisioner(legacy, legacy+"-scc"),
		"shared": append(provisioner(shared, shared+"-scc"), "Role storage/"+shared, "RoleBinding storage/"+shared),
		"every node": append(provisioner(manager, everyNodeFull+"-scc"),
			"Role storage/"+manager, "RoleBinding storage/"+manager, "ClusterRole /"+everyNodeFull,
			"ClusterRoleBinding /"+everyNodeFull, "Role storage/"+everyNodeFull, "RoleBinding storage/"+everyNodeFull),
		"openshift": {
			"ClusterRole /" + controller, "ClusterRoleBinding /" + controller, "Role storage/" + controller,
			"RoleBinding storage/" + controller, "ClusterRole /" + node, "ClusterRoleBinding /" + node,
			"Role storage/" + node, "RoleBinding storage/" + node, "ClusterRole /hpp-hostpath-provisioner-csi-scc",
			"RoleBinding storage/hpp-hostpath-provisioner-csi-scc",
		},
		"operator, openshift": {
			"ClusterRole /" + operator, "ClusterRoleBinding /" + operator, "Role storage/" + operator,
			"RoleBinding storage/" + operator,
		},
	} {
		got := lost(t, renderings()[name], set("rbac.create", "false"))
		if _, is := legacyRenderings()[name]; is {
			// csi-driver, controller
			got = slices.DeleteFunc(got, func(id string) bool { return strings.Contains(id, "-c") })
		}
		if diff := cmp.Diff(sorted(want), got); diff != "" {
			t.Errorf("%s: objects without rbac.create (-want +got):\n%s", name, diff)
		}
	}
}

// TestTheNodesAccountOnlyReads: whoever takes over a node must not become more than a node. It is the account of the
// DaemonSet, whatever its name, and each binding that names it counts.
func TestTheNodesAccountOnlyReads(t *testing.T) {
	t.Parallel()
	for _, rendering := range []string{"default", "two pools", "openshift", "everything"} {
		objects := helmcli.Objects(t, helmsdk.Newest().MustTemplate(t, renderings()[rendering]))
		account := daemonSet(t, renderings()[rendering]).Spec.Template.Spec.ServiceAccountName
		rights := rightsOfAccount(objects, account)
		if len(rights) == 0 {
			t.Errorf("%s: no binding names the account %s", rendering, account)
		}
		for _, each := range rights {
			use := each.resource == "securitycontextconstraints" && each.verb == "use" // OpenShift's, of its own pods
			if !use && !slices.Contains([]string{"get", "list", "watch"}, each.verb) {
				t.Errorf("%s: a node may write: %+v", rendering, each)
			}
			if slices.Contains([]string{
				"persistentvolumeclaims", "leases", "csistoragecapacities", "secrets", "pods", "pods/status", "events",
			}, each.resource) {
				t.Errorf("%s: a node may look at %+v", rendering, each)
			}
		}
	}
}

// rightsOfAccount are those of every role that a binding gives to a ServiceAccount.
func rightsOfAccount(objects []client.Object, account string) (all []right) {
	rules, given := map[string][]rbacv1.PolicyRule{}, map[string]bool{}
	bind := func(ref rbacv1.RoleRef, subjects []rbacv1.Subject) {
		for _, subject := range subjects {
			if subject.Kind == "ServiceAccount" && subject.Name == account {
				given[ref.Kind+" "+ref.Name] = true
			}
		}
	}
	for _, object := range objects {
		switch object := object.(type) {
		case *rbacv1.ClusterRole:
			rules["ClusterRole "+object.Name] = object.Rules
		case *rbacv1.Role:
			rules["Role "+object.Name] = object.Rules
		case *rbacv1.ClusterRoleBinding:
			bind(object.RoleRef, object.Subjects)
		case *rbacv1.RoleBinding:
			bind(object.RoleRef, object.Subjects)
		}
	}
	for role := range given {
		for _, rule := range rules[role] {
			all = append(all, rightsOf(rule)...)
		}
	}
	return all
}

// TestAdmissionPolicies: each is about one account, and can be left out.
func TestAdmissionPolicies(t *testing.T) {
	t.Parallel()
	_, legacy := legacyValues()
	for where, test := range map[string]struct {
		values           helmcli.Values
		name, user, says string
	}{
		"legacyProvisioner": {
			legacy, "storage-driver-legacy", "storage:legacy-account", `"kubevirt.io/hostpath-provisioner"`,
		},
		"controller": {
			renderings()["everything"], "storage-driver-controller", "kube-storage:controller-account",
			`.startsWith("` + names.PoolCondition + `")`,
		},
	} {
		text := helmsdk.Newest().MustTemplate(t, test.values)
		objects := helmcli.Objects(t, text)
		spec := helmcli.Find[*admissionregistrationv1.ValidatingAdmissionPolicy](t, objects, test.name).Spec
		if *spec.FailurePolicy != admissionregistrationv1.Fail || len(spec.MatchConditions) != 1 ||
			spec.MatchConditions[0].Expression != `request.userInfo.username == "system:serviceaccount:`+test.user+`"` {
			t.Errorf("%s: failure policy %s, conditions %+v", where, *spec.FailurePolicy, spec.MatchConditions)
		}
		binding := helmcli.Find[*admissionregistrationv1.ValidatingAdmissionPolicyBinding](t, objects, test.name).Spec
		if binding.PolicyName != test.name || len(binding.ValidationActions) != 1 ||
			binding.ValidationActions[0] != admissionregistrationv1.Deny || binding.MatchResources != nil {
			t.Errorf("%s: binding %+v", where, binding)
		}
		if !strings.Contains(text, test.says) {
			t.Errorf("%s: nothing says %s", where, test.says)
		}
		want := []string{
			"ValidatingAdmissionPolicy /" + test.name, "ValidatingAdmissionPolicyBinding /" + test.name,
		}
		if diff := cmp.Diff(want, lost(t, test.values, set(where+".admissionPolicy", "false"))); diff != "" {
			t.Errorf("%s: objects without admissionPolicy (-want +got):\n%s", where, diff)
		}
	}
}

// TestAccountsThatAreThere are used, and not created.
func TestAccountsThatAreThere(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		values helmcli.Values
		who    []string
		want   []string
	}{
		"driver and controller": {
			values: renderings()["everything"], who: []string{"driver", "controller"},
			want: []string{
				"ServiceAccount kube-storage/controller-account", "ServiceAccount kube-storage/driver-account",
			},
		},
		"operator": {
			values: renderings()["operator, everything"], who: []string{"operator"},
			want: []string{"ServiceAccount kube-storage/operator-account"},
		},
		"legacy": {
			values: renderings()["legacy"], who: []string{"legacyProvisioner"},
			want: []string{"ServiceAccount storage/legacy-account"},
		},
		"shared": {
			values: renderings()["shared"], who: []string{"legacyProvisioner.shared"},
			want: []string{"ServiceAccount storage/shared-account"},
		},
		"every node": {
			values: renderings()["every node"],
			who:    []string{"legacyProvisioner.everyNode", "legacyProvisioner.everyNode.manager"},
			want:   []string{"ServiceAccount storage/every-node-account", "ServiceAccount storage/manager-account"},
		},
	} {
		without := map[string]string{}
		for _, who := range test.who {
			without[who+".serviceAccount.create"] = "false"
		}
		if diff := cmp.Diff(test.want, lost(t, test.values, without)); diff != "" {
			t.Errorf("%s: objects without serviceAccount.create (-want +got):\n%s", name, diff)
		}
	}
}

func TestImpossibleAccountsAreRefused(t *testing.T) {
	t.Parallel()
	helmsdk.Each(t, func(t *testing.T, helm helmsdk.Helm) {
		refusals := map[string]refusal{
			"roles, maybe": {set: set("rbac.create", "maybe"), want: []string{"/rbac/create", "boolean"}},
		}
		for _, who := range accounts() {
			refusals[who+", maybe"] = refusal{
				set:  set(who+".serviceAccount.create", "maybe"),
				want: []string{"/" + strings.ReplaceAll(who, ".", "/") + "/serviceAccount/create", "boolean"},
			}
			refusals[who+", nobody's"] = refusal{
				json: map[string]string{who + ".serviceAccount.create": "false", "operator.enabled": "true"},
				want: []string{who + ".serviceAccount.create is false, and " + who + ".serviceAccount.name is empty; " +
					"name the ServiceAccount that is there."},
			}
		}
		for i, one := range accounts() {
			for _, other := range accounts()[i+1:] {
				refusals[one+" as "+other] = refusal{
					json: map[string]string{
						one + ".serviceAccount.name": `"same"`, other + ".serviceAccount.name": `"same"`,
						"operator.enabled": "true",
					},
					want: []string{"- " + one + ".serviceAccount.name and " + other +
						`.serviceAccount.name are both "same"; each ` +
						"would have the other's rights: name two."},
				}
			}
		}
		expectRefusals(t, helm, refusals)
	})
}

// accounts are the places of the values of all ServiceAccounts, sorted.
func accounts() []string {
	return []string{
		"controller", "driver", "legacyProvisioner", "legacyProvisioner.everyNode",
		"legacyProvisioner.everyNode.manager", "legacyProvisioner.shared", "operator",
	}
}
