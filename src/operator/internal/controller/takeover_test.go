package controller

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/names"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/v1beta1"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/operator/internal/predecessor"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/operator/internal/status"
)

const takeoverInterval = 10 * time.Second

// cluster has Deployments, and one resource, of which only the status can be changed: any other call panics.
type cluster struct {
	client.Client
	deployments []appsv1.Deployment
	pods        []corev1.Pod
	daemonSets  []appsv1.DaemonSet
	err         error
	// asked counts what was listed.
	asked    int
	resource *v1beta1.HostPathProvisioner
	// whole: the status is no subresource.
	whole bool
	wrote *v1beta1.HostPathProvisionerStatus
}

func (c *cluster) Get(_ context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	if resource, ok := into.(*v1beta1.HostPathProvisioner); ok && c.resource != nil {
		c.resource.DeepCopyInto(resource)
		return nil
	}
	return apierrors.NewNotFound(schema.GroupResource{}, key.Name)
}

func (c *cluster) List(_ context.Context, into client.ObjectList, options ...client.ListOption) error {
	c.asked++
	var wanted client.ListOptions
	wanted.ApplyOptions(options)
	if list, ok := into.(*corev1.PodList); ok && wanted.LabelSelector != nil {
		list.Items = slices.DeleteFunc(slices.Clone(c.pods),
			func(pod corev1.Pod) bool { return !wanted.LabelSelector.Matches(labels.Set(pod.Labels)) })
	}
	if list, ok := into.(*appsv1.DeploymentList); ok {
		list.Items = slices.Clone(c.deployments)
	}
	if list, ok := into.(*appsv1.DaemonSetList); ok && wanted.Namespace == "hpp" {
		list.Items = slices.Clone(c.daemonSets)
	}
	return c.err
}

func (c *cluster) Status() client.SubResourceWriter { return statusOf{cluster: c} }

func (c *cluster) Patch(_ context.Context, object client.Object, _ client.Patch, _ ...client.PatchOption) error {
	resource, ok := object.(*v1beta1.HostPathProvisioner)
	if !c.whole || !ok {
		panic("nothing but the status is to be changed")
	}
	c.wrote = &resource.Status
	return nil
}

type statusOf struct {
	client.SubResourceWriter
	cluster *cluster
}

func (s statusOf) Patch(
	_ context.Context, object client.Object, _ client.Patch, _ ...client.SubResourcePatchOption,
) error {
	if s.cluster.whole {
		return apierrors.NewNotFound(schema.GroupResource{}, object.GetName())
	}
	if resource, ok := object.(*v1beta1.HostPathProvisioner); ok {
		s.cluster.wrote = &resource.Status
	}
	return nil
}

type recorded struct{ reasons []string }

func (e *recorded) Eventf(_, _ runtime.Object, _, reason, _, _ string, _ ...any) {
	e.reasons = append(e.reasons, reason)
}

func request(name string) reconcile.Request {
	return reconcile.Request{NamespacedName: types.NamespacedName{Name: name}}
}

// kubevirts is the Deployment of kubevirt's operator.
func kubevirts() []appsv1.Deployment {
	return []appsv1.Deployment{{
		ObjectMeta: metav1.ObjectMeta{Namespace: "kubevirt", Name: "hostpath-provisioner-operator"},
	}}
}

// served is a resource as kubevirt's operator leaves it, one condition without a reason.
func served(name string) *v1beta1.HostPathProvisioner {
	resource := &v1beta1.HostPathProvisioner{
		ObjectMeta: metav1.ObjectMeta{Name: name, Finalizers: []string{names.KubevirtFinalizer}, Generation: 3},
	}
	resource.Status.ObservedVersion = "v0.25.2"
	resource.Status.Conditions = []metav1.Condition{
		{
			Type:               v1beta1.Available,
			Status:             metav1.ConditionTrue,
			Reason:             "Complete",
			LastTransitionTime: metav1.NewTime(moment()),
		}, {Type: "Upgradeable", Status: metav1.ConditionTrue},
	}
	return resource
}

func (c *cluster) reconciler(recorder *recorded) *Reconciler {
	r := New(Options{
		Client: c, Live: c, Ready: &gauge{}, Recorder: recorder, Namespace: "hpp",
		Predecessor:      predecessor.New(predecessor.Options{Live: c, Nodes: c, Writer: c, Namespace: "hpp"}),
		TakeoverInterval: takeoverInterval, FinalizerGrace: time.Minute,
	})
	r.now = moment
	return r
}

// While kubevirt's operator runs its resource keeps its finalizer, whatever its name, and nothing but the status is
// written, be it a subresource or not.
func TestLeavesToKubevirtsOperator(t *testing.T) {
	t.Parallel()
	for _, whole := range []bool{false, true} {
		c, recorder := &cluster{deployments: kubevirts(), resource: served("another"), whole: whole}, &recorded{}
		r := c.reconciler(recorder)
		result, err := r.Reconcile(t.Context(), request("another"))
		if err != nil || result.RequeueAfter != takeoverInterval || c.wrote == nil {
			t.Fatalf("again after %s, error %v, wrote %v", result.RequeueAfter, err, c.wrote)
		}
		condition := meta.FindStatusCondition(c.wrote.Conditions, v1beta1.NotServed)
		if condition == nil || condition.Reason != status.ReasonKubevirtOperatorRuns ||
			!strings.Contains(condition.Message, "kubectl scale deployment --namespace=kubevirt") {
			t.Errorf("NotServed is %+v", condition)
		}
		if len(c.wrote.Conditions) != 2 || c.wrote.ObservedVersion != "v0.25.2" {
			t.Errorf("of kubevirt's status there is left %+v", c.wrote)
		}
		// Again: nothing new to say.
		c.resource.Status, c.wrote = *c.wrote, nil
		_, err = r.Reconcile(t.Context(), request("another"))
		if diff := cmp.Diff([]string{status.ReasonKubevirtOperatorRuns}, recorder.reasons); err != nil ||
			c.wrote != nil ||
			diff != "" {
			t.Errorf("again: error %v, wrote %v, events (-want +got):\n%s", err, c.wrote, diff)
		}
	}
}

// It is asked once, and then only about a resource that is not ours alone.
func TestAsksOnlyWhileItHasTo(t *testing.T) {
	t.Parallel()
	c := &cluster{}
	r := c.reconciler(&recorded{})
	ours := served(names.CustomResource)
	ours.Finalizers = []string{names.Finalizer}
	both := ours.DeepCopy()
	both.Finalizers = append(both.Finalizers, names.KubevirtFinalizer)
	for _, step := range []struct {
		what     string
		resource *v1beta1.HostPathProvisioner
		asks     bool
	}{
		{"ours, at the start", ours, true},
		{"ours", ours, false},
		{"kubevirt's", served(names.CustomResource), true},
		{"both's", both, true},
		{"ours again", ours, false},
	} {
		c.asked = 0
		if wait, err := r.takeOver(t.Context(), step.resource); wait != 0 || err != nil || (c.asked > 0) != step.asks {
			t.Errorf("%s: waits %s, error %v, asked %d times", step.what, wait, err, c.asked)
		}
	}
	c.resource, c.err = served(names.CustomResource), errors.New("forbidden")
	if _, err := r.Reconcile(t.Context(), request(names.CustomResource)); err == nil ||
		!strings.Contains(err.Error(), "find kubevirt's operator") {
		t.Errorf("when it cannot be known: %v", err)
	}
}

// An operator that is started again beside its own driver is not kept from its work by what others call like
// kubevirt's.
func TestGoesOnAfterARestart(t *testing.T) {
	t.Parallel()
	resource := served(names.CustomResource)
	resource.Finalizers = []string{names.Finalizer}
	c := &cluster{deployments: kubevirts(), resource: resource}
	if wait, err := c.reconciler(&recorded{}).takeOver(t.Context(), resource); wait != takeoverInterval || err != nil {
		t.Errorf("without a driver: waits %s, error %v", wait, err)
	}
	c.daemonSets = make([]appsv1.DaemonSet, 1)
	if wait, err := c.reconciler(&recorded{}).takeOver(t.Context(), resource); wait != 0 || err != nil {
		t.Errorf("with its driver: waits %s, error %v", wait, err)
	}
}

// kubevirt's finalizer that comes back at once is the sign of an operator that nobody finds.
func TestFinalizerThatComesBackAtOnce(t *testing.T) {
	t.Parallel()
	resource := served(names.CustomResource)
	resource.Finalizers = []string{names.Finalizer, names.KubevirtFinalizer}
	c, recorder := &cluster{resource: resource}, &recorded{}
	r := c.reconciler(recorder)
	for _, step := range []struct {
		since, wait time.Duration
	}{{0, takeoverInterval}, {59 * time.Second, takeoverInterval}, {time.Minute, 0}} {
		r.disowned = moment().Add(-step.since)
		if wait, err := r.takeOver(t.Context(), resource); wait != step.wait || err != nil {
			t.Errorf("after %s: waits %s, error %v", step.since, wait, err)
		}
	}
	if diff := cmp.Diff([]string{status.ReasonKubevirtOperatorRuns, status.ReasonKubevirtOperatorRuns},
		recorder.reasons); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}

// A second release in another namespace leaves the cluster to the one that serves it, and says so once: the other
// writes the status too.
func TestLeavesToAnotherRelease(t *testing.T) {
	t.Parallel()
	driver := corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: "kubevirt", Name: "csi-a", Labels: map[string]string{names.OwnedBy: names.CustomResource},
		OwnerReferences: []metav1.OwnerReference{{Kind: "DaemonSet", Name: "csi", Controller: new(true)}},
	}}
	resource := served(names.CustomResource)
	resource.Finalizers = []string{names.Finalizer}
	c, recorder := &cluster{resource: resource, pods: []corev1.Pod{driver}}, &recorded{}
	r := c.reconciler(recorder)
	theirs := resource.Status
	for pass := range 3 {
		result, err := r.Reconcile(t.Context(), request(resource.Name))
		if err != nil || result.RequeueAfter != takeoverInterval || (c.wrote != nil) != (pass == 0) {
			t.Fatalf("pass %d: again after %s, error %v, wrote %v", pass, result.RequeueAfter, err, c.wrote)
		}
		if c.wrote != nil {
			c.resource.Status, c.wrote = *c.wrote, nil
		} else {
			c.resource.Status = theirs // written over
		}
	}
	if diff := cmp.Diff([]string{status.ReasonServedElsewhere}, recorder.reasons); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	c.pods[0].Namespace = "hpp"
	if wait, err := r.takeOver(t.Context(), resource); wait != 0 || err != nil || !r.unopposed {
		t.Errorf("its own driver: waits %s, error %v", wait, err)
	}
}
