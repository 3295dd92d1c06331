package operator

import (
	"fmt"
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/names"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/v1beta1"
	"github.com/hostpath-provisioner/hostpath-provisioner/tests/api/harness"
	"github.com/hostpath-provisioner/hostpath-provisioner/tests/chart/helmcli"
	"github.com/hostpath-provisioner/hostpath-provisioner/tests/internal/process"
)

// storedVersions: kubevirt's definition had a version that is gone, and remembers it for ever.
func storedVersions(t *testing.T, w *world) {
	w.operator.Stop(t)
	w.replaceDefinition(t)
	storeIn := func(version string) {
		harness.Change(t, w.Server, definition(), func(d *crd) {
			if len(d.Spec.Versions) == 1 {
				old := *d.Spec.Versions[0].DeepCopy()
				old.Name = "v1alpha1"
				d.Spec.Versions = append(d.Spec.Versions, old)
			}
			for i := range d.Spec.Versions {
				d.Spec.Versions[i].Storage = d.Spec.Versions[i].Name == version
			}
		})
	}
	storeIn("v1alpha1")
	resource := helmcli.Raw(t, harness.Seed(t, "pool-cr.yaml"))[0].(*unstructured.Unstructured)
	resource.SetAPIVersion(names.Group + "/v1alpha1")
	// The API server takes a moment until it stores in the other version.
	w.create(t, resource)
	storeIn("v1beta1")
	stored := harness.Get(t, w.Server, definition()).Status.StoredVersions
	if !slices.Contains(stored, "v1alpha1") {
		t.Fatalf("objects may be stored in %v: nothing is to be done", stored)
	}
	w.operator.Restart(t)
	applied := w.appliedBy(t, ownVersion)
	if !slices.Equal(applied.Status.StoredVersions, []string{"v1beta1"}) || len(applied.Spec.Versions) != 1 {
		t.Errorf("stored %v, %d versions", applied.Status.StoredVersions, len(applied.Spec.Versions))
	}
	// What is stored in a version that is gone cannot be read any more.
	w.condition(t, v1beta1.Available, metav1.ConditionTrue)
	if after := harness.Get(t, w.Server, named()); after.UID != resource.GetUID() {
		t.Error("the resource was made anew")
	}
}

// olderBesideNewer: an upgrade rolls, and who stays behind breaks nothing.
func olderBesideNewer(t *testing.T, w *world) {
	w.create(t, withPools("local", "/var/hpvolumes"))
	w.condition(t, v1beta1.Available, metav1.ConditionTrue)
	newer := w.operator.Beside(t, process.BuildVersion(t, "./src/operator", newerVersion))
	newer.Ready(t)
	// The older one leads.
	w.appliedBy(t, ownVersion)
	served := func(version string) {
		t.Helper()
		harness.Until(t, w.Server, "served by "+version, named(), func(r *v1beta1.HostPathProvisioner) error {
			if r.Status.OperatorVersion != version ||
				!meta.IsStatusConditionFalse(r.Status.Conditions, v1beta1.Degraded) {
				return fmt.Errorf("it is served by %s: %v", r.Status.OperatorVersion, r.Status.Conditions)
			}
			return nil
		})
	}
	served(ownVersion)
	w.operator.Stop(t)
	served(newerVersion)
	w.appliedBy(t, newerVersion)

	w.operator.Restart(t) // back as one that does not lead
	newest := w.appliedBy(t, newerVersion)
	served(newerVersion)
	newer.Stop(t)
	refused := w.refused(t, "the operator of version "+newerVersion+" applied")
	if refused.Status.OperatorVersion != newerVersion {
		t.Errorf("the status is that of %s", refused.Status.OperatorVersion)
	}
	if after := w.appliedBy(t, newerVersion); after.Generation != newest.Generation {
		t.Errorf("the definition was changed: generation %d → %d", newest.Generation, after.Generation)
	}
	harness.Get(t, w.Server, daemonSet(driverName))
	harness.Change(t, w.Server, definition(), func(d *crd) { delete(d.Annotations, names.AppliedBy) })
	w.appliedBy(t, ownVersion)
	served(ownVersion)
}

// uninstallLeaves what docs/how-to/uninstall.md says.
func uninstallLeaves(t *testing.T, w *world) {
	w.operator.Stop(t)
	w.operator.Uninstall(t)
	var left []string
	for _, list := range []client.ObjectList{
		&corev1.SecretList{}, &corev1.ConfigMapList{}, &coordinationv1.LeaseList{}, &corev1.ServiceList{},
		&corev1.ServiceAccountList{}, &appsv1.DeploymentList{}, &rbacv1.RoleList{},
	} {
		if err := w.Client.List(t.Context(), list, client.InNamespace(harness.Namespace)); err != nil {
			t.Fatal(err)
		}
		err := meta.EachListItem(list, func(item runtime.Object) error {
			object, err := meta.Accessor(item)
			if err == nil {
				left = append(left, fmt.Sprintf("%T %s", item, object.GetName()))
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	want := []string{
		"*v1.ConfigMap " + full + "-moves", "*v1.ConfigMap " + full + "-shared-pool-ids", "*v1.Lease " + manager,
	}
	if !slices.Equal(left, want) {
		t.Errorf("left are %v, want %v", left, want)
	}
	harness.Get(t, w.Server, definition())
}
