package controller

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/names"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/operator/internal/apply"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/operator/internal/gates"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/operator/internal/poolclaims"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/operator/internal/status"
)

// surroundings are what a resource's state depends on beside itself.
type surroundings struct {
	nodes []corev1.Node
	// pods are all of the operator's but the mounters.
	pods, mounters []corev1.Pod
	daemonSets     []appsv1.DaemonSet
	deployments    []appsv1.Deployment
}

// deletion is how far the deletion of a resource is.
type deletion struct {
	// gate is the first closed gate, nil when nothing is being deleted.
	gate *gates.Gate
	// wait is how long until a gate opens by itself; 0 is for ever.
	wait time.Duration
	// ending: the workloads are going, nothing is applied any more. over: the resource is gone.
	ending, over bool
	surroundings
}

// putFinalizer puts our finalizer on a resource, and takes kubevirt's away. A resource that is being deleted gets no
// new one: then kubevirt's is what keeps it until the gates are open.
func (r *Reconciler) putFinalizer(ctx context.Context, resource *hpp) error {
	before := resource.DeepCopy()
	changed := resource.DeletionTimestamp == nil && controllerutil.AddFinalizer(resource, names.Finalizer)
	if controllerutil.ContainsFinalizer(resource, names.Finalizer) &&
		controllerutil.RemoveFinalizer(resource, names.KubevirtFinalizer) {
		changed, r.disowned = true, r.now()
	}
	return r.patchFinalizers(ctx, changed, resource, before)
}

// release lets a resource go.
func (r *Reconciler) release(ctx context.Context, resource *hpp) error {
	before := resource.DeepCopy()
	changed := controllerutil.RemoveFinalizer(resource, names.KubevirtFinalizer)
	changed = controllerutil.RemoveFinalizer(resource, names.Finalizer) || changed
	return r.patchFinalizers(ctx, changed, resource, before)
}

func (r *Reconciler) patchFinalizers(ctx context.Context, changed bool, resource, before *hpp) error {
	if !changed {
		return nil
	}
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	if err := r.Client.Patch(ctx, resource, patch); client.IgnoreNotFound(err) != nil {
		r.refused(ctx, resource, err)
		return fmt.Errorf("set the finalizers of HostPathProvisioner %s: %w", resource.Name, err)
	}
	return nil
}

// readSurroundings reads what the gates and the status need.
func (r *Reconciler) readSurroundings(ctx context.Context) (surroundings, error) {
	var nodes corev1.NodeList
	if err := r.Client.List(ctx, &nodes); err != nil {
		return surroundings{}, fmt.Errorf("list nodes: %w", err)
	}
	var pods corev1.PodList
	own := client.MatchingLabels{names.OwnedBy: names.CustomResource}
	if err := r.Client.List(ctx, &pods, client.InNamespace(r.Namespace), own); err != nil {
		return surroundings{}, fmt.Errorf("list the driver's pods: %w", err)
	}
	around := surroundings{nodes: nodes.Items}
	for i := range pods.Items {
		if poolclaims.IsMounter(pods.Items[i].Labels) {
			around.mounters = append(around.mounters, pods.Items[i])
		} else {
			around.pods = append(around.pods, pods.Items[i])
		}
	}
	var err error
	if around.daemonSets, err = readWorkloads[appsv1.DaemonSet](ctx, r.Rendered, "DaemonSet"); err != nil {
		return surroundings{}, err
	}
	around.deployments, err = readWorkloads[appsv1.Deployment](ctx, r.Rendered, "Deployment")
	return around, err
}

// workloadsOf names those that the resource owns.
func (s surroundings) workloadsOf(resource *hpp) (all []string) {
	for i := range s.daemonSets {
		if metav1.IsControlledBy(&s.daemonSets[i], resource) {
			all = append(all, "DaemonSet "+s.daemonSets[i].Name)
		}
	}
	for i := range s.deployments {
		if metav1.IsControlledBy(&s.deployments[i], resource) {
			all = append(all, "Deployment "+s.deployments[i].Name)
		}
	}
	return all
}

// readWorkloads reads the objects of a kind that is cached without its type.
func readWorkloads[T any](ctx context.Context, from client.Reader, kind string) ([]T, error) {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(appsv1.SchemeGroupVersion.WithKind(kind + "List"))
	if err := from.List(ctx, list); err != nil {
		return nil, fmt.Errorf("list %ss: %w", kind, err)
	}
	var all []T
	for i := range list.Items {
		var object T
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(list.Items[i].Object, &object); err != nil {
			return nil, fmt.Errorf("read %s %s: %w", kind, list.Items[i].GetName(), err)
		}
		all = append(all, object)
	}
	return all, nil
}

// deletion goes through the gates of a resource that is being deleted.
func (r *Reconciler) deleting(ctx context.Context, resource *hpp, around surroundings) (deletion, error) {
	h := deletion{surroundings: around}
	if resource.DeletionTimestamp == nil {
		return h, nil
	}
	if !controllerutil.ContainsFinalizer(resource, names.Finalizer) &&
		!controllerutil.ContainsFinalizer(resource, names.KubevirtFinalizer) {
		h.over = true
		return h, nil
	}
	volumes, err := r.volumes(ctx)
	if err != nil {
		return h, err
	}
	all, err := r.allVolumes(ctx)
	if err != nil {
		return h, err
	}
	nested, mounters := divide(around.mounters, all, r.Namespace)
	chain := gates.Deletion{
		Now: r.now(), Since: resource.DeletionTimestamp.Time, Annotations: resource.Annotations,
		Volumes: volumes, Pods: around.pods, Nested: nested, Mounters: mounters, Nodes: around.nodes,
		Workloads: around.workloadsOf(resource),
	}.Chain()
	for _, gate := range chain {
		if !gate.Open {
			h.gate, h.wait = &gate, timeUntil(gate.Deadline, r.now())
			return h, nil
		}
		h.ending = true
		spare := spared(gate.Name, nested)
		if _, err := r.applier.Remove(ctx, ownerOf(resource), workloads(r.listKinds()), spare); err != nil {
			return h, err
		}
	}
	h.over = true
	return h, r.finishDeletion(ctx, resource, chain)
}

// divide tells mounters' pods apart: nested are those whose claims are volumes of our own driver.
func divide(mounters []corev1.Pod, volumes []gates.Volume, namespace string) (nested, others []corev1.Pod) {
	for _, pod := range mounters {
		pool, node := pod.Labels[names.PoolLabel], pod.Annotations[names.NodeAnnotation]
		own, shared := namespace+"/"+poolclaims.ClaimName(pool, node), namespace+"/"+poolclaims.SharedClaimName(pool)
		if slices.ContainsFunc(volumes, func(volume gates.Volume) bool {
			return volume.OfPool && !volume.Legacy && (volume.Claim == own || volume.Claim == shared)
		}) {
			nested = append(nested, pod)
		} else {
			others = append(others, pod)
		}
	}
	return nested, others
}

// spared are the labels of what stays although a gate is open. A mounter goes only when nobody is left who uses what it
// has mounted; but the driver goes after those mounters whose claims it has to unmount.
func spared(gate string, nested []corev1.Pod) apply.Spare {
	switch {
	case gate == gates.VolumesGone && len(nested) > 0:
		return func(labels map[string]string) bool {
			return !poolclaims.IsMounter(labels) || !slices.ContainsFunc(nested,
				func(pod corev1.Pod) bool { return pod.Labels[names.MountLabel] == labels[names.MountLabel] })
		}
	case gate == gates.VolumesGone || gate == gates.NestedEnded:
		return poolclaims.IsMounter
	default:
		return nil
	}
}

// volumes are those that block a deletion. That there are none is believed only when the API server says so itself.
func (r *Reconciler) volumes(ctx context.Context) ([]gates.Volume, error) {
	for _, reader := range []client.Reader{r.Client, r.Live} {
		var list corev1.PersistentVolumeList
		if err := reader.List(ctx, &list); err != nil {
			return nil, fmt.Errorf("list PersistentVolumes: %w", err)
		}
		if found := gates.OfUsers(gates.Volumes(list.Items, r.DriverName, r.Namespace)); len(found) > 0 {
			return found, nil
		}
	}
	return nil, nil
}

// finishDeletion removes what is left of a resource whose gates are open, and lets it go. A cache that is behind still
// shows one that has gone: what is there by now may belong to the next.
func (r *Reconciler) finishDeletion(ctx context.Context, resource *hpp, chain []gates.Gate) error {
	var there hpp
	switch err := r.Live.Get(ctx, client.ObjectKeyFromObject(resource), &there); {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return fmt.Errorf("find out whether HostPathProvisioner %s is still there: %w", resource.Name, err)
	case there.UID != resource.UID:
		return nil
	}
	if _, err := r.applier.Remove(ctx, ownerOf(resource), r.listKinds(), nil); err != nil {
		return err
	}
	if err := r.Predecessor.RemoveAll(ctx); err != nil {
		return err
	}
	if err := r.release(ctx, resource); err != nil {
		return err
	}
	var left []string
	for _, gate := range chain {
		if gate.Left != "" {
			left = append(left, gate.Message+": "+gate.Left)
		}
	}
	if len(left) > 0 {
		r.recordEvent(resource,
			status.Event{Type: corev1.EventTypeWarning, Reason: eventLeftBehind, Note: strings.Join(left, "; ")})
	}
	r.setGauge(unknown)
	return r.claimsStay(ctx, resource)
}
