package operator

import (
	"context"
	"fmt"
	"reflect"
	"testing"

	securityv1 "github.com/openshift/api/security/v1"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/names"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/v1beta1"
	"github.com/hostpath-provisioner/hostpath-provisioner/tests/api/harness"
	"github.com/hostpath-provisioner/hostpath-provisioner/tests/chart/helmcli"
)

// openshiftAppears: the APIs of OpenShift come while the operator runs, as they do while a cluster is being installed.
func openshiftAppears(t *testing.T, w *world) {
	resource := named()
	resource.Spec.PathConfig = &v1beta1.PathConfig{Path: "/var/hpvolumes"}
	w.Create(t, resource)
	w.condition(t, v1beta1.Available, metav1.ConditionTrue)
	annotations := harness.Get(t, w.Server, daemonSet(driverName)).Spec.Template.Annotations
	if found := annotations["openshift.io/required-scc"]; found != "" {
		t.Errorf("without OpenShift the pods ask for the SecurityContextConstraints %q", found)
	}
	w.Kinds(t, helmcli.OpenShiftKinds(t)...)
	for _, name := range []string{driverName, legacyName} {
		set := harness.Until(t, w.Server, "required-scc", daemonSet(name), func(set *appsv1.DaemonSet) error {
			if set.Spec.Template.Annotations["openshift.io/required-scc"] == "" {
				return fmt.Errorf("the pods have the annotations %v", set.Spec.Template.Annotations)
			}
			return nil
		})
		constraints := &securityv1.SecurityContextConstraints{
			ObjectMeta: metav1.ObjectMeta{Name: set.Spec.Template.Annotations["openshift.io/required-scc"]},
		}
		harness.Until(t, w.Server, "constraints "+constraints.Name, constraints,
			func(*securityv1.SecurityContextConstraints) error { return nil })
		w.mayUse(t, constraints.Name, set.Spec.Template.Spec.ServiceAccountName)
	}
	w.condition(t, v1beta1.Available, metav1.ConditionTrue)
	w.condition(t, v1beta1.Degraded, metav1.ConditionFalse)
}

// mayUse wants the right `use`, which is how OpenShift lets a pod have constraints.
func (w *world) mayUse(t *testing.T, constraints, account string) {
	t.Helper()
	review := subjectAccessReview(account, "use", "security.openshift.io", "securitycontextconstraints", constraints)
	harness.Eventually(t, account+" may use "+constraints, func(ctx context.Context) error {
		fresh := review.DeepCopy()
		if err := w.Client.Create(ctx, fresh); err != nil {
			return err
		}
		if !fresh.Status.Allowed {
			return fmt.Errorf("it may not: %s", fresh.Status.Reason)
		}
		return nil
	})
}

// drift: whatever somebody does to an object is undone, for every kind that the operator makes.
func drift(t *testing.T, w *world) {
	resource := named()
	resource.Spec.PathConfig = &v1beta1.PathConfig{Path: "/var/hpvolumes"}
	w.Create(t, resource)
	w.condition(t, v1beta1.Available, metav1.ConditionTrue)
	touched := w.drifts(t, func(client.Object) bool { return true })
	for _, kind := range kinds() {
		if touched[kind.Kind] == 0 && kind.Kind != "PodMonitor" { // the test of the base values has that one
			t.Errorf("no object of kind %s was there to be changed", kind.Kind)
		}
	}
	// Not only the letter: the pods of both DaemonSets run again.
	w.condition(t, v1beta1.Available, metav1.ConditionTrue)
}

// drifts changes, disowns and deletes each chosen object, waits each time until all are as
// before, and counts them by kind.
func (w *world) drifts(t *testing.T, chosen func(client.Object) bool) map[string]int {
	t.Helper()
	before, err := w.owned(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	touched := map[string]int{}
	for id, object := range before {
		if !chosen(object) {
			delete(before, id)
		}
		touched[object.GetKind()]++
	}
	for _, harm := range []struct {
		what string
		do   func(*unstructured.Unstructured) error
	}{
		{"changed", func(object *unstructured.Unstructured) error {
			tamper(t, object)
			return w.Client.Update(t.Context(), object)
		}},
		{"added to", func(object *unstructured.Unstructured) error {
			extend(t, object)
			return w.Client.Update(t.Context(), object)
		}},
		{"disowned", func(object *unstructured.Unstructured) error {
			object.SetOwnerReferences(nil)
			labels := object.GetLabels()
			delete(labels, names.OwnedBy)
			object.SetLabels(labels)
			return w.Client.Update(t.Context(), object)
		}},
		{"deleted", func(object *unstructured.Unstructured) error { return w.Client.Delete(t.Context(), object) }},
	} {
		for id, object := range before {
			harness.Eventually(t, id+" is to be "+harm.what, func(ctx context.Context) error {
				live := object.DeepCopy()
				if err := w.Client.Get(ctx, client.ObjectKeyFromObject(object), live); err != nil {
					return err
				}
				return harm.do(live)
			})
		}
		for id, object := range before {
			harness.Eventually(t, id+" was "+harm.what, func(ctx context.Context) error {
				live := object.DeepCopy()
				if err := w.Client.Get(ctx, client.ObjectKeyFromObject(object), live); err != nil {
					return err
				}
				if live.GetDeletionTimestamp() != nil {
					return fmt.Errorf("it is being deleted")
				}
				if want, got := essence(object), essence(live); !reflect.DeepEqual(want, got) {
					return fmt.Errorf("it is\n%v\nwant\n%v", got, want)
				}
				return nil
			})
		}
	}
	return touched
}

// essence is an object without what each new one has differently.
func essence(object *unstructured.Unstructured) map[string]any {
	rest := map[string]any{"labels": object.GetLabels(), "owners": object.GetOwnerReferences()}
	for key, value := range object.Object {
		if key != "metadata" && key != "status" {
			rest[key] = value
		}
	}
	return rest
}

// extend adds something beside what was applied, where server-side apply alone would leave it:
// it is another manager's field.
func extend(t *testing.T, object *unstructured.Unstructured) {
	t.Helper()
	more := func(value any, path ...string) {
		list, _, _ := unstructured.NestedSlice(object.Object, path...)
		if err := unstructured.SetNestedSlice(object.Object, append(list, value), path...); err != nil {
			t.Fatalf("%s: %v", id(object), err)
		}
	}
	rule := map[string]any{"apiGroups": []any{""}, "resources": []any{"secrets"}, "verbs": []any{"get"}}
	switch kind := object.GetKind(); kind {
	case "ConfigMap":
		_ = unstructured.SetNestedField(object.Object, "more", "data", "more")
	case "Service":
		more(map[string]any{"name": "more", "port": int64(1234), "protocol": "TCP"}, "spec", "ports")
	case "ServiceAccount": // OpenShift adds pull secrets to each; they have to stay
	case "DaemonSet", "Deployment":
		containers, _, _ := unstructured.NestedSlice(object.Object, "spec", "template", "spec", "containers")
		first, _ := containers[0].(map[string]any)
		environment, _ := first["env"].([]any)
		first["env"] = append(environment, map[string]any{"name": "MORE", "value": "yes"})
		_ = unstructured.SetNestedSlice(object.Object, containers, "spec", "template", "spec", "containers")
	case "PodMonitor", "ServiceMonitor":
		_ = unstructured.SetNestedField(object.Object, int64(5), "spec", "sampleLimit")
	case "PrometheusRule":
		more(map[string]any{"name": "more", "rules": []any{map[string]any{"record": "more", "expr": "1"}}}, "spec",
			"groups")
	case "NetworkPolicy":
		more(map[string]any{}, "spec", "egress")
	case "ValidatingAdmissionPolicy":
		more(map[string]any{"expression": "true", "message": "more"}, "spec", "validations")
	case "ValidatingAdmissionPolicyBinding":
		more("Audit", "spec", "validationActions")
	case "PodDisruptionBudget":
		_ = unstructured.SetNestedField(object.Object, "AlwaysAllow", "spec", "unhealthyPodEvictionPolicy")
	case "ClusterRole", "Role":
		more(rule, "rules")
	case "ClusterRoleBinding", "RoleBinding":
		more(map[string]any{"kind": "User", "name": "more", "apiGroup": "rbac.authorization.k8s.io"}, "subjects")
	case "SecurityContextConstraints":
		more("more", "users")
	case "CSIDriver":
		more(map[string]any{"audience": "more"}, "spec", "tokenRequests")
	case "StorageClass":
		more("noatime", "mountOptions")
	default:
		t.Fatalf("no test knows what to add to a %s", kind)
	}
}

// tamper changes what an object is about, as far as the API lets one.
func tamper(t *testing.T, object *unstructured.Unstructured) {
	t.Helper()
	set := func(value any, path ...string) {
		if err := unstructured.SetNestedField(object.Object, value, path...); err != nil {
			t.Fatalf("%s: %v", id(object), err)
		}
	}
	switch kind := object.GetKind(); kind {
	case "ConfigMap":
		set(map[string]any{"config.yaml": "storagePools: []\n"}, "data")
	case "Service":
		set(map[string]any{"app": "other"}, "spec", "selector")
	case "ServiceAccount":
		object.SetOwnerReferences(nil)
	case "DaemonSet", "Deployment":
		containers, _, _ := unstructured.NestedSlice(object.Object, "spec", "template", "spec", "containers")
		first, _ := containers[0].(map[string]any)
		environment, _ := first["env"].([]any)
		first["env"] = append(environment, map[string]any{"name": "SOMETHING", "value": "else"})
		first["image"] = "example.com/other"
		set(containers, "spec", "template", "spec", "containers")
	case "PodMonitor", "ServiceMonitor":
		set(map[string]any{"matchLabels": map[string]any{"app": "other"}}, "spec", "selector")
	case "PrometheusRule":
		set([]any{}, "spec", "groups")
	case "ValidatingAdmissionPolicy":
		set("Ignore", "spec", "failurePolicy")
	case "ValidatingAdmissionPolicyBinding":
		set([]any{"Warn"}, "spec", "validationActions")
	case "PodDisruptionBudget":
		set(int64(2), "spec", "maxUnavailable")
	case "NetworkPolicy":
		set([]any{}, "spec", "policyTypes")
		set([]any{}, "spec", "ingress")
	case "ClusterRole":
		rules, _, _ := unstructured.NestedSlice(object.Object, "rules")
		first, _ := rules[0].(map[string]any)
		verbs, _ := first["verbs"].([]any)
		first["verbs"] = append(verbs[1:], "deletecollection")
		set(rules, "rules")
	case "Role":
		set([]any{}, "rules")
	case "ClusterRoleBinding", "RoleBinding":
		set([]any{}, "subjects")
	case "SecurityContextConstraints":
		set(false, "allowHostDirVolumePlugin")
		set([]any{"*"}, "allowedCapabilities")
	case "CSIDriver":
		set("None", "spec", "fsGroupPolicy")
		set(true, "spec", "requiresRepublish")
	case "StorageClass":
		set(true, "allowVolumeExpansion")
		set([]any{"noatime"}, "mountOptions")
	default:
		t.Fatalf("no test knows how to change a %s", kind)
	}
}
