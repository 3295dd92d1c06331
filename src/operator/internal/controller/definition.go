package controller

import (
	"context"
	"errors"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/names"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/v1beta1"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/operator/internal/definitions"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/operator/internal/status"
)

// serveNobody is what there is to do without a resource: the first one is to find this version's definition, and no
// webhook that nobody serves.
func (r *Reconciler) serveNobody(ctx context.Context) (reconcile.Result, error) {
	if running, err := r.Predecessor.Running(ctx); err != nil || len(running) > 0 {
		return requeueAfter(r.TakeoverInterval, err)
	}
	if err := r.Predecessor.RemoveWebhook(ctx); err != nil {
		return reconcile.Result{}, err
	}
	_, err := r.Definition.Apply(ctx, r.Client)
	return reconcile.Result{}, err
}

// declined is what the status of a resource says about a definition that is not ours to apply.
type declined struct {
	resource   types.UID
	generation int64
	refusal    string
}

// define brings the resource's definition to this version, and reports whether it is. Otherwise the resource is not
// touched: what this version does not know of it would be lost, or its status cannot be written on its own.
func (r *Reconciler) define(ctx context.Context, resource *hpp) (bool, error) {
	refusal, err := r.Definition.Apply(ctx, r.Client)
	if err != nil {
		if apierrors.IsConflict(err) {
			return false, err // somebody was faster; the next look is at what they wrote
		}
		fresh, events := status.LeftAlone(resource, r.now(), status.ReasonApplyFailed, err.Error())
		return false, errors.Join(err, r.writeStatus(ctx, resource, fresh, events))
	}
	if refusal == "" {
		clear(r.declined)
		return true, nil
	}
	fresh, events := status.LeftAlone(resource, r.now(), status.ReasonDowngradeRefused, refusal)
	r.measure(fresh)
	return false, r.sayOnce(ctx, resource, refusal, fresh, events)
}

// sayOnce writes a status that another operator of this project, which serves the resource, writes over: the two would
// go on for ever.
func (r *Reconciler) sayOnce(ctx context.Context, resource *hpp, refusal string,
	fresh v1beta1.HostPathProvisionerStatus, events []status.Event,
) error {
	said := declined{resource: resource.UID, generation: resource.Generation, refusal: refusal}
	if equality.Semantic.DeepEqual(resource.Status, fresh) {
		r.declined[said] = true
	}
	if r.declined[said] {
		return nil
	}
	return r.writeStatus(ctx, resource, fresh, events)
}

// defined passes the definition on to every resource and, as there may be none, to the one that there could be. The
// controller always hears of it when it starts.
func (r *Reconciler) defined(ctx context.Context, _ client.Object) []reconcile.Request {
	return append(requests(r.resources(ctx)), reconcile.Request{NamespacedName: types.NamespacedName{
		Name: names.CustomResource,
	}})
}

// ownDefinition reports whether an object is the resource's definition.
func ownDefinition(object client.Object) bool { return object.GetName() == definitions.Name }
