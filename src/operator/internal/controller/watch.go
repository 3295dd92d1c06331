package controller

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/v1beta1"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/operator/internal/definitions"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/operator/internal/gates"
)

const (
	// After an error it is tried again, at first soon, at last once a minute: what is in the way (an object of
	// somebody else's, a missing right) may go without an event.
	retryFirst = 100 * time.Millisecond
	retryMost  = time.Minute
	// passTimeout bounds one pass. A cache that never fills, for want of a right, must not stop it for good.
	passTimeout = 2 * time.Minute
)

// Setup adds the reconciler to the manager, with all that it watches. An event of changed means that the cluster is
// another.
func (r *Reconciler) Setup(mgr manager.Manager, changed <-chan event.GenericEvent) error {
	limiter := workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](retryFirst, retryMost)
	c, err := controller.New("hostpathprovisioner", mgr,
		controller.Options{Reconciler: r, RateLimiter: limiter, ReconciliationTimeout: passTimeout})
	if err != nil {
		return fmt.Errorf("make the controller: %w", err)
	}
	r.controller = c
	cache := mgr.GetCache()
	always := r.always()
	for _, watch := range []source.Source{
		source.Kind[client.Object](cache, &hpp{}, always),
		source.Kind[client.Object](cache, &corev1.ConfigMap{}, always),
		source.Kind[client.Object](cache, &corev1.Pod{}, always),
		source.Kind[client.Object](cache, &corev1.PersistentVolumeClaim{}, always),
		source.Kind[client.Object](cache, &corev1.Node{}, always, predicate.Funcs{UpdateFunc: nodeTurned}),
		source.Kind[client.Object](cache, &corev1.PersistentVolume{},
			handler.EnqueueRequestsFromMapFunc(r.whileDeleting)),
		source.Kind[client.Object](cache, definitions.Metadata(), handler.EnqueueRequestsFromMapFunc(r.defined),
			predicate.NewPredicateFuncs(ownDefinition)),
		source.Channel(changed, always),
	} {
		if err := c.Watch(watch); err != nil {
			return fmt.Errorf("watch: %w", err)
		}
	}
	return r.follow(context.Background())
}

// source watches a kind of the rendered objects.
func (r *Reconciler) source(kind schema.GroupVersionKind) source.Source {
	return source.Kind[client.Object](r.Rendered, blankObject(kind), r.always())
}

func blankObject(kind schema.GroupVersionKind) *unstructured.Unstructured {
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(kind)
	return object
}

// always enqueues every resource, whatever has changed: which one is served depends on the others.
func (r *Reconciler) always() handler.EventHandler {
	return handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, _ client.Object) []reconcile.Request {
		return requests(r.resources(ctx))
	})
}

// whileDeleting passes volumes on only when one that goes can open a gate: a large cluster has many, and they change
// often.
func (r *Reconciler) whileDeleting(ctx context.Context, _ client.Object) []reconcile.Request {
	all, err := r.resources(ctx)
	return requests(slices.DeleteFunc(all, func(one hpp) bool { return one.DeletionTimestamp == nil }), err)
}

// requests are for resources. They cannot be listed only while the cache is being stopped.
func requests(all []hpp, err error) []reconcile.Request {
	if err != nil {
		return nil
	}
	var wanted []reconcile.Request
	for i := range all {
		wanted = append(wanted, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&all[i])})
	}
	return wanted
}

// resources are all HostPathProvisioners.
func (r *Reconciler) resources(ctx context.Context) ([]hpp, error) {
	var all v1beta1.HostPathProvisionerList
	if err := r.Client.List(ctx, &all); err != nil {
		return nil, fmt.Errorf("list the HostPathProvisioners: %w", err)
	}
	return all.Items, nil
}

// nodeTurned reports whether a node has become ready, or has stopped being so, or takes other pods than before. Its
// heartbeats are many, and change nothing.
func nodeTurned(change event.UpdateEvent) bool {
	old, isNode := change.ObjectOld.(*corev1.Node)
	changed, areNodes := change.ObjectNew.(*corev1.Node)
	if !isNode || !areNodes {
		return false
	}
	before, _ := gates.NodeReady(old)
	after, _ := gates.NodeReady(changed)
	return before != after || !equality.Semantic.DeepEqual(selected(old), selected(changed))
}

// selected is what decides which pods a node takes.
func selected(node *corev1.Node) corev1.Node {
	return corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Labels: node.Labels},
		Spec:       corev1.NodeSpec{Taints: node.Spec.Taints, Unschedulable: node.Spec.Unschedulable},
	}
}
