package operator

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/names"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/v1beta1"
	"github.com/hostpath-provisioner/hostpath-provisioner/tests/api/harness"
	"github.com/hostpath-provisioner/hostpath-provisioner/tests/chart/helmcli"
)

// Names of kubevirt's.
const (
	kubevirtsWebhook = "hostpathprovisioner.kubevirt.io"
	elsewhere        = "kubevirt-hpp"
)

// fixture gives the objects of a file of testdata/kubevirt, with the words that it leaves open: name, value.
func fixture(t *testing.T, file string, words ...string) []client.Object {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", "kubevirt", file))
	if err != nil {
		t.Fatal(err)
	}
	for i := range words {
		if i%2 == 0 {
			words[i] = "${" + words[i] + "}"
		}
	}
	return helmcli.Raw(t, strings.NewReplacer(words...).Replace(string(text)))
}

// kubevirt makes what kubevirt's operator has in a namespace when it serves, and gives it by kind and name.
func (w *world) kubevirt(t *testing.T, namespace string, files ...string) []client.Object {
	t.Helper()
	var all []client.Object
	for _, file := range files {
		all = append(all, fixture(t, file, "NAMESPACE", namespace)...)
	}
	w.Create(t, all...)
	return all
}

// kubevirtsResource is one as kubevirt's operator leaves it.
func kubevirtsResource(pairs ...string) *v1beta1.HostPathProvisioner {
	resource := withPools(pairs...)
	resource.Finalizers = []string{names.KubevirtFinalizer}
	resource.Status = v1beta1.HostPathProvisionerStatus{
		ObservedVersion: "v0.25.2", OperatorVersion: "v0.25.2", TargetVersion: "v0.25.2",
		Conditions: []metav1.Condition{
			{
				Type: v1beta1.Available, Status: metav1.ConditionTrue, Reason: "Complete",
				Message: "Application Available", LastTransitionTime: metav1.Now(),
			},
			{Type: v1beta1.Progressing, Status: metav1.ConditionFalse, LastTransitionTime: metav1.Now()},
			{Type: v1beta1.Degraded, Status: metav1.ConditionFalse, LastTransitionTime: metav1.Now()},
		},
	}
	return resource
}

// waits for the condition that says what of kubevirt's is waited for; meanwhile the resource is not ours, and nothing
// is deployed.
func (w *world) waits(t *testing.T, reason string, words ...string) {
	t.Helper()
	resource := harness.Until(t, w.Server, "condition NotServed, reason "+reason, named(),
		func(r *v1beta1.HostPathProvisioner) error {
			condition := meta.FindStatusCondition(r.Status.Conditions, v1beta1.NotServed)
			if condition == nil || condition.Status != metav1.ConditionTrue || condition.Reason != reason {
				return fmt.Errorf("it is %+v", condition)
			}
			for _, word := range words {
				if !strings.Contains(condition.Message, word) {
					return fmt.Errorf("its message does not say %q: %q", word, condition.Message)
				}
			}
			return nil
		})
	if slices.Contains(resource.Finalizers, names.Finalizer) {
		return // it was served before
	}
	if owned, err := w.owned(t.Context()); err != nil || len(owned) > 0 {
		t.Errorf("beside kubevirt's there is %v (%v)", owned, err)
	}
}

// eventSays waits for an event of the resource.
func (w *world) eventSays(t *testing.T, reason string, words ...string) {
	t.Helper()
	harness.Eventually(t, "event "+reason, func(ctx context.Context) error {
		var list corev1.EventList
		if err := w.Client.List(ctx, &list); err != nil {
			return err
		}
		var found []string
		for _, event := range list.Items {
			if event.InvolvedObject.Kind != "HostPathProvisioner" || event.Reason != reason {
				continue
			}
			missing := func(word string) bool { return !strings.Contains(event.Message, word) }
			if !slices.ContainsFunc(words, missing) {
				return nil
			}
			found = append(found, event.Message)
		}
		return fmt.Errorf("want one that says %q; there are %q", words, found)
	})
}

// stopsKubevirt does what the condition says.
func (w *world) stopsKubevirt(t *testing.T, namespace string) {
	t.Helper()
	harness.Change(
		t, w.Server, operatorOfKubevirts(namespace), func(d *appsv1.Deployment) { d.Spec.Replicas = new(int32(0)) },
	)
}

func operatorOfKubevirts(namespace string) *appsv1.Deployment {
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "hostpath-provisioner-operator"},
	}
}

// allGone waits until none of the objects is there.
func (w *world) allGone(t *testing.T, objects []client.Object) {
	t.Helper()
	for _, object := range objects {
		w.Gone(t, object)
	}
}

// remove deletes objects in a clean-up, whether they are there or not.
func (w *world) remove(t *testing.T, objects ...client.Object) {
	t.Helper()
	for _, object := range objects {
		err := w.Client.Delete(context.WithoutCancel(t.Context()), object)
		if err != nil && !apierrors.IsNotFound(err) {
			t.Error(err)
		}
	}
}

// served waits until the resource is ours alone, and its driver runs.
func (w *world) served(t *testing.T) {
	t.Helper()
	w.condition(t, v1beta1.Available, metav1.ConditionTrue)
	harness.Until(t, w.Server, "the resource is ours", named(), func(r *v1beta1.HostPathProvisioner) error {
		if !slices.Equal(r.Finalizers, []string{names.Finalizer}) {
			return fmt.Errorf("its finalizers are %v", r.Finalizers)
		}
		if condition := meta.FindStatusCondition(r.Status.Conditions, v1beta1.NotServed); condition != nil &&
			strings.HasPrefix(condition.Reason, "Kubevirt") {
			return fmt.Errorf("it waits: %+v", condition)
		}
		return nil
	})
}
