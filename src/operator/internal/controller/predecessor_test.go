package controller

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/names"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/v1beta1"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/operator/internal/status"
)

// cluster has one lease, or none, and one resource, of which only the status can be changed: any other call panics.
type cluster struct {
	client.Client
	lease    *coordinationv1.LeaseSpec
	err      error
	resource *v1beta1.HostPathProvisioner
	wrote    *v1beta1.HostPathProvisionerStatus
}

func (c *cluster) Get(_ context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	switch into := into.(type) {
	case *v1beta1.HostPathProvisioner:
		c.resource.DeepCopyInto(into)
	case *coordinationv1.Lease:
		if c.err != nil {
			return c.err
		}
		if c.lease == nil || key != (client.ObjectKey{Namespace: "hpp", Name: "hostpath-provisioner-operator-lock"}) {
			return apierrors.NewNotFound(schema.GroupResource{Resource: "leases"}, key.Name)
		}
		into.Spec = *c.lease
	}
	return nil
}

func (c *cluster) Status() client.SubResourceWriter { return statusOf{cluster: c} }

type statusOf struct {
	client.SubResourceWriter
	cluster *cluster
}

func (s statusOf) Patch(
	_ context.Context, object client.Object, _ client.Patch, _ ...client.SubResourcePatchOption,
) error {
	if resource, ok := object.(*v1beta1.HostPathProvisioner); ok {
		s.cluster.wrote = &resource.Status
	}
	return nil
}

type recorded struct{ reasons []string }

func (e *recorded) Eventf(_, _ runtime.Object, _, reason, _, _ string, _ ...any) {
	e.reasons = append(e.reasons, reason)
}

func moment() time.Time { return time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC) }

func request(name string) reconcile.Request {
	return reconcile.Request{NamespacedName: types.NamespacedName{Name: name}}
}

func lease(holder string, renewed time.Duration) *coordinationv1.LeaseSpec {
	duration, at := int32(60), metav1.NewMicroTime(moment().Add(-renewed))
	return &coordinationv1.LeaseSpec{HolderIdentity: &holder, LeaseDurationSeconds: &duration, RenewTime: &at}
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
	r := New(Options{Client: c, Live: c, Ready: &gauge{}, Recorder: recorder, Namespace: "hpp"})
	r.now = moment
	return r
}

// While kubevirt's operator runs its resource keeps its finalizer, whatever its name, and nothing but the status is
// written.
func TestLeavesToKubevirtsOperator(t *testing.T) {
	t.Parallel()
	for _, name := range []string{names.CustomResource, "another"} {
		c, recorder := &cluster{lease: lease("kubevirt", 15*time.Second), resource: served(name)}, &recorded{}
		result, err := c.reconciler(recorder).Reconcile(t.Context(), request(name))
		if err != nil || result.RequeueAfter != 45*time.Second {
			t.Errorf("%s: again after %s, error %v; want 45s, when the lease ends", name, result.RequeueAfter, err)
		}
		if c.wrote == nil {
			t.Fatalf("%s: no status was written", name)
		}
		degraded := meta.FindStatusCondition(c.wrote.Conditions, v1beta1.Degraded)
		if degraded == nil || degraded.Reason != "KubevirtOperatorRuns" ||
			!strings.Contains(degraded.Message, "kubevirt's operator runs in this namespace") {
			t.Errorf("%s: Degraded is %+v", name, degraded)
		}
		if len(c.wrote.Conditions) != 2 || c.wrote.ObservedVersion != "v0.25.2" {
			t.Errorf("%s: of kubevirt's status there is left %+v", name, c.wrote)
		}
		if diff := cmp.Diff([]string{status.EventDegraded}, recorder.reasons); diff != "" {
			t.Errorf("%s: events (-want +got):\n%s", name, diff)
		}
		// Again, with the lease renewed: nothing new to say.
		c.resource.Status, c.wrote = *c.wrote, nil
		if _, err := c.reconciler(recorder).Reconcile(t.Context(), request(name)); err != nil || c.wrote != nil ||
			len(recorder.reasons) != 1 {
			t.Errorf("%s, again: error %v, wrote %v, events %v", name, err, c.wrote, recorder.reasons)
		}
	}
}

func TestDoesNotLeaveToKubevirtsOperator(t *testing.T) {
	t.Parallel()
	ours := served(names.CustomResource)
	ours.Finalizers = []string{names.Finalizer}
	for name, c := range map[string]cluster{
		"no lease":                    {},
		"an old lease":                {lease: lease("kubevirt", time.Minute)},
		"a lease that was given back": {lease: lease("", 0)},
		"a lease of no duration":      {lease: &coordinationv1.LeaseSpec{}},
		"a resource of ours":          {lease: lease("kubevirt", 0), resource: ours},
	} {
		if c.resource == nil {
			c.resource = served(names.CustomResource)
		}
		if wait, err := c.reconciler(&recorded{}).leave(t.Context(), c.resource); wait != 0 || err != nil ||
			c.wrote != nil {
			t.Errorf("%s: waits %s, error %v, wrote %v", name, wait, err, c.wrote)
		}
	}
	c := cluster{err: errors.New("forbidden"), resource: served(names.CustomResource)}
	if _, err := c.reconciler(&recorded{}).Reconcile(t.Context(), request(names.CustomResource)); err == nil ||
		!strings.Contains(err.Error(), "Lease hpp/hostpath-provisioner-operator-lock") {
		t.Errorf("a lease that cannot be read: %v", err)
	}
}
