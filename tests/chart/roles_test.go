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
			rule("", "pods", "list", "watch"),
			rule("", "pods/status", "patch"), // how the pools of a node are
			named(rule("", "configmaps", "get", "patch"), controller+"-authorities", controller+"-ca"),
			named(rule("", "secrets", "get", "patch"), controller+"-tls"),
			// which filesystem each shared pool is, and which volumes are being moved
			named(rule("", "configmaps", "get", "patch"), "hpp-hostpath-provisioner-shared-pool-ids",
				"hpp-hostpath-provisioner-moves"),
			// csi-provisioner
			rule("storage.k8s.io", "csistoragecapacities", "get", "list", "watch", "create", "update", "delete"),
			rule("", "pods", "get"), rule("apps", "replicasets", "get"), // level 2 of the owner chain
			rule("coordination.k8s.io", "leases", "create"),
			named(rule("coordination.k8s.io", "leases", "get", "update"), controller, lease, "external-resizer-"+lease),
		},
	} {
		if diff := cmp.Diff(want, helmcli.Find[*rbacv1.Role](t, objects, name).Rules); diff != "" {
			t.Errorf("Role %s (-want +got):\n%s", name, diff)
		}
	}
}

func rule(group, resource string, verbs ...string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{APIGroups: []string{group}, Resources: []string{resource}, Verbs: verbs}
}

func named(rule rbacv1.PolicyRule, names ...string) rbacv1.PolicyRule {
	rule.ResourceNames = names
	return rule
}

// ofController is for the controller itself: which volume is where, and who it is that connects.
func ofController() []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{
		{
			APIGroups: []string{""}, Resources: []string{"persistentvolumes", "nodes"},
			Verbs: []string{"get", "list", "watch"},
		},
		rule("", "persistentvolumes", "create", "patch", "delete"), // of a volume that moves
		named(rule("", "namespaces", "get"), "kube-system"),        // its UID: whose a shared pool is
		rule("storage.k8s.io", "csinodes", "list", "watch"),
		// which wait for a volume; the node of a claim that binds immediately
		rule("", "persistentvolumeclaims", "get", "list", "watch", "patch"),
		rule("storage.k8s.io", "storageclasses", "list", "watch"),
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
