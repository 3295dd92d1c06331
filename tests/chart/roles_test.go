package chart

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/tests/chart/helmcli"
	"github.com/hostpath-provisioner/hostpath-provisioner/tests/chart/helmsdk"
)

// TestRolesAreLeast: no rule may be added without a reason that stands here.
func TestRolesAreLeast(t *testing.T) {
	t.Parallel()
	objects := helmcli.Objects(t, helmsdk.Newest().MustTemplate(t, renderings()["openshift"]))
	for name, want := range map[string][]rbacv1.PolicyRule{
		"hpp-hostpath-provisioner-csi-driver": {
			rule("", "nodes", "list", "watch"),           // its node's labels; RBAC cannot say "own node" to a watch
			rule("", "persistentvolumes", "get", "list"), // adoption: is a directory somebody's volume?
			rule("", "events", "create"),
		},
		controller: slices.Concat(ofController(), ofProvisioner(), ofResizer()),
		"hpp-hostpath-provisioner-csi-scc": {
			named(rule("security.openshift.io", "securitycontextconstraints", "use"), "hpp-hostpath-provisioner-csi"),
		},
	} {
		if diff := cmp.Diff(want, helmcli.Find[*rbacv1.ClusterRole](t, objects, name).Rules); diff != "" {
			t.Errorf("ClusterRole %s (-want +got):\n%s", name, diff)
		}
	}
	const lease = "kubevirt-io-hostpath-provisioner"
	for name, want := range map[string][]rbacv1.PolicyRule{
		"hpp-hostpath-provisioner-csi-driver": {
			named(rule("", "configmaps", "get"), controller+"-authorities", controller+"-ca"),
			named(rule("apps", "daemonsets", "get"), "hpp-hostpath-provisioner-csi"),
		},
		controller: {
			rule("storage.k8s.io", "csistoragecapacities", "list", "delete"), // those of per-node provisioners
			rule("", "pods", "list"), // is a node's of an older version?
			named(rule("", "configmaps", "get", "patch"), controller+"-authorities", controller+"-ca"),
			named(rule("", "secrets", "get", "patch"), controller+"-tls"),
			// which filesystem each shared pool is
			named(rule("", "configmaps", "get", "patch"), "hpp-hostpath-provisioner-shared-pool-ids"),
			// csi-provisioner
			rule("storage.k8s.io", "csistoragecapacities", "get", "list", "watch", "create", "update", "delete"),
			rule("", "pods", "get"), rule("apps", "replicasets", "get"), // level 2 of the owner chain
			rule("coordination.k8s.io", "leases", "create"),
			named(rule("coordination.k8s.io", "leases", "get", "update"), lease, "external-resizer-"+lease),
		},
	} {
		if diff := cmp.Diff(want, helmcli.Find[*rbacv1.Role](t, objects, name).Rules); diff != "" {
			t.Errorf("Role %s (-want +got):\n%s", name, diff)
		}
	}
	objects = helmcli.Objects(t,
		helmsdk.Newest().MustTemplate(t, helmcli.Values{Set: set("driver.reportPools", "true")}))
	rules := helmcli.Find[*rbacv1.Role](t, objects, "hpp-hostpath-provisioner-csi-driver").Rules
	// the conditions of its own pod
	if diff := cmp.Diff(rule("", "pods/status", "patch"), rules[len(rules)-1]); diff != "" || len(rules) != 3 {
		t.Errorf("Role with reportPools: %v (-want +got):\n%s", rules, diff)
	}
}

func rule(group, resource string, verbs ...string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{APIGroups: []string{group}, Resources: []string{resource}, Verbs: verbs}
}

func named(rule rbacv1.PolicyRule, names ...string) rbacv1.PolicyRule {
	rule.ResourceNames = names
	return rule
}

// ofController is for the driver in controller mode: which volume is where, and who it is that connects.
func ofController() []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{
		{
			APIGroups: []string{""}, Resources: []string{"persistentvolumes", "nodes"},
			Verbs: []string{"get", "list", "watch"},
		},
		named(rule("", "namespaces", "get"), "kube-system"), // its UID: whose a shared pool is
		rule("storage.k8s.io", "csinodes", "list", "watch"),
		rule("", "persistentvolumeclaims", "get", "patch"), // the node of a claim that binds immediately
		rule("authentication.k8s.io", "tokenreviews", "create"),
		rule("", "events", "create"),
	}
}

// ofProvisioner is as external-provisioner v6.3.0 calls, and its own deploy/kubernetes/rbac.yaml says: no snapshots,
// VolumeAttachments or secrets, which this driver does not have.
func ofProvisioner() []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{
		rule("", "persistentvolumes", "get", "list", "watch", "create", "patch", "delete"),
		rule("", "persistentvolumeclaims", "get", "list", "watch", "update"),
		rule("storage.k8s.io", "storageclasses", "get", "list", "watch"),
		rule("storage.k8s.io", "csinodes", "get", "list", "watch"),
		rule("", "nodes", "get", "list", "watch"),
		rule("", "events", "create", "patch"),
	}
}

// ofResizer is as external-resizer v2.3.0 calls with --handle-volume-inuse-error=false: no pods, and no
// VolumeAttributesClasses.
func ofResizer() []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{
		rule("", "persistentvolumes", "get", "list", "watch", "patch"),
		rule("", "persistentvolumeclaims", "get", "list", "watch"),
		rule("", "persistentvolumeclaims/status", "patch"),
		rule("", "events", "create", "patch"),
	}
}

// TestNodesMayLittle: a node that was taken over must not become more than a node.
func TestNodesMayLittle(t *testing.T) {
	t.Parallel()
	objects := helmcli.Objects(t, helmsdk.Newest().MustTemplate(t, helmcli.Values{}))
	rules := slices.Concat(
		helmcli.Find[*rbacv1.ClusterRole](t, objects, "hpp-hostpath-provisioner-csi-driver").Rules,
		helmcli.Find[*rbacv1.Role](t, objects, "hpp-hostpath-provisioner-csi-driver").Rules,
	)
	for _, each := range rules {
		for _, right := range rightsOf(each) {
			reads := slices.Contains([]string{"get", "list", "watch"}, right.verb)
			if !reads && (right.resource != "events" || right.verb != "create") {
				t.Errorf("a node may %+v", right)
			}
			if slices.Contains([]string{
				"persistentvolumeclaims", "leases", "csistoragecapacities", "secrets", "pods",
			}, right.resource) {
				t.Errorf("a node may %+v", right)
			}
		}
	}
}
