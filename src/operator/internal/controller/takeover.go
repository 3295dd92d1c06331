package controller

import (
	"context"
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/names"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/operator/internal/predecessor"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/operator/internal/status"
)

// takeOver lets nothing be done for a resource while something of kubevirt's runs: two drivers with one name on a node
// take each other's registration away, and kubevirt's removes data past our trash. It returns how long to wait; 0 is
// that nothing is in the way.
//
// A resource that is ours alone is not looked at again: kubevirt's operator puts its finalizer on all that it serves.
func (r *Reconciler) takeOver(ctx context.Context, resource *hpp) (time.Duration, error) {
	ours := controllerutil.ContainsFinalizer(resource, names.Finalizer)
	theirs := controllerutil.ContainsFinalizer(resource, names.KubevirtFinalizer)
	if ours && !theirs {
		if serves, err := r.serves(ctx); serves || err != nil {
			return 0, err
		}
	}
	wait, err := r.Predecessor.Displace(ctx)
	if err != nil {
		return 0, err
	}
	if wait.Over() && ours && theirs && r.now().Before(r.disowned.Add(r.FinalizerGrace)) {
		wait = predecessor.Wait{Operator: true, Message: "not served: kubevirt's finalizer came back as soon as it " +
			"was removed, so that an operator of kubevirt's runs where it cannot be found, outside the cluster or " +
			"under another name: stop it, then this goes on by itself"}
	}
	if wait.Over() {
		return r.besideOurs(ctx, resource)
	}
	r.unopposed = false
	reason := status.ReasonKubevirtRuns
	if wait.Operator {
		reason = status.ReasonKubevirtOperatorRuns
	}
	fresh, events := status.Waiting(resource, r.now(), reason, wait.Message)
	return r.TakeoverInterval, r.writeStatus(ctx, resource, fresh, events)
}

// serves reports whether nothing was in the way before: in this process, or by an earlier one, whose driver is there.
// What others put into their own namespaces must not stop an operator that is started again.
func (r *Reconciler) serves(ctx context.Context) (bool, error) {
	if r.unopposed {
		return true, nil
	}
	var drivers appsv1.DaemonSetList
	err := r.Live.List(ctx, &drivers, client.InNamespace(r.Namespace),
		client.MatchingLabels{names.OwnedBy: names.CustomResource})
	if err != nil {
		return false, fmt.Errorf("find out whether this namespace has a driver of this project: list DaemonSets: %w",
			err)
	}
	r.unopposed = len(drivers.Items) > 0
	return r.unopposed, nil
}

// besideOurs waits while another release of this project serves the cluster from its own namespace, as one that was
// installed where kubevirt's pools have their claims. Both know the same resource, and neither the other's Lease.
func (r *Reconciler) besideOurs(ctx context.Context, resource *hpp) (time.Duration, error) {
	var pods corev1.PodList
	if err := r.Live.List(ctx, &pods, client.MatchingLabels{names.OwnedBy: names.CustomResource}); err != nil {
		return 0, fmt.Errorf("find out whether another namespace has a driver of this project: list pods: %w", err)
	}
	i := slices.IndexFunc(pods.Items, func(pod corev1.Pod) bool {
		owner := metav1.GetControllerOf(&pod)
		return pod.Namespace != r.Namespace && owner != nil && owner.Kind == "DaemonSet"
	})
	if r.unopposed = i < 0; r.unopposed {
		return 0, nil
	}
	at := pods.Items[i].Namespace
	message := fmt.Sprintf("not served from namespace %[1]s: another release of this operator serves it from "+
		"namespace %[2]s, and two drivers of one name take each other's registration away: uninstall that of "+
		"namespace %[1]s with `helm uninstall --no-hooks`; or, where the operator in namespace %[2]s is no more, run "+
		"`kubectl delete daemonsets --namespace=%[2]s --selector=%[3]s=%[4]s`", r.Namespace, at, names.OwnedBy,
		names.CustomResource)
	fresh, events := status.Waiting(resource, r.now(), status.ReasonServedElsewhere, message)
	return r.TakeoverInterval, r.sayOnce(ctx, resource, message, fresh, events)
}

// refused makes events of a change of the resource that the webhook of an operator that is no more refused. No webhook
// keeps events away; unsaid are those that the change would have made.
func (r *Reconciler) refused(ctx context.Context, resource *hpp, err error, unsaid ...status.Event) {
	if !predecessor.Refused(err) {
		return
	}
	obstacles, asked := r.Predecessor.Obstacles(ctx)
	if asked != nil || obstacles == "" {
		return // the error is logged, and it is tried again
	}
	unsaid = append(unsaid,
		status.Event{Type: corev1.EventTypeWarning, Reason: status.EventWebhookRefuses, Note: obstacles})
	for _, event := range unsaid {
		r.recordEvent(resource, event)
	}
}

// tidyPredecessor removes what is left of kubevirt's once what takes its place is available.
func (r *Reconciler) tidyPredecessor(ctx context.Context, resource *hpp, deleting deletion, done work) error {
	applied := deleting.gate == nil && done.renderErr == nil && done.applyErr == nil && len(done.outcome.Replacing) == 0
	if !applied || r.measured != ready {
		return nil
	}
	return r.Predecessor.Tidy(ctx, resource.Spec.StoragePools, deleting.deployments)
}
