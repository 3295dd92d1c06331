package operator

import (
	"fmt"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/names"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/v1beta1"
	"github.com/hostpath-provisioner/hostpath-provisioner/tests/api/harness"
	"github.com/hostpath-provisioner/hostpath-provisioner/tests/chart/helmcli"
)

// olderVersion: csi-resizer had a Deployment of its own, and csi-provisioner rights on the nodes.
func olderVersion(t *testing.T, w *world) {
	resource := withPools("local", "/var/hpvolumes")
	w.Create(t, resource)
	w.condition(t, v1beta1.Available, metav1.ConditionTrue)
	meta := func(name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{
			Namespace: harness.Namespace, Name: full + name,
			Labels: map[string]string{names.OwnedBy: names.CustomResource},
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: v1beta1.GroupVersion().String(), Kind: "HostPathProvisioner", Name: resource.Name,
				UID: resource.UID, Controller: new(true),
			}},
		}
	}
	cluster := func(name string) metav1.ObjectMeta {
		of := meta(name)
		of.Namespace = ""
		return of
	}
	const resizer = "-csi-resizer"
	pods := map[string]string{"app": "csi-resizer"}
	old := []client.Object{
		&appsv1.Deployment{ObjectMeta: meta(resizer), Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: pods},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: pods},
				Spec: corev1.PodSpec{
					Containers: []corev1.Container{{Name: "csi-resizer", Image: "example.com/old"}},
				},
			},
		}},
		&corev1.ServiceAccount{ObjectMeta: meta(resizer)}, &networkingv1.NetworkPolicy{ObjectMeta: meta(resizer)},
	}
	for _, name := range []string{"-csi-provisioner", "-csi-controller", resizer} {
		old = append(old, &rbacv1.ClusterRole{ObjectMeta: cluster(name)}, &rbacv1.Role{ObjectMeta: meta(name)},
			&rbacv1.ClusterRoleBinding{ObjectMeta: cluster(name), RoleRef: rbacv1.RoleRef{
				APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: full + name,
			}},
			&rbacv1.RoleBinding{ObjectMeta: meta(name), RoleRef: rbacv1.RoleRef{
				APIGroup: rbacv1.GroupName, Kind: "Role", Name: full + name,
			}})
	}
	w.Create(t, old...)
	for _, object := range old {
		w.Gone(t, object)
	}
}

// serviceCA: what OpenShift writes into the controller's ConfigMap stays there, and so does what the controller itself
// writes where it makes its own certificate: neither an upgrade nor the operator takes it away.
func serviceCA(t *testing.T, w *world) {
	own := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: harness.Namespace, Name: full + "-controller-authorities"},
	}
	harness.Change(t, w.Server, own, func(own *corev1.ConfigMap) {
		own.Data = map[string]string{"ca.crt": "the controller's"}
	})
	w.Create(t, withPools("local", "/var/hpvolumes"))
	w.condition(t, v1beta1.Available, metav1.ConditionTrue)
	w.operator.Upgrade(t, helmcli.Values{Files: []string{baseValues}})
	w.condition(t, v1beta1.Available, metav1.ConditionTrue)
	if got := harness.Get(t, w.Server, own).Data["ca.crt"]; got != "the controller's" {
		t.Errorf("the CA that the controller wrote is %q", got)
	}
	defer w.operator.Upgrade(t, helmcli.Values{Files: []string{baseValues}})
	w.operator.Upgrade(t, helmcli.Values{
		Files: []string{baseValues}, Set: map[string]string{"controller.certificates": "openshift"},
	})
	const part = "app.kubernetes.io/part-of"
	config := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: harness.Namespace, Name: full + "-controller-service-ca"},
	}
	harness.Until(t, w.Server, "the ConfigMap for OpenShift", config, func(*corev1.ConfigMap) error { return nil })
	harness.Change(t, w.Server, config, func(config *corev1.ConfigMap) {
		config.Data = map[string]string{"service-ca.crt": "OpenShift's"}
		delete(config.Labels, part)
	})
	harness.Until(t, w.Server, "the ConfigMap is applied again", config, func(config *corev1.ConfigMap) error {
		if config.Labels[part] == "" {
			return fmt.Errorf("its labels are %v", config.Labels)
		}
		return nil
	})
	if got := config.Data["service-ca.crt"]; got != "OpenShift's" {
		t.Errorf("the CA that OpenShift wrote is %q", got)
	}
}
