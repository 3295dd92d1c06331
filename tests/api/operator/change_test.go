package operator

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/names"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/v1beta1"
	"github.com/hostpath-provisioner/hostpath-provisioner/tests/api/harness"
	"github.com/hostpath-provisioner/hostpath-provisioner/tests/chart/helmcli"
)

func daemonSet(name string) *appsv1.DaemonSet {
	return &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: harness.Namespace, Name: name}}
}

// placement: what a workload says stands on both DaemonSets word for word, and goes with it.
func placement(t *testing.T, w *world) {
	resource := named()
	resource.Spec.PathConfig = &v1beta1.PathConfig{Path: "/var/hpvolumes"}
	w.Create(t, resource)
	w.condition(t, v1beta1.Available, metav1.ConditionTrue)
	before := map[string]corev1.PodSpec{}
	for _, name := range []string{driverName, legacyName} {
		before[name] = harness.Get(t, w.Server, daemonSet(name)).Spec.Template.Spec
	}
	newRacks := &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
		MatchExpressions: []corev1.NodeSelectorRequirement{
			{Key: "rack", Operator: corev1.NodeSelectorOpNotIn, Values: []string{"old", "1"}},
		},
	}}}
	wanted := v1beta1.Workload{
		NodeSelector: map[string]string{"kubernetes.io/os": "linux", "disk": "yes"},
		Affinity: &corev1.Affinity{
			NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: newRacks},
		},
		Tolerations: []corev1.Toleration{
			{
				Key: "storage", Operator: corev1.TolerationOpEqual, Value: "true", Effect: corev1.TaintEffectNoExecute,
				TolerationSeconds: new(int64(3600)),
			},
		},
	}
	placed := func(what string, want func(name string) v1beta1.Workload) {
		t.Helper()
		for _, name := range []string{driverName, legacyName} {
			harness.Until(t, w.Server, what+" of "+name, daemonSet(name), func(set *appsv1.DaemonSet) error {
				pod := set.Spec.Template.Spec
				got := v1beta1.Workload{
					NodeSelector: pod.NodeSelector, Affinity: pod.Affinity, Tolerations: pod.Tolerations,
				}
				if !reflect.DeepEqual(got, want(name)) {
					return fmt.Errorf("it is %+v, want %+v", got, want(name))
				}
				return nil
			})
		}
	}
	harness.Change(t, w.Server, named(), func(r *v1beta1.HostPathProvisioner) { r.Spec.Workload = wanted })
	placed("placement", func(string) v1beta1.Workload { return wanted })
	// No node has the label: nothing is broken, and nothing runs.
	w.condition(t, v1beta1.Available, metav1.ConditionFalse, "disk=yes")
	harness.Change(t, w.Server, named(), func(r *v1beta1.HostPathProvisioner) { r.Spec.Workload = v1beta1.Workload{} })
	placed("former placement", func(name string) v1beta1.Workload {
		return v1beta1.Workload{
			NodeSelector: before[name].NodeSelector, Affinity: before[name].Affinity,
			Tolerations: before[name].Tolerations,
		}
	})
	w.condition(t, v1beta1.Available, metav1.ConditionTrue)
}

// pruning: what is no longer rendered goes, and only that.
func pruning(t *testing.T, w *world) {
	w.Create(t, withPools("local", "/var/hpvolumes", "two", "/srv/two"))
	w.condition(t, v1beta1.Available, metav1.ConditionTrue)
	class := func(name string) *storagev1.StorageClass {
		return &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: name}}
	}
	harness.Get(t, w.Server, class("of-two"))
	// It has our label, and belongs to somebody else.
	bystander := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
		Namespace: harness.Namespace, Name: "bystander", Labels: map[string]string{names.OwnedBy: names.CustomResource},
	}}
	w.Create(t, bystander)
	defer w.Delete(t, bystander)
	kept := harness.Get(t, w.Server, class("hostpath-csi")).UID

	harness.Change(
		t, w.Server, named(), func(r *v1beta1.HostPathProvisioner) { r.Spec.StoragePools = r.Spec.StoragePools[:1] },
	)
	w.Gone(t, class("of-two"))
	w.condition(t, v1beta1.NotServed, metav1.ConditionTrue, `storageClasses "of-two" of the base values is left out`)
	if got := harness.Get(t, w.Server, class("hostpath-csi")).UID; got != kept {
		t.Error("the class that stays was made anew")
	}

	harness.Change(t, w.Server, named(), func(r *v1beta1.HostPathProvisioner) {
		r.Spec.StoragePools, r.Spec.PathConfig = nil, &v1beta1.PathConfig{Path: "/var/hpvolumes", UseNamingPrefix: true}
	})
	harness.Until(
		t, w.Server, "the legacy provisioner", daemonSet(legacyName), func(*appsv1.DaemonSet) error { return nil },
	)
	harness.Change(t, w.Server, named(), func(r *v1beta1.HostPathProvisioner) {
		r.Spec.StoragePools, r.Spec.PathConfig = []v1beta1.StoragePool{{Name: "local", Path: "/var/hpvolumes"}}, nil
	})
	w.Gone(t, daemonSet(legacyName))
	harness.Eventually(t, "all of the legacy provisioner is gone", func(ctx context.Context) error {
		owned, err := w.owned(ctx)
		if err != nil {
			return err
		}
		for id := range owned {
			if strings.Contains(id, "legacy") {
				return fmt.Errorf("%s is there", id)
			}
		}
		return nil
	})
	harness.Get(t, w.Server, bystander)
}

// foreignObjects: the operator takes nothing that is somebody else's, and says so; it goes on when that is gone.
func foreignObjects(t *testing.T, w *world) {
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{
		Namespace: harness.Namespace, Name: driverName, Labels: map[string]string{managedBy: "Helm"},
	}}
	role := &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: driverRole},
		Rules:      []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"get"}}},
	}
	w.Create(t, account, role)
	w.Create(t, withPools("local", "/var/hpvolumes"))
	w.condition(t, v1beta1.Degraded, metav1.ConditionTrue,
		"ServiceAccount storage/"+driverName+
			": it exists and is not the operator's (it is managed by Helm): delete it, or give one of the "+
			"two another name",
		"ClusterRole "+driverRole+": it exists and is not the operator's (it is managed by nobody that it names): "+
			"delete it, or give one of the two another name")
	// All else is there.
	harness.Get(t, w.Server, daemonSet(driverName))
	if got := harness.Get(t, w.Server, role); len(got.Rules) != 1 || len(got.OwnerReferences) != 0 {
		t.Errorf("the foreign ClusterRole was changed: %+v", got)
	}
	w.Delete(t, account)
	w.Delete(t, role)
	w.condition(t, v1beta1.Degraded, metav1.ConditionFalse)
	w.condition(t, v1beta1.Available, metav1.ConditionTrue)
}

// immutable: what the predecessor left under our names, and what cannot be changed into ours, is made anew.
func immutable(t *testing.T, w *world) {
	marks := map[string]string{managedBy: manager, "k8s-app": "hostpath-provisioner"}
	meta := metav1.ObjectMeta{Namespace: harness.Namespace, Name: driverName, Labels: marks}
	role := metav1.ObjectMeta{Namespace: harness.Namespace, Name: driverRole, Labels: marks}
	cluster := metav1.ObjectMeta{Name: driverRole, Labels: marks}
	old := []client.Object{
		&appsv1.DaemonSet{ObjectMeta: meta, Spec: appsv1.DaemonSetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"k8s-app": "hostpath-provisioner"}},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"k8s-app": "hostpath-provisioner"}},
				Spec: corev1.PodSpec{
					Containers: []corev1.Container{{Name: "node-driver-registrar", Image: "example.com/old"}},
				},
			},
		}},
		&storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: names.Driver}, Spec: storagev1.CSIDriverSpec{
			AttachRequired: new(false), VolumeLifecycleModes: []storagev1.VolumeLifecycleMode{
				storagev1.VolumeLifecyclePersistent,
			},
		}},
		&storagev1.StorageClass{
			ObjectMeta: metav1.ObjectMeta{Name: "hostpath-csi", Labels: marks}, Provisioner: names.Driver,
			Parameters: map[string]string{"storagePool": "other"},
		},
		&rbacv1.ClusterRoleBinding{
			ObjectMeta: cluster, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "view"},
		},
		&rbacv1.RoleBinding{
			ObjectMeta: role, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "view"},
		},
		// Nothing in it is immutable: it is taken over as it is.
		&corev1.ServiceAccount{ObjectMeta: meta},
	}
	uids := map[string]types.UID{}
	for _, object := range old {
		w.Create(t, object)
		uids[fmt.Sprintf("%T", object)] = object.GetUID()
	}
	w.Create(t, withPools("local", "/var/hpvolumes"))
	w.condition(t, v1beta1.Available, metav1.ConditionTrue)
	w.condition(t, v1beta1.Degraded, metav1.ConditionFalse)
	for _, object := range old {
		got := harness.Get(t, w.Server, object)
		kind := fmt.Sprintf("%T", object)
		if anew := got.GetUID() != uids[kind]; anew != (kind != "*v1.ServiceAccount") {
			t.Errorf("%s %s made anew: %v", kind, got.GetName(), anew)
		}
		if got.GetLabels()[names.OwnedBy] != names.CustomResource {
			t.Errorf("%s %s is not the resource's: %v", kind, got.GetName(), got.GetLabels())
		}
	}
	set := harness.Get(t, w.Server, daemonSet(driverName))
	for _, container := range set.Spec.Template.Spec.Containers {
		if container.Name == "node-driver-registrar" {
			t.Error("a container of the old DaemonSet is left")
		}
	}
	pods, err := w.Pods(t.Context(), driverPods)
	if err != nil || len(pods) != 2 {
		t.Errorf("%d pods of the driver, want 2 (%v)", len(pods), err)
	}
}

// baseChange: an upgrade of the operator's release reaches what runs.
func baseChange(t *testing.T, w *world) {
	w.Create(t, withPools("local", "/var/hpvolumes"))
	w.condition(t, v1beta1.Available, metav1.ConditionTrue)
	before, err := w.Pods(t.Context(), driverPods)
	if err != nil {
		t.Fatal(err)
	}
	class := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "hostpath-csi"}}
	uid := harness.Get(t, w.Server, class).UID
	w.operator.Upgrade(t, helmcli.Values{Files: []string{baseValues}, JSON: map[string]string{
		"driver.logLevel":                   `"debug"`,
		"storageClasses":                    `[{"name":"hostpath-csi","storagePool":"local","reclaimPolicy":"Retain"}]`,
		"monitoring.serviceMonitor.enabled": "false", "monitoring.podMonitor.enabled": "true",
	}})
	harness.Until(t, w.Server, "the driver's log level", daemonSet(driverName), func(set *appsv1.DaemonSet) error {
		for _, container := range set.Spec.Template.Spec.Containers {
			if slices.Contains(container.Args, "--log-level=debug") {
				return nil
			}
		}
		return fmt.Errorf("no container has --log-level=debug")
	})
	harness.Eventually(t, "new pods run", func(ctx context.Context) error {
		pods, err := w.Pods(ctx, driverPods)
		if err != nil {
			return err
		}
		for _, pod := range pods {
			if slices.ContainsFunc(before, func(old corev1.Pod) bool { return old.UID == pod.UID }) {
				return fmt.Errorf("pod %s is an old one", pod.Name)
			}
		}
		return nil
	})
	w.condition(t, v1beta1.Available, metav1.ConditionTrue)
	harness.Until(t, w.Server, "the class made anew", class, func(class *storagev1.StorageClass) error {
		if class.UID == uid || *class.ReclaimPolicy != corev1.PersistentVolumeReclaimRetain {
			return fmt.Errorf("it is the old one, or keeps its policy %s", *class.ReclaimPolicy)
		}
		return nil
	})
	harness.Eventually(t, "a PodMonitor instead of a ServiceMonitor", func(ctx context.Context) error {
		owned, err := w.owned(ctx)
		if err != nil {
			return err
		}
		found := map[string]bool{}
		for _, object := range owned {
			if kind := object.GetKind(); kind != "Service" || strings.HasSuffix(object.GetName(), "-metrics") {
				found[kind] = true
			}
		}
		if !found["PodMonitor"] || found["ServiceMonitor"] || found["Service"] {
			return fmt.Errorf("there are %v", found)
		}
		return nil
	})
	w.drifts(t,
		func(object client.Object) bool { return object.GetObjectKind().GroupVersionKind().Kind == "PodMonitor" })
	w.operator.Upgrade(t, helmcli.Values{Files: []string{baseValues}})
}
