package controller

import (
	"context"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/names"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/operator/internal/status"
)

// predecessorLease is what kubevirt's operator renews in its own namespace for as long as it runs.
const predecessorLease = "hostpath-provisioner-operator-lock"

// leave leaves a resource that is not ours yet to kubevirt's operator while that one runs beside us: two drivers with
// one name on a node take each other's registration away. It returns how long until that operator is known to be
// gone; 0 is that it is.
func (r *Reconciler) leave(ctx context.Context, resource *hpp) (time.Duration, error) {
	if controllerutil.ContainsFinalizer(resource, names.Finalizer) {
		return 0, nil
	}
	lease := &coordinationv1.Lease{}
	err := r.Live.Get(ctx, client.ObjectKey{Namespace: r.Namespace, Name: predecessorLease}, lease)
	if apierrors.IsNotFound(err) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("find out whether kubevirt's operator runs (Lease %s/%s): %w", r.Namespace,
			predecessorLease, err)
	}
	now := r.now()
	expiry := expiryOf(lease)
	if !now.Before(expiry) {
		return 0, nil
	}
	message := fmt.Sprintf("not served yet: kubevirt's operator runs in this namespace (it has the Lease %s/%s): "+
		"scale Deployment hostpath-provisioner-operator to 0 and delete its DaemonSets, then this goes on by itself",
		r.Namespace, predecessorLease)
	fresh, events := status.Left(resource, now, status.ReasonKubevirtOperatorRuns, message)
	return until(expiry, now), r.write(ctx, resource, fresh, events)
}

// expiryOf is when a lease runs out unless it is renewed; one without a holder has run out.
func expiryOf(lease *coordinationv1.Lease) time.Time {
	spec := lease.Spec
	if spec.HolderIdentity == nil || *spec.HolderIdentity == "" || spec.RenewTime == nil ||
		spec.LeaseDurationSeconds == nil {
		return time.Time{}
	}
	return spec.RenewTime.Add(time.Duration(*spec.LeaseDurationSeconds) * time.Second)
}
