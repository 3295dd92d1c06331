package chart

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/controller-runtime/pkg/client"

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
