package controller

import (
	"context"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/names"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/v1beta1"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/operator/internal/status"
)

// predecessorLease is what kubevirt's operator renews in its own namespace for as long as it runs.
const predecessorLease = "hostpath-provisioner-operator-lock"

// yield leaves a resource that is not ours yet to kubevirt's operator while that one runs beside us: two drivers with one name on
// a node take each other's registration away. It returns how long until that operator is known to be gone; 0 is that it is.
func (r *Reconciler) yield(ctx context.Context, resource *v1beta1.HostPathProvisioner) (time.Duration, error) {
	if controllerutil.ContainsFinalizer(resource, names.Finalizer) {
		return 0, nil
	}
	lease := &coordinationv1.Lease{}
	err := r.Live.Get(ctx, client.ObjectKey{Namespace: r.Namespace, Name: predecessorLease}, lease)
	if apierrors.IsNotFound(err) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("find out whether kubevirt's operator still runs (Lease %s/%s): %w", r.Namespace, predecessorLease, err)
	}
	now := r.now()
	expiry := heldUntil(lease)
	if !now.Before(expiry) {
		return 0, nil
	}
	message := fmt.Sprintf("not served yet: kubevirt's operator still runs in this namespace (it holds the Lease %s/%s): scale Deployment hostpath-provisioner-operator to 0 "+
		"and delete its DaemonSets, then this goes on by itself", r.Namespace, predecessorLease)
	var events []status.Event
	if old := meta.FindStatusCondition(resource.Status.Conditions, v1beta1.Degraded); old == nil || old.Reason != status.ReasonPredecessorRuns {
		events = append(events, status.Event{Type: corev1.EventTypeWarning, Reason: status.EventDegraded, Note: message})
	}
	return until(expiry, now), r.write(ctx, resource, status.Yielded(resource.Status, resource.Generation, now, message), events)
}

// heldUntil is when a lease runs out unless it is renewed; one that nobody holds has.
func heldUntil(lease *coordinationv1.Lease) time.Time {
	spec := lease.Spec
	if spec.HolderIdentity == nil || *spec.HolderIdentity == "" || spec.RenewTime == nil || spec.LeaseDurationSeconds == nil {
		return time.Time{}
	}
	return spec.RenewTime.Add(time.Duration(*spec.LeaseDurationSeconds) * time.Second)
}
