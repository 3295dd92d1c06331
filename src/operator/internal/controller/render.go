package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/v1beta1"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/operator/internal/apply"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/operator/internal/render"
)

// baseKey is the key of the base ConfigMap.
const baseKey = "values.yaml"

// renderInput is what a rendering depends on, less the claims of pools.
func (r *Reconciler) renderInput(ctx context.Context, resource *hpp) (render.Input, error) {
	base, err := r.readBaseValues(ctx)
	if err != nil {
		return render.Input{}, err
	}
	facts, policy := r.Platform.Facts(), r.Policy.Current()
	return render.Input{
		Base:          base,
		Resource:      resource,
		ReleaseName:   r.ReleaseName,
		Namespace:     r.Namespace,
		KubeVersion:   facts.KubeVersion,
		APIVersions:   facts.APIVersions,
		MinTLSVersion: policy.MinVersion,
		CipherSuites:  policy.CipherSuites,
	}, nil
}

func (r *Reconciler) readBaseValues(ctx context.Context) ([]byte, error) {
	config := &corev1.ConfigMap{}
	err := r.Client.Get(ctx, client.ObjectKey{Namespace: r.Namespace, Name: r.BaseConfig}, config)
	if apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("the ConfigMap %s/%s with the base values is not there; "+
			"upgrade the operator's Helm release to have it back", r.Namespace, r.BaseConfig)
	}
	if err != nil {
		return nil, fmt.Errorf("read the base values: %w", err)
	}
	values, found := config.Data[baseKey]
	if !found {
		return nil, fmt.Errorf("the ConfigMap %s/%s has no key %s; upgrade the operator's Helm release to have it back",
			r.Namespace, r.BaseConfig, baseKey)
	}
	return []byte(values), nil
}

// listKinds are those that the chart can make and the cluster has.
func (r *Reconciler) listKinds() []schema.GroupVersionKind {
	facts := r.Platform.Facts()
	return slices.DeleteFunc(render.Kinds(), func(kind schema.GroupVersionKind) bool { return !facts.Serves(kind) })
}

func workloads(kinds []schema.GroupVersionKind) []schema.GroupVersionKind {
	return slices.DeleteFunc(slices.Clone(kinds),
		func(kind schema.GroupVersionKind) bool { return !apply.Workload(kind.GroupKind()) })
}

// ownerOf is the reference to a resource on all that is applied for it. It does not block: the garbage collector
// takes a resource that was deleted with --cascade=foreground for gone, as far as its blocking dependents go, and
// would remove the driver past the gates.
func ownerOf(resource *hpp) metav1.OwnerReference {
	yes, no := true, false
	return metav1.OwnerReference{
		APIVersion: v1beta1.GroupVersion().String(), Kind: "HostPathProvisioner",
		Name: resource.Name, UID: resource.UID, Controller: &yes, BlockOwnerDeletion: &no,
	}
}

// follow watches the kinds that the cluster has and forgets those that it has no longer.
func (r *Reconciler) follow(ctx context.Context) error {
	if r.controller == nil {
		return nil
	}
	served := r.listKinds()
	var problems []error
	for _, kind := range render.Kinds() {
		name, wanted := render.APIVersion(kind), slices.Contains(served, kind)
		if wanted == r.watched[name] {
			continue
		}
		if err := r.setWatch(ctx, kind, wanted); err != nil {
			problems = append(problems, err) // and the next pass tries again
			continue
		}
		r.watched[name] = wanted
	}
	return errors.Join(problems...)
}

// setWatch begins or ends to watch a kind.
func (r *Reconciler) setWatch(ctx context.Context, kind schema.GroupVersionKind, watch bool) error {
	if watch {
		return r.controller.Watch(r.source(kind))
	}
	return r.Rendered.RemoveInformer(ctx, blankObject(kind))
}
