package apply

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
)

// Spare reports whether an object with these labels stays; nil spares none.
type Spare func(labels map[string]string) bool

func (s Spare) has(object *Object) bool { return s != nil && s(object.GetLabels()) }

// Prune deletes what the owner has in the cluster and is not among the rendered objects, but for what is to be
// spared. Without a rendering there is nothing to compare with, and nothing is deleted.
func (a *Applier) Prune(
	ctx context.Context, owner metav1.OwnerReference, rendered []*Object, kinds []Kind, spare Spare,
) ([]string, error) {
	if len(rendered) == 0 {
		return nil, errors.New("nothing was rendered, so that nothing is removed")
	}
	keep := map[reference]bool{}
	for _, object := range rendered {
		keep[referenceOf(object)] = true
	}
	return a.delete(ctx, owner, kinds, func(object *Object) bool {
		return keep[referenceOf(object)] || spare.has(object)
	})
}

// Remove deletes what the owner has of the kinds, but for objects that are to be spared.
func (a *Applier) Remove(
	ctx context.Context, owner metav1.OwnerReference, kinds []Kind, spare Spare,
) ([]string, error) {
	return a.delete(ctx, owner, kinds, spare.has)
}

// delete gives the objects whose deletion it asked for.
func (a *Applier) delete(
	ctx context.Context, owner metav1.OwnerReference, kinds []Kind, spare func(*Object) bool,
) ([]string, error) {
	var deleted []string
	var problems []error
	for _, kind := range kinds {
		owned, err := a.listOwned(ctx, owner.UID, kind)
		if err != nil {
			problems = append(problems, fmt.Errorf("list %s: %w", kind.Kind, err))
			continue
		}
		for _, object := range owned {
			if object.GetDeletionTimestamp() != nil || spare(object) {
				continue
			}
			if err := a.remove(ctx, object); err != nil {
				problems = append(problems, fmt.Errorf("delete %s: %w", describe(object), err))
				continue
			}
			deleted = append(deleted, describe(object))
		}
	}
	return deleted, errors.Join(problems...)
}

// listOwned are the objects of a kind that the owner controls. Those of others are never among them,
// whatever their labels.
func (a *Applier) listOwned(ctx context.Context, uid types.UID, kind Kind) ([]*Object, error) {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
	err := a.cached.List(ctx, list)
	if meta.IsNoMatchError(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var owned []*Object
	for i := range list.Items {
		item := &list.Items[i]
		if slices.ContainsFunc(item.GetOwnerReferences(),
			func(reference metav1.OwnerReference) bool { return reference.UID == uid }) {
			owned = append(owned, item)
		}
	}
	return owned, nil
}
