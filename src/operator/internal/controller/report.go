package controller

import (
	"context"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/names"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/v1beta1"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/operator/internal/chosen"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/operator/internal/poolclaims"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/operator/internal/status"
)

// Values of the metric kubevirt_hpp_cr_ready, kubevirt's.
const (
	unknown  = -1
	notReady = 0
	ready    = 1
)

const (
	eventLeftBehind = "DeletionLeftBehind"
	eventClaimsStay = "ClaimsStay"
	// maxNote is what the API allows in an event (events.k8s.io/v1).
	maxNote = 1024
)

// report writes the status, if it is another, and then makes events of what has changed. It returns how long until
// the rollout has had its time; 0 is for ever.
func (r *Reconciler) report(ctx context.Context, resource *hpp, deleting deletion, done work) (time.Duration, error) {
	in := status.Input{
		Old: resource.Status, Generation: resource.Generation, Now: r.now(),
		OperatorVersion: r.Version, TargetVersion: r.Renderer.Version(),
		DaemonSets: deleting.daemonSets, Deployments: deleting.deployments, Pods: deleting.pods, Nodes: deleting.nodes,
		Mounters: deleting.mounters, Claims: done.claims, Pools: done.rendered.Pools,
		NotServed: done.rendered.NotServed, Violations: done.rendered.Violations,
		Replacing: done.outcome.Replacing, RenderError: done.renderErr,
		ApplyError: done.applyErr, Deleting: deleting.gate,
	}
	for _, object := range done.rendered.Objects {
		if poolclaims.IsMounter(object.GetLabels()) {
			continue // one that waits for its claim is no rollout; its pool says so
		}
		switch object.GroupVersionKind() {
		case appsv1.SchemeGroupVersion.WithKind("DaemonSet"):
			in.Expected = append(in.Expected, object.GetName())
		case appsv1.SchemeGroupVersion.WithKind("Deployment"):
			in.ExpectedDeployments = append(in.ExpectedDeployments, object.GetName())
		}
	}
	fresh, events := status.Compute(in)
	r.measure(fresh)
	return timeUntil(status.Deadline(in, fresh), in.Now), r.writeStatus(ctx, resource, fresh, events)
}

// timeUntil is how long to wait for a deadline. A zero one never comes.
func timeUntil(deadline, now time.Time) time.Duration {
	if deadline.IsZero() {
		return 0
	}
	return max(deadline.Sub(now), time.Millisecond)
}

// sooner is the shorter of two waits, of which 0 is for ever.
func sooner(a, b time.Duration) time.Duration {
	if a == 0 || b == 0 {
		return max(a, b)
	}
	return min(a, b)
}

// writeStatus patches the status. The resource may have come from a cache that is behind: then somebody wrote since,
// the cache will say so, and this is tried again.
func (r *Reconciler) writeStatus(
	ctx context.Context, resource *hpp, fresh v1beta1.HostPathProvisionerStatus, events []status.Event,
) error {
	if equality.Semantic.DeepEqual(resource.Status, fresh) {
		return nil
	}
	changed := resource.DeepCopy()
	changed.Status = fresh
	patch := client.MergeFromWithOptions(resource, client.MergeFromWithOptimisticLock{})
	err := r.Client.Status().Patch(ctx, changed, patch)
	if apierrors.IsNotFound(err) {
		// kubevirt's definition has no subresource for it.
		err = r.Client.Patch(ctx, changed, patch)
	}
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		r.refused(ctx, resource, err, events...)
		return fmt.Errorf("write the status of HostPathProvisioner %s: %w", resource.Name, err)
	}
	for _, event := range events {
		r.recordEvent(resource, event)
	}
	return nil
}

// refuse reports whether another resource is served, or none, says so in the status of this one, and lets it be
// deleted.
func (r *Reconciler) refuse(ctx context.Context, resource *hpp) (bool, error) {
	all, err := r.resources(ctx)
	if err != nil {
		return false, err
	}
	name := chosen.Name(all)
	if name == resource.Name {
		return false, nil
	}
	if err := r.release(ctx, resource); err != nil || resource.DeletionTimestamp != nil {
		return true, err
	}
	message := "not served: the HostPathProvisioner of this cluster is " + name +
		"; move the spec there and delete this one, which removes nothing from the nodes"
	if name == "" {
		message = fmt.Sprintf("not served: there are %d HostPathProvisioners, none is named %s, and only one can be "+
			"served; delete the others, which removes nothing from the nodes", len(all), names.CustomResource)
	}
	fresh, events := status.LeftAlone(resource, r.now(), status.ReasonUnsupportedName, message)
	return true, r.writeStatus(ctx, resource, fresh, events)
}

func (r *Reconciler) recordEvent(resource *hpp, event status.Event) {
	note := event.Note
	if len(note) > maxNote {
		note = note[:maxNote-len("…")] + "…"
	}
	r.Recorder.Eventf(resource, nil, event.Type, event.Reason, "Reconcile", "%s", note)
}

// measure sets the metric. While something is being rolled out, a resource that was not ready is not said to have
// failed; one that was, no longer is.
func (r *Reconciler) measure(fresh v1beta1.HostPathProvisionerStatus) {
	is := func(kind string) bool { return meta.IsStatusConditionTrue(fresh.Conditions, kind) }
	switch {
	case is(v1beta1.Available):
		r.setGauge(ready)
	case !is(v1beta1.Progressing), is(v1beta1.Degraded), r.measured == ready:
		r.setGauge(notReady)
	}
}

func (r *Reconciler) setGauge(value float64) {
	r.measured = value
	r.Ready.Set(value)
}
