package chart

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	storagev1 "k8s.io/api/storage/v1"

	securityv1 "github.com/openshift/api/security/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/tests/chart/helmcli"
	"github.com/hostpath-provisioner/hostpath-provisioner/tests/chart/helmsdk"
)

// TestCSIDriverIsFrozen: most of its fields cannot change on a cluster that has it.
func TestCSIDriverIsFrozen(t *testing.T) {
	t.Parallel()
	objects := helmcli.Objects(t, helmsdk.Newest().MustTemplate(t, helmcli.Values{}))
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
	t.Parallel()
	helm := helmsdk.Newest()
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
			AllowedTopologies: []corev1.TopologySelectorTerm{{
				MatchLabelExpressions: []corev1.TopologySelectorLabelRequirement{{
					Key: "everything.hostpath.csi/node", Values: []string{"node-1", "node-2"},
				}},
			}},
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

// TestBindingsLeadToTheServiceAccounts: every binding's role exists in the rendering, and its subject is the
// account of the pods that need it.
func TestBindingsLeadToTheServiceAccounts(t *testing.T) {
	t.Parallel()
	objects := helmcli.Objects(t, helmsdk.Newest().MustTemplate(t, renderings()["everything"]))
	roles := map[string]bool{}
	for _, object := range objects {
		kind := object.GetObjectKind().GroupVersionKind().Kind
		roles[kind+" "+object.GetName()] = true
	}
	account := daemonSet(t, renderings()["everything"]).Spec.Template.Spec.ServiceAccountName
	const own = "controller-account"
	for _, name := range []string{account, own} {
		if !roles["ServiceAccount "+name] {
			t.Errorf("the pods' ServiceAccount %q is not rendered", name)
		}
	}
	check := func(name string, ref rbacv1.RoleRef, subjects []rbacv1.Subject) {
		account := account
		if name == "storage-driver-controller" {
			account = own
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
	t.Parallel()
	values := renderings()["openshift"]
	ds := daemonSet(t, values)
	scc := helmcli.Find[*securityv1.SecurityContextConstraints](t,
		helmcli.Objects(t, helmsdk.Newest().MustTemplate(t, values)),
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
