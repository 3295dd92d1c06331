package operator

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/names"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/v1beta1"
	"github.com/hostpath-provisioner/hostpath-provisioner/tests/api/harness"
	"github.com/hostpath-provisioner/hostpath-provisioner/tests/chart/helmcli"
)

const (
	definitionName = "hostpathprovisioners." + names.Group
	// ownVersion is that of a binary built without one, newerVersion of one that is newer.
	ownVersion   = "0.0.0-dev"
	newerVersion = "0.2.0"
)

// crd is the resource's CustomResourceDefinition.
type crd = apiextensionsv1.CustomResourceDefinition

// TestDefinition: whose definition the operator finds, and what it makes of it.
func TestDefinition(t *testing.T) {
	t.Parallel()
	s := harness.Start(t)
	w := &world{Server: s, nodes: s.StartNodes(t, patientNode)}
	w.operator = s.InstallOperator(t, s.Build(t, "./src/operator"), helmcli.Values{})
	w.operator.Ready(t)
	// Resources are made while the operator is away, and it answers for its webhook.
	configuration := &admissionregistrationv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: harness.OperatorName},
	}
	harness.Change(t, s, configuration, func(c *admissionregistrationv1.ValidatingWebhookConfiguration) {
		c.Webhooks[0].FailurePolicy = new(admissionregistrationv1.Ignore)
	})
	w.each(t,
		part{"none", noDefinition},
		part{"taken away", definitionTakenAway},
		part{"kubevirt's", kubevirtsDefinition},
		part{"a newer one", newerDefinition},
		part{"objects in another version", storedVersions},
		part{"an older operator beside a newer", olderBesideNewer},
		part{"uninstall", uninstallLeaves},
	)
}

func definition() *crd { return &crd{ObjectMeta: metav1.ObjectMeta{Name: definitionName}} }

// appliedBy waits until the definition is that of an operator of this version.
func (w *world) appliedBy(t *testing.T, version string) *crd {
	t.Helper()
	return harness.Until(t, w.Server, "the definition of version "+version, definition(), func(d *crd) error {
		if by := d.Annotations[names.AppliedBy]; by != version {
			return fmt.Errorf("it is that of %q", by)
		}
		if d.Spec.Versions[0].Subresources == nil || !slices.Equal(d.Spec.Names.ShortNames, []string{"hpp"}) {
			return fmt.Errorf("it is not ours: %+v", d.Spec.Names)
		}
		return nil
	})
}

func noDefinition(t *testing.T, w *world) {
	w.appliedBy(t, ownVersion)
	w.create(t, withPools("local", "/var/hpvolumes"))
	w.condition(t, v1beta1.Available, metav1.ConditionTrue)
}

// definitionTakenAway: it is back without a restart. kubevirt's webhook, which would refuse the first resource, goes.
func definitionTakenAway(t *testing.T, w *world) {
	before := w.appliedBy(t, ownVersion)
	webhook := fixture(t, "webhook.yaml", "NAMESPACE", harness.Namespace, "NAME", kubevirtsWebhook)
	w.Create(t, webhook...)
	w.Delete(t, before)
	w.allGone(t, webhook)
	harness.Until(t, w.Server, "another definition", definition(), func(d *crd) error {
		if d.UID == before.UID {
			return fmt.Errorf("it is the one that was deleted")
		}
		return nil
	})
	w.appliedBy(t, ownVersion)
	w.create(t, withPools("local", "/var/hpvolumes"))
	w.condition(t, v1beta1.Available, metav1.ConditionTrue)
}

// create makes a resource as soon as its definition is served, and the webhook lets it pass.
func (w *world) create(t *testing.T, object client.Object) {
	t.Helper()
	harness.Eventually(t, "a resource", func(ctx context.Context) error { return w.Client.Create(ctx, object) })
}

// kubevirtsDefinition is replaced, by the leader, when kubevirt's operator is gone, and not before.
func kubevirtsDefinition(t *testing.T, w *world) {
	w.operator.Stop(t)
	w.replaceDefinition(t)
	resource := withPools("local", "/var/hpvolumes")
	resource.Finalizers = []string{names.KubevirtFinalizer}
	w.create(t, resource)
	// In whatever namespace. Nothing here makes its pods.
	pods := map[string]string{"name": manager}
	theirs := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: manager},
		Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: pods},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: pods},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: manager, Image: "example.com/old"}}},
			},
		},
	}
	w.Create(t, theirs)
	defer w.Delete(t, theirs)
	before := harness.Get(t, w.Server, definition())
	w.operator.Restart(t)
	// Not as the other conditions: kubevirt's definition has no observedGeneration in them.
	harness.Until(t, w.Server, "it waits for kubevirt's operator", named(), func(r *v1beta1.HostPathProvisioner) error {
		condition := meta.FindStatusCondition(r.Status.Conditions, v1beta1.NotServed)
		if condition == nil || condition.Reason != "KubevirtOperatorRuns" {
			return fmt.Errorf("its conditions are %v", r.Status.Conditions)
		}
		return nil
	})
	if after := harness.Get(t, w.Server, definition()); after.ResourceVersion != before.ResourceVersion {
		t.Errorf("the definition was changed while kubevirt's operator runs: %+v", after.ManagedFields)
	}
	harness.Change(t, w.Server, theirs, func(d *appsv1.Deployment) { d.Spec.Replicas = new(int32(0)) })
	w.appliedBy(t, ownVersion)
	w.condition(t, v1beta1.Available, metav1.ConditionTrue)
	if after := harness.Get(t, w.Server, named()); after.UID != resource.UID {
		t.Error("the resource was made anew")
	}
}

// replaceDefinition puts kubevirt's in the place of ours, as kubevirt's users did.
func (w *world) replaceDefinition(t *testing.T) {
	t.Helper()
	w.Delete(t, definition())
	w.Gone(t, definition())
	w.kubectl(t, "apply", "--filename", filepath.Join("testdata", "kubevirt", "definition.yaml"))
}

func (w *world) kubectl(t *testing.T, args ...string) {
	t.Helper()
	command := exec.CommandContext(
		t.Context(), filepath.Join(helmcli.Assets(t), "kubectl"), append(args, "--kubeconfig="+w.Kubeconfig)...,
	)
	// Its discovery cache would otherwise outlive the server, in the home directory.
	command.Env = append(os.Environ(), "KUBECACHEDIR="+t.TempDir())
	if out, err := command.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", command, err, out)
	}
}

// newerDefinition: a downgrade is refused, until somebody does what the refusal says.
func newerDefinition(t *testing.T, w *world) {
	w.operator.Stop(t)
	harness.Change(t, w.Server, definition(), func(d *crd) {
		d.Annotations[names.AppliedBy] = "99.0.0"
		spec := d.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"]
		spec.Properties["fromTheFuture"] = apiextensionsv1.JSONSchemaProps{Type: "string"}
	})
	before := harness.Get(t, w.Server, definition())
	resource := w.fromTheFuture(t)
	w.operator.Restart(t)
	refused := w.refused(t, "the operator of version 99.0.0 applied", "this one is "+ownVersion,
		"Upgrade the operator to 99.0.0 or later")
	if owned, err := w.owned(t.Context()); err != nil || len(owned) > 0 || len(refused.Finalizers) > 0 {
		t.Errorf("deployed all the same: %v (%v), finalizers %v", owned, err, refused.Finalizers)
	}
	if after := harness.Get(t, w.Server, definition()); after.Generation != before.Generation ||
		!reflect.DeepEqual(after.Annotations, before.Annotations) {
		t.Errorf("the definition was changed: %v, generation %d, was %v, %d", after.Annotations, after.Generation,
			before.Annotations, before.Generation)
	}
	harness.Get(t, w.Server, resource)
	if value, _, _ := unstructured.NestedString(resource.Object, "spec", "fromTheFuture"); value != "kept" {
		t.Errorf("a newer version's field is %q", value)
	}
	w.events(t, "Degraded")

	harness.Change(t, w.Server, definition(), func(d *crd) { d.Annotations[names.AppliedBy] = "mine" })
	refused = w.refused(t, `"mine", which is no version`)
	message := meta.FindStatusCondition(refused.Status.Conditions, v1beta1.Degraded).Message
	w.kubectl(t, strings.Fields(message[strings.LastIndex(message, "kubectl "):])[1:]...)
	w.condition(t, v1beta1.Available, metav1.ConditionTrue)
	w.condition(t, v1beta1.Degraded, metav1.ConditionFalse)
	after := w.appliedBy(t, ownVersion)
	if _, found := after.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"].Properties["fromTheFuture"]; found {
		t.Error("the definition is still the newer one")
	}
}

// fromTheFuture makes a resource with a field that only the newer definition has.
func (w *world) fromTheFuture(t *testing.T) *unstructured.Unstructured {
	t.Helper()
	resource := helmcli.Raw(t, harness.Seed(t, "pool-cr.yaml"))[0].(*unstructured.Unstructured)
	if err := unstructured.SetNestedField(resource.Object, "kept", "spec", "fromTheFuture"); err != nil {
		t.Fatal(err)
	}
	harness.Eventually(t, "a resource of the newer version", func(ctx context.Context) error {
		return w.Client.Create(ctx, resource, client.FieldValidation(metav1.FieldValidationStrict))
	})
	return resource
}

// refused waits until the resource is told so, with these words.
func (w *world) refused(t *testing.T, words ...string) *v1beta1.HostPathProvisioner {
	t.Helper()
	resource := w.condition(t, v1beta1.Degraded, metav1.ConditionTrue, words...)
	degraded := meta.FindStatusCondition(resource.Status.Conditions, v1beta1.Degraded)
	if degraded.Reason != "DowngradeRefused" {
		t.Fatalf("the reason is %s", degraded.Reason)
	}
	return resource
}
