package chart

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	storagev1 "k8s.io/api/storage/v1"

	securityv1 "github.com/openshift/api/security/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/tests/chart/helmcli"
)

// TestCSIDriverIsFrozen: most of its fields cannot change on a cluster that has it.
func TestCSIDriverIsFrozen(t *testing.T) {
	objects := helmcli.Objects(t, helmcli.Newest(t).MustTemplate(t, helmcli.Values{}))
	got := helmcli.Find[*storagev1.CSIDriver](t, objects, "kubevirt.io.hostpath-provisioner")
	want := storagev1.CSIDriverSpec{
		AttachRequired: new(false), PodInfoOnMount: new(true), StorageCapacity: new(true), SELinuxMount: new(false),
		RequiresRepublish: new(false), FSGroupPolicy: new(storagev1.FileFSGroupPolicy),
		VolumeLifecycleModes: []storagev1.VolumeLifecycleMode{
			storagev1.VolumeLifecyclePersistent, storagev1.VolumeLifecycleEphemeral,
		},
	}
	if diff := cmp.Diff(want, got.Spec); diff != "" {
		t.Errorf("CSIDriver (-want +got):\n%s", diff)
	}
	if profile := got.Labels["security.openshift.io/csi-ephemeral-volume-profile"]; profile != "restricted" {
		t.Errorf("ephemeral volume profile %q, want restricted", profile)
	}
}

// TestStorageClasses: the default one, and one with every field.
func TestStorageClasses(t *testing.T) {
	helm := helmcli.Newest(t)
	waiting, immediate := storagev1.VolumeBindingWaitForFirstConsumer, storagev1.VolumeBindingImmediate
	remove, keep := corev1.PersistentVolumeReclaimDelete, corev1.PersistentVolumeReclaimRetain
	for _, test := range []struct {
		rendering, name string
		want            storagev1.StorageClass
	}{
		{"default", "hostpath-local", storagev1.StorageClass{
			Provisioner: "kubevirt.io.hostpath-provisioner", VolumeBindingMode: &waiting, ReclaimPolicy: &remove,
			AllowVolumeExpansion: new(true), Parameters: map[string]string{"storagePool": "local"},
		}},
		{"everything", "fast", storagev1.StorageClass{
			Provisioner: "everything.hostpath.csi", VolumeBindingMode: &immediate, ReclaimPolicy: &keep,
			AllowVolumeExpansion: new(false), MountOptions: []string{"noatime"},
			Parameters: map[string]string{
				"storagePool": "fast", "directoryMode": "0770", "uid": "1000", "gid": "1000", "inodeLimit": "100000",
				"onDelete": "trash", "overlayCSI": "true", "csi.storage.k8s.io/fstype": "xfs",
			},
		}},
	} {
		got := helmcli.Find[*storagev1.StorageClass](
			t, helmcli.Objects(t, helm.MustTemplate(t, renderings()[test.rendering])), test.name,
		)
		defaultClass, tier := got.Annotations["storageclass.kubernetes.io/is-default-class"], got.Labels["tier"]
		if test.name == "fast" &&
			(defaultClass != "true" || tier != "gold" || got.Annotations["example.com/class"] != "gold") {
			t.Errorf("%s: default class %q, tier %q, annotations %v", test.name, defaultClass, tier, got.Annotations)
		}
		if test.name != "fast" && defaultClass != "" {
			t.Errorf("%s is the cluster's default class, and nobody asked", test.name)
		}
		got.TypeMeta, got.ObjectMeta = test.want.TypeMeta, test.want.ObjectMeta
		if diff := cmp.Diff(&test.want, got); diff != "" {
			t.Errorf("%s: class (-want +got):\n%s", test.name, diff)
		}
	}
}

// TestRolesAreLeast: no rule may be added without a reason that stands here.
func TestRolesAreLeast(t *testing.T) {
	objects := helmcli.Objects(t, helmcli.Newest(t).MustTemplate(t, renderings()["openshift"]))
	rule := func(group, resource string, verbs ...string) rbacv1.PolicyRule {
		return rbacv1.PolicyRule{APIGroups: []string{group}, Resources: []string{resource}, Verbs: verbs}
	}
	for name, want := range map[string][]rbacv1.PolicyRule{
		"hpp-hostpath-provisioner-csi-driver": {
			rule("", "nodes", "get", "list", "watch"),    // its node's labels; RBAC cannot say "own node" to a watch
			rule("", "persistentvolumes", "get", "list"), // adoption: is a directory somebody's volume?
			rule("", "events", "create"),
		},
		// As external-provisioner v6.3.0 calls with --node-deployment: no nodes, CSINodes, VolumeAttachments, snapshots,
		// secrets or leases.
		"hpp-hostpath-provisioner-csi-provisioner": {
			rule("", "persistentvolumes", "get", "list", "watch", "create", "patch", "delete"),
			rule("", "persistentvolumeclaims", "get", "list", "watch", "update"),
			rule("storage.k8s.io", "storageclasses", "get", "list", "watch"),
			rule("", "events", "create", "patch"),
		},
		// Of the driver in controller mode: which volume, whose, in which pool.
		"hpp-hostpath-provisioner-csi-controller": {
			{APIGroups: []string{""}, Resources: []string{
				"persistentvolumes", "persistentvolumeclaims",
			}, Verbs: []string{"get", "list"}},
			rule("storage.k8s.io", "storageclasses", "list"),
		},
		// As external-resizer v2.3.0 calls with --handle-volume-inuse-error=false: no pods, and no VolumeAttributesClasses.
		"hpp-hostpath-provisioner-csi-resizer": {
			rule("", "persistentvolumes", "get", "list", "watch", "patch"),
			rule("", "persistentvolumeclaims", "get", "list", "watch"),
			rule("", "persistentvolumeclaims/status", "patch"),
			rule("", "events", "create", "patch"),
		},
		"hpp-hostpath-provisioner-csi-scc": {{
			APIGroups: []string{"security.openshift.io"}, Resources: []string{"securitycontextconstraints"},
			ResourceNames: []string{"hpp-hostpath-provisioner-csi"}, Verbs: []string{"use"},
		}},
	} {
		if diff := cmp.Diff(want, helmcli.Find[*rbacv1.ClusterRole](t, objects, name).Rules); diff != "" {
			t.Errorf("ClusterRole %s (-want +got):\n%s", name, diff)
		}
	}
	role := helmcli.Find[*rbacv1.Role](t, objects, "hpp-hostpath-provisioner-csi-provisioner")
	want := []rbacv1.PolicyRule{
		rule("storage.k8s.io", "csistoragecapacities", "get", "list", "watch", "create", "update", "delete"),
		rule("", "pods", "get"), // level 1 of the owner chain is read off the pod itself
	}
	if diff := cmp.Diff(want, role.Rules); diff != "" {
		t.Errorf("Role (-want +got):\n%s", diff)
	}
	role = helmcli.Find[*rbacv1.Role](t, objects, "hpp-hostpath-provisioner-csi-controller")
	if diff := cmp.Diff([]rbacv1.PolicyRule{rule("storage.k8s.io", "csistoragecapacities", "list")},
		role.Rules); diff != "" {
		t.Errorf("Role of the controller (-want +got):\n%s", diff)
	}
	role = helmcli.Find[*rbacv1.Role](t, objects, "hpp-hostpath-provisioner-csi-resizer")
	if diff := cmp.Diff([]rbacv1.PolicyRule{rule("coordination.k8s.io", "leases", "create"), {
		APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, Verbs: []string{"get", "update"},
		ResourceNames: []string{"external-resizer-kubevirt-io-hostpath-provisioner"},
	}}, role.Rules); diff != "" {
		t.Errorf("Role of csi-resizer (-want +got):\n%s", diff)
	}
	objects = helmcli.Objects(t, helmcli.Newest(t).MustTemplate(t, renderings()["everything"]))
	role = helmcli.Find[*rbacv1.Role](t, objects, "storage-driver-csi-driver")
	// the conditions of its own pod
	if diff := cmp.Diff([]rbacv1.PolicyRule{rule("", "pods/status", "patch")}, role.Rules); diff != "" {
		t.Errorf("Role with reportPools (-want +got):\n%s", diff)
	}
}

// TestBindingsLeadToTheServiceAccounts: every binding's role exists in the rendering, and its subject is the
// account of the pods that need it.
func TestBindingsLeadToTheServiceAccounts(t *testing.T) {
	objects := helmcli.Objects(t, helmcli.Newest(t).MustTemplate(t, renderings()["everything"]))
	roles := map[string]bool{}
	for _, object := range objects {
		kind := object.GetObjectKind().GroupVersionKind().Kind
		roles[kind+" "+object.GetName()] = true
	}
	account := daemonSet(t, renderings()["everything"]).Spec.Template.Spec.ServiceAccountName
	const resizer = "resizer-account"
	for _, name := range []string{account, resizer} {
		if !roles["ServiceAccount "+name] {
			t.Errorf("the pods' ServiceAccount %q is not rendered", name)
		}
	}
	check := func(name string, ref rbacv1.RoleRef, subjects []rbacv1.Subject) {
		account := account
		if name == "storage-driver-csi-resizer" || name == "storage-driver-csi-controller" {
			account = resizer
		}
		if !roles[ref.Kind+" "+ref.Name] {
			t.Errorf("binding %s: there is no %s %s", name, ref.Kind, ref.Name)
		}
		want := []rbacv1.Subject{{Kind: "ServiceAccount", Name: account, Namespace: "kube-storage"}}
		if diff := cmp.Diff(want, subjects); diff != "" {
			t.Errorf("binding %s: subjects (-want +got):\n%s", name, diff)
		}
	}
	for _, object := range objects {
		switch binding := object.(type) {
		case *rbacv1.ClusterRoleBinding:
			check(binding.Name, binding.RoleRef, binding.Subjects)
		case *rbacv1.RoleBinding:
			check(binding.Name, binding.RoleRef, binding.Subjects)
		}
	}
}

// TestConstraintsAllowThePods: the SCC is named by the pods and allows the kinds of volume they have, and not more.
func TestConstraintsAllowThePods(t *testing.T) {
	values := renderings()["openshift"]
	ds := daemonSet(t, values)
	scc := helmcli.Find[*securityv1.SecurityContextConstraints](t,
		helmcli.Objects(t, helmcli.Newest(t).MustTemplate(t, values)),
		ds.Spec.Template.Annotations["openshift.io/required-scc"])
	want := []securityv1.FSType{securityv1.FSTypeConfigMap, securityv1.FSTypeHostPath, securityv1.FSProjected}
	if diff := cmp.Diff(want, scc.Volumes); diff != "" {
		t.Errorf("volumes (-want +got):\n%s", diff)
	}
	if !scc.AllowPrivilegedContainer || !scc.AllowHostDirVolumePlugin || !scc.ReadOnlyRootFilesystem {
		t.Errorf("allows privileged %v, host paths %v, demands a read-only root %v; want all three",
			scc.AllowPrivilegedContainer, scc.AllowHostDirVolumePlugin, scc.ReadOnlyRootFilesystem)
	}
	if scc.AllowHostNetwork || scc.AllowHostPID || scc.AllowHostIPC || scc.AllowHostPorts ||
		len(scc.AllowedCapabilities) > 0 {
		t.Errorf("allows more than the pods need: %+v", scc)
	}
}
