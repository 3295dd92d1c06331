package apply

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/util/csaupgrade"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

// injectCA is the annotation on what OpenShift's service CA is to write itself into.
const injectCA = "service.beta.openshift.io/inject-cabundle"

// reclaim removes what others have added to an object that was just applied. A server-side apply changes only the
// fields that it names; it removes those that its manager owned before. So the additions are given to our manager
// first, and then applied away.
func (a *Applier) reclaim(ctx context.Context, applied, wanted *Object) (*Object, error) {
	others, err := otherManagers(applied)
	if err != nil || others.Len() == 0 {
		return applied, err
	}
	patch, err := csaupgrade.UpgradeManagedFieldsPatch(asUpdates(applied, others), others, FieldManager)
	if err != nil {
		return applied, fmt.Errorf("take over the fields of %v: %w", sets.List(others), err)
	}
	if err := a.writer.Patch(ctx, applied.DeepCopy(), client.RawPatch(types.JSONPatchType, patch)); err != nil {
		return applied, fmt.Errorf("take over the fields of %v: %w", sets.List(others), err)
	}
	again := wanted.DeepCopy()
	err = ServerSide(ctx, a.writer, again)
	return again, err
}

// otherManagers are the field managers beside ours that set what an object is for. Labels and annotations are
// anybody's, those of a pod template too (`kubectl rollout restart` sets one), and so are a ServiceAccount, to which
// OpenShift adds secrets, and a ConfigMap that asks OpenShift for its service CA.
func otherManagers(object *Object) (sets.Set[string], error) {
	others := sets.New[string]()
	if object.GetKind() == "ServiceAccount" || object.GetAnnotations()[injectCA] == "true" {
		return others, nil
	}
	for _, entry := range object.GetManagedFields() {
		if entry.Manager == FieldManager || entry.Subresource != "" || entry.FieldsV1 == nil {
			continue
		}
		fields := fieldpath.NewSet()
		if err := fields.FromJSON(entry.FieldsV1.GetRawReader()); err != nil {
			return nil, fmt.Errorf("read the fields that %s manages: %w", entry.Manager, err)
		}
		fields.Leaves().Iterate(func(path fieldpath.Path) {
			if essential(path) {
				others.Insert(entry.Manager)
			}
		})
	}
	return others, nil
}

// essential reports whether a field is part of what the object does.
func essential(path fieldpath.Path) bool {
	for _, free := range []fieldpath.Path{
		fieldpath.MakePathOrDie("metadata"),
		fieldpath.MakePathOrDie("status"),
		fieldpath.MakePathOrDie("spec", "template", "metadata"),
	} {
		if len(path) >= len(free) && path[:len(free)].Equals(free) {
			return false
		}
	}
	return true
}

// asUpdates is the object with the managers' server-side applies written as updates, the only kind that can be taken
// over.
func asUpdates(object *Object, managers sets.Set[string]) *Object {
	changed := object.DeepCopy()
	entries := changed.GetManagedFields()
	for i := range entries {
		if managers.Has(entries[i].Manager) && entries[i].Subresource == "" {
			entries[i].Operation = metav1.ManagedFieldsOperationUpdate
		}
	}
	changed.SetManagedFields(entries)
	return changed
}
