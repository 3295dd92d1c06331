// Package controller makes the cluster what a HostPathProvisioner says: fetch, deletion gates, render, apply, prune,
// status.
package controller

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/v1beta1"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/logging"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/operator/internal/apply"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/operator/internal/platform"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/operator/internal/poolclaims"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/operator/internal/pools"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/operator/internal/predecessor"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/operator/internal/render"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/operator/internal/tlspolicy"
)

// hpp is the custom resource.
type hpp = v1beta1.HostPathProvisioner

// Renderer makes manifests.
type Renderer interface {
	Plan(in render.Input) (poolclaims.Plan, error)
	Render(ctx context.Context, in render.Input) (render.Result, error)
	Version() string
}

// Platform knows the cluster.
type Platform interface {
	Facts() platform.Facts
}

// TLSPolicy knows which TLS the cluster wants.
type TLSPolicy interface {
	Current() tlspolicy.Policy
}

// Definition is the resource's, which has to be this version's before it is served.
type Definition interface {
	Apply(ctx context.Context, cached client.Reader) (refusal string, err error)
}

// Ready takes the value of the metric kubevirt_hpp_cr_ready.
type Ready interface {
	Set(value float64)
}

// Options are what a Reconciler works with.
type Options struct {
	// Client reads HostPathProvisioners, the base ConfigMap, Nodes, PersistentVolumes, claims of pools and Pods from a
	// cache, and writes.
	Client client.Client
	// Live reads past every cache.
	Live client.Reader
	// Rendered has the objects with the label names.OwnedBy.
	Rendered cache.Cache
	Renderer Renderer
	// Predecessor is what is there of kubevirt's.
	Predecessor *predecessor.Predecessor
	Platform    Platform
	Policy      TLSPolicy
	Recorder    events.EventRecorder
	Ready       Ready
	Log         *slog.Logger
	// Definition is the resource's own CustomResourceDefinition.
	Definition Definition

	Namespace, ReleaseName, BaseConfig, DriverName string
	// Version is the operator's own.
	Version string
	// TakeoverInterval is how often it is looked whether what kubevirt's operator runs has ended: nothing of it is
	// watched.
	TakeoverInterval time.Duration
	// FinalizerGrace is how long a finalizer of kubevirt's that was removed has to stay away: only an operator puts it
	// back sooner.
	FinalizerGrace time.Duration
}

// Reconciler reconciles the HostPathProvisioner that is served, and refuses others.
type Reconciler struct {
	Options
	applier *apply.Applier
	claims  *poolclaims.Keeper
	// controller and watched are for the kinds that the cluster has only sometimes.
	controller controller.Controller
	watched    map[string]bool
	now        func() time.Time
	// unopposed: nothing of kubevirt's ran when it was last looked.
	unopposed bool
	// disowned is when kubevirt's finalizer was last removed from a resource that has ours.
	disowned time.Time
	// declined has what resources show to have been told.
	declined map[declined]bool
	// measured is the value of the metric.
	measured float64
}

// New makes a reconciler that watches nothing yet.
func New(o Options) *Reconciler {
	r := &Reconciler{Options: o, watched: map[string]bool{}, declined: map[declined]bool{}, now: time.Now}
	r.applier = apply.New(o.Client, o.Rendered, o.Live)
	r.claims = poolclaims.New(o.Client, o.Client, o.Live, o.Namespace)
	r.setGauge(unknown)
	return r
}

// Reconcile brings the cluster one step nearer to what a resource says.
func (r *Reconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	resource := &hpp{}
	if err := r.Client.Get(ctx, request.NamespacedName, resource); apierrors.IsNotFound(err) {
		return r.serveNobody(ctx)
	} else if err != nil {
		return reconcile.Result{}, err
	}
	if ready, wait, err := r.prepare(ctx, resource); err != nil || !ready {
		return requeueAfter(wait, err)
	}
	if refused, err := r.refuse(ctx, resource); refused || err != nil {
		return reconcile.Result{}, err
	}
	if err := r.follow(ctx); err != nil {
		return reconcile.Result{}, err
	}
	if err := r.putFinalizer(ctx, resource); err != nil {
		return reconcile.Result{}, unlessBehind(err)
	}
	around, err := r.readSurroundings(ctx)
	if err != nil {
		return reconcile.Result{}, err
	}
	deleting, err := r.deleting(ctx, resource, around)
	if err != nil || deleting.over {
		return reconcile.Result{}, unlessBehind(err)
	}
	done := r.serve(ctx, resource, deleting)
	wait, reported := r.report(ctx, resource, deleting, done)
	err = errors.Join(done.claims.Failed, done.applyErr, done.pruneErr, reported,
		r.tidyPredecessor(ctx, resource, deleting, done))
	return requeueAfter(sooner(deleting.wait, sooner(wait, whileKept(done.claims))), err)
}

// requeueAfter is when to come back: after an error the queue knows.
func requeueAfter(after time.Duration, err error) (reconcile.Result, error) {
	if err != nil {
		after = 0
	}
	return reconcile.Result{RequeueAfter: after}, err
}

// prepare makes sure that nothing of kubevirt's runs, and that the definition is this version's. Until then nothing
// else is done for the resource.
func (r *Reconciler) prepare(ctx context.Context, resource *hpp) (ready bool, wait time.Duration, err error) {
	if wait, err = r.takeOver(ctx, resource); err != nil || wait > 0 {
		return false, wait, err
	}
	ready, err = r.define(ctx, resource)
	return ready, 0, err
}

// unlessBehind passes on every error but that of a cache that was behind: what it did not know yet will wake us. Of
// several, all have to be of that kind.
func unlessBehind(err error) error {
	all := []error{err}
	var several interface{ Unwrap() []error }
	if errors.As(err, &several) {
		all = several.Unwrap()
	}
	if slices.ContainsFunc(all, func(one error) bool { return !apierrors.IsConflict(one) }) {
		return err
	}
	return nil
}

// work is what serving a resource came to.
type work struct {
	claims   poolclaims.State
	rendered render.Result
	outcome  apply.Outcome
	// renderErr is nothing to try again: it stays until the base, the resource or the cluster changes.
	renderErr, applyErr, pruneErr error
}

// serve makes claims, renders, applies and prunes, unless the deletion has gone beyond that.
func (r *Reconciler) serve(ctx context.Context, resource *hpp, deleting deletion) work {
	var done work
	in, err := r.renderInput(ctx, resource)
	if err != nil {
		done.renderErr = err
		return done
	}
	if !deleting.ending {
		done.claims, done.applyErr = r.provide(ctx, in, deleting.surroundings)
	}
	in.Mounts = done.claims.Mounts
	done.rendered, done.renderErr = r.Renderer.Render(ctx, in)
	if done.renderErr != nil || done.applyErr != nil || deleting.ending {
		return done
	}
	owner := ownerOf(resource)
	done.outcome, done.applyErr = r.applier.Apply(ctx, owner, done.rendered.Objects)
	if done.applyErr != nil {
		// What could not be made may be what takes the place of something that would be removed now.
		return done
	}
	pruned, err := r.applier.Prune(ctx, owner, done.rendered.Objects, r.listKinds(), kept(done.rendered.Pools))
	if done.pruneErr = err; len(pruned) > 0 {
		r.Log.InfoContext(ctx, "removed what is no longer rendered", logging.KeyObjects, pruned)
	}
	return done
}

// kept is what stays although it is not rendered: while a pool is left out, as one that an upgrade does not take any
// more, nothing that mounts a claim is removed. Volumes of it are in use.
func kept(outcomes []pools.Outcome) apply.Spare {
	if slices.ContainsFunc(outcomes, func(o pools.Outcome) bool { return o.Broken != "" }) {
		return poolclaims.IsMounter
	}
	return nil
}
