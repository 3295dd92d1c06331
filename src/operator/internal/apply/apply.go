// Package apply brings what was rendered into the cluster, server-side, and takes away what is no longer rendered. It
// touches only what is the operator's, or was its predecessor's.
package apply

import (
	"context"
	"errors"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/names"
)

// FieldManager is the operator's name in managedFields.
const FieldManager = "hostpath-provisioner-operator"

// Object is whatever the chart renders.
type Object = unstructured.Unstructured

// Kind is that of an Object.
type Kind = schema.GroupVersionKind

// Writer changes the cluster.
type Writer interface {
	Apply(ctx context.Context, object runtime.ApplyConfiguration, options ...client.ApplyOption) error
	Create(ctx context.Context, object client.Object, options ...client.CreateOption) error
	Patch(ctx context.Context, object client.Object, patch client.Patch, options ...client.PatchOption) error
	Delete(ctx context.Context, object client.Object, options ...client.DeleteOption) error
}

// Applier applies and removes objects. It is for one caller at a time.
type Applier struct {
	writer Writer
	// cached knows the objects with the operator's label, live all.
	cached, live client.Reader
	// settled is what an object looked like, and should look like, after it was last applied.
	settled map[reference]settlement
}

// Outcome is what applying came to.
type Outcome struct {
	// Replacing are objects that cannot be changed into what they should be. They are being deleted and will be made
	// anew when they are gone.
	Replacing []string
}

// reference names an object whatever its version.
type reference struct {
	kind schema.GroupKind
	name types.NamespacedName
}

type settlement struct{ wanted, live string }

// New makes an applier. The cached reader must know every object with the label names.OwnedBy.
func New(writer Writer, cached, live client.Reader) *Applier {
	return &Applier{writer: writer, cached: cached, live: live, settled: map[reference]settlement{}}
}

// Apply applies every object; errors are joined, each names its object.
func (a *Applier) Apply(ctx context.Context, owner metav1.OwnerReference, objects []*Object) (Outcome, error) {
	var outcome Outcome
	var problems []error
	for _, object := range objects {
		replacing, err := a.applyOne(ctx, owner, object)
		if err != nil {
			problems = append(problems, fmt.Errorf("%s: %w", describe(object), err))
		}
		if replacing {
			outcome.Replacing = append(outcome.Replacing, describe(object))
		}
	}
	return outcome, errors.Join(problems...)
}

func (a *Applier) applyOne(
	ctx context.Context, owner metav1.OwnerReference, object *Object,
) (replacing bool, err error) {
	wanted := object.DeepCopy()
	wanted.SetOwnerReferences([]metav1.OwnerReference{owner})
	existing, err := a.findExisting(ctx, wanted)
	if err != nil {
		return false, err
	}
	state := settlement{wanted: digest(wanted.Object), live: fingerprintOf(existing)}
	switch judge(existing, wanted, owner.UID) {
	case leaving:
		return true, nil
	case foreign:
		return false, refusal(existing)
	case ours:
		if a.settled[referenceOf(wanted)] == state {
			return false, nil
		}
	case absent, predecessors:
	}
	applied := wanted.DeepCopy()
	err = ServerSide(ctx, a.writer, applied)
	if apierrors.IsInvalid(err) && existing != nil {
		return a.replace(ctx, existing, wanted, err)
	}
	if err == nil {
		applied, err = a.reclaim(ctx, applied, wanted)
	}
	if err != nil {
		return false, advise(err)
	}
	a.settled[referenceOf(wanted)] = settlement{wanted: state.wanted, live: fingerprintOf(applied)}
	return false, nil
}

// ServerSide applies an object as the operator's and takes its fields over from others. The object becomes what is
// stored.
func ServerSide(ctx context.Context, writer Writer, object *Object) error {
	return writer.Apply(ctx, client.ApplyConfigurationFromUnstructured(object),
		client.FieldOwner(FieldManager), client.ForceOwnership)
}

// findExisting looks for an object among those with the label first. It is nil when there is none.
func (a *Applier) findExisting(ctx context.Context, wanted *Object) (*Object, error) {
	for _, reader := range []client.Reader{a.cached, a.live} {
		found := &Object{}
		found.SetGroupVersionKind(wanted.GroupVersionKind())
		err := reader.Get(ctx, client.ObjectKeyFromObject(wanted), found)
		if err == nil {
			return found, nil
		}
		if !apierrors.IsNotFound(err) {
			return nil, advise(err)
		}
	}
	return nil, nil //nolint:nilnil // absence is no error, and there is nothing to return
}

// replace deletes an object with fields that can only be set when it is made. Whether it could be made is asked
// first: an object that the API server would not take must not cost the one that runs.
func (a *Applier) replace(ctx context.Context, existing, wanted *Object, invalid error) (bool, error) {
	if existing.GetLabels()[names.OwnedBy] == "" && overlay(existing, wanted) {
		return false, fmt.Errorf("%w; claims may count on it as it is: delete it, or give one of the two another name",
			invalid)
	}
	if !replaceable(wanted.GroupVersionKind().GroupKind()) {
		return false, invalid
	}
	trial := wanted.DeepCopy()
	if err := a.writer.Create(ctx, trial, client.DryRunAll); err != nil && !apierrors.IsAlreadyExists(err) {
		return false, advise(err)
	}
	if existing.GetLabels()[names.OwnedBy] == "" {
		// Without the label the cache would not report that it is gone.
		label := client.RawPatch(types.MergePatchType,
			fmt.Appendf(nil, `{"metadata":{"labels":{%q:%q}}}`, names.OwnedBy, names.CustomResource))
		if err := a.writer.Patch(ctx, existing.DeepCopy(), label, client.FieldOwner(FieldManager)); err != nil {
			return false, fmt.Errorf("mark it before it is made anew: %w", err)
		}
	}
	if err := a.remove(ctx, existing); err != nil {
		return false, fmt.Errorf("delete it to make it anew: %w", err)
	}
	return true, nil
}

// remove deletes exactly the object that was seen, with the pods of a workload.
func (a *Applier) remove(ctx context.Context, object *Object) error {
	delete(a.settled, referenceOf(object))
	uid := object.GetUID()
	options := []client.DeleteOption{client.Preconditions{UID: &uid}}
	if Workload(object.GroupVersionKind().GroupKind()) {
		options = append(options, client.PropagationPolicy(metav1.DeletePropagationForeground))
	}
	return client.IgnoreNotFound(a.writer.Delete(ctx, object, options...))
}

func referenceOf(object *Object) reference {
	return reference{kind: object.GroupVersionKind().GroupKind(), name: client.ObjectKeyFromObject(object)}
}

func describe(object *Object) string {
	return object.GetKind() + " " + strings.TrimPrefix(client.ObjectKeyFromObject(object).String(), "/")
}

// advise says what to do about the errors that an administrator can mend.
func advise(err error) error {
	switch {
	case apierrors.IsForbidden(err):
		return fmt.Errorf("%w; give the operator the rights of this version's chart: upgrade its Helm release", err)
	case meta.IsNoMatchError(err):
		return fmt.Errorf("%w; install the API, or turn off the value that asks for it", err)
	default:
		return err
	}
}
