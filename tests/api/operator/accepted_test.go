package operator

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	storagev1 "k8s.io/api/storage/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/names"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/v1beta1"
	"github.com/hostpath-provisioner/hostpath-provisioner/tests/api/harness"
	"github.com/hostpath-provisioner/hostpath-provisioner/tests/chart/helmcli"
)

// warnings are what the API server passes on from the webhook.
type warnings struct {
	mu    sync.Mutex
	texts []string
}

// HandleWarningHeader takes a warning.
func (h *warnings) HandleWarningHeader(_ int, _, text string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.texts = append(h.texts, text)
}

// warned compares the warnings of what is done, in their order.
func (w *world) warned(t *testing.T, do func(client.Client) error, want ...string) {
	t.Helper()
	config, heard := rest.CopyConfig(w.Config), &warnings{}
	config.WarningHandler = heard
	c, err := client.New(config, client.Options{Scheme: w.Client.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	if err := do(c); err != nil {
		t.Errorf("refused: %v", err)
	}
	heard.mu.Lock()
	defer heard.mu.Unlock()
	if diff := cmp.Diff(want, heard.texts); diff != "" {
		t.Errorf("warnings (-want +got):\n%s", diff)
	}
}

// asKubevirtTakesIt has all that kubevirt's operator accepts, and that means something else here, or nothing.
const asKubevirtTakesIt = `
apiVersion: hostpathprovisioner.kubevirt.io/v1beta1
kind: HostPathProvisioner
metadata:
  name: mine
spec:
  imagePullPolicy: ""
  featureGates: [Cloning]
  storagePools:
    - {name: local, path: //var//hpvolumes/, overlayClassName: hpp-overlay, snapshotProvider: zfs}
`

func accepted(t *testing.T, w *world) {
	w.warned(t, func(c client.Client) error {
		return c.Create(t.Context(), helmcli.Raw(t, asKubevirtTakesIt)[0])
	}, `spec.storagePools[0].path: "//var//hpvolumes/" is read as "/var/hpvolumes", the same directory`,
		`spec.imagePullPolicy: "" is as if it were not there: the operator's base values decide`,
		`spec.storagePools[0].snapshotProvider: "zfs" is not known and ignored; the only one is reflink`,
		`spec.storagePools[0].overlayClassName: "hpp-overlay" is ignored, and no class of this name is made: it needs `+
			`a pvcTemplate with ReadWriteMany`,
		`spec.featureGates[0]: "Cloning" is not known and ignored; the only one is Snapshotting`,
		`metadata.name: "mine" is served because it is the only HostPathProvisioner; one named hostpath-provisioner `+
			`would be served instead of it`)
	mine := &v1beta1.HostPathProvisioner{ObjectMeta: metav1.ObjectMeta{Name: "mine"}}
	w.conditionOf(t, mine, v1beta1.Available, metav1.ConditionTrue)
	w.conditionOf(t, mine, v1beta1.Degraded, metav1.ConditionFalse)
	w.conditionOf(t, mine, v1beta1.NotServed, metav1.ConditionTrue, "zfs", "hpp-overlay", "Cloning")
	if config := w.driverConfig(t); !strings.Contains(config, "path: /var/hpvolumes\n") {
		t.Errorf("the driver's configuration is\n%s", config)
	}
	err := w.Client.Get(t.Context(), client.ObjectKey{Name: "hpp-overlay"}, &storagev1.StorageClass{})
	if !apierrors.IsNotFound(err) {
		t.Errorf("a class hpp-overlay: %v", err)
	}
	w.controlledBy(t, mine)
	// It is kept by volumes like any other, and its driver with it.
	volume := w.volume(t, "local")
	refused(t, w.Client.Delete(t.Context(), mine), denied+`the HostPathProvisioner "mine" still has 1 volume: `+
		`default/data (`+volume.Name+`); delete their claims first, or set the annotation `+
		`hostpathprovisioner.kubevirt.io/delete-with-volumes to "true" on it to delete it and leave the `+
		`data on the nodes`)
	w.release(t, volume, volume.Spec.PersistentVolumeReclaimPolicy)
	w.Delete(t, volume)
}

// controlledBy waits until the driver belongs to a resource.
func (w *world) controlledBy(t *testing.T, resource *v1beta1.HostPathProvisioner) {
	t.Helper()
	harness.Get(t, w.Server, resource)
	set := daemonSet(driverName)
	harness.Until(t, w.Server, "the driver is of "+resource.Name, set, func(set *appsv1.DaemonSet) error {
		if !metav1.IsControlledBy(set, resource) {
			return fmt.Errorf("its owners are %v", set.GetOwnerReferences())
		}
		return nil
	})
}

// anotherName: kubevirt's operator let any name in, so that one may be there when ours comes, and others beside it.
func anotherName(t *testing.T, w *world) {
	other, third := withPools("local", "/var/hpvolumes"), withPools("local", "/var/hpvolumes")
	other.Name, third.Name = "other", "third"
	w.Create(t, other)
	w.conditionOf(t, other, v1beta1.Available, metav1.ConditionTrue)
	for _, more := range []string{names.CustomResource, "third"} {
		resource := withPools("local", "/var/hpvolumes")
		resource.Name = more
		refused(t, w.Client.Create(t.Context(), resource), denied+`metadata.name: Forbidden: there is a `+
			`HostPathProvisioner already, "other", and a cluster has only one: change that one, or delete it first`)
	}
	// Two of other names: none is served, what runs is left alone, and each can go, with volumes too.
	volume := w.volume(t, "local")
	w.withoutWebhook(t, func() { w.Create(t, third) })
	for _, resource := range []*v1beta1.HostPathProvisioner{other, third} {
		w.unserved(t, resource, "there are 2 HostPathProvisioners, none is named hostpath-provisioner")
	}
	harness.Get(t, w.Server, daemonSet(driverName))
	w.Delete(t, third)
	w.Gone(t, third)
	w.conditionOf(t, other, v1beta1.Available, metav1.ConditionTrue)
	w.controlledBy(t, other)

	// The one of the right name is served instead, and the other keeps nobody from anything.
	w.withoutWebhook(t, func() { w.Create(t, withPools("local", "/var/hpvolumes")) })
	w.condition(t, v1beta1.Available, metav1.ConditionTrue)
	w.controlledBy(t, named())
	w.unserved(t, other, "the HostPathProvisioner of this cluster is hostpath-provisioner")
	// When it goes, the other one is served, without a restart.
	w.release(t, volume, volume.Spec.PersistentVolumeReclaimPolicy)
	w.Delete(t, volume)
	w.Delete(t, named())
	w.Gone(t, named())
	w.conditionOf(t, other, v1beta1.Available, metav1.ConditionTrue)
	w.controlledBy(t, other)
	w.definitionComesBack(t)
}

// unserved waits until a resource is told that it is not served.
func (w *world) unserved(t *testing.T, resource *v1beta1.HostPathProvisioner, why string) {
	t.Helper()
	w.conditionOf(t, resource, v1beta1.Degraded, metav1.ConditionTrue, "not served: "+why)
	if condition := meta.FindStatusCondition(resource.Status.Conditions, v1beta1.Degraded); condition.Reason !=
		"UnsupportedName" || len(resource.Finalizers) > 0 {
		t.Errorf("%s: reason %s, finalizers %v", resource.Name, condition.Reason, resource.Finalizers)
	}
}

// definitionComesBack: the definition is the operator's own, and what was changed in it is back after the next start.
func (w *world) definitionComesBack(t *testing.T) {
	t.Helper()
	definition := &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: definitionName},
	}
	harness.Change(t, w.Server, definition, func(d *apiextensionsv1.CustomResourceDefinition) {
		d.Spec.Names.ShortNames = nil
	})
	w.operator.Restart(t)
	harness.Until(t, w.Server, "the short name is back", definition,
		func(d *apiextensionsv1.CustomResourceDefinition) error {
			if !slices.Contains(d.Spec.Names.ShortNames, "hpp") {
				return fmt.Errorf("there are %v", d.Spec.Names.ShortNames)
			}
			return nil
		})
}
