// Package webhook validates HostPathProvisioners before they are stored: what could never run is refused, and so is
// what would leave volumes behind.
package webhook

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/names"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/v1beta1"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/operator/internal/gates"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/operator/internal/pools"
)

// Setup serves the webhook on the manager's webhook server, at the path that controller-runtime makes of the kind.
func Setup(mgr ctrl.Manager, driver string) error {
	return ctrl.NewWebhookManagedBy(mgr, &v1beta1.HostPathProvisioner{}).
		WithValidator(New(mgr.GetAPIReader(), driver)).
		Complete()
}

// Validator has the webhook's rules.
type Validator struct {
	reader client.Reader
	driver string
}

var _ admission.Validator[*v1beta1.HostPathProvisioner] = (*Validator)(nil)

// New makes a Validator for the volumes of a CSI driver. The reader has to ask the API server: a cache may not know a
// volume that was just made.
func New(reader client.Reader, driver string) *Validator {
	return &Validator{reader: reader, driver: driver}
}

// ValidateCreate refuses another name, a second resource, and whatever the rules forbid.
func (v *Validator) ValidateCreate(
	ctx context.Context, created *v1beta1.HostPathProvisioner,
) (admission.Warnings, error) {
	if !created.DeletionTimestamp.IsZero() {
		return nil, nil
	}
	var problems field.ErrorList
	at := field.NewPath("metadata", "name")
	if created.Name != names.CustomResource {
		problems = append(problems, field.Invalid(at, created.Name,
			"the only HostPathProvisioner of a cluster is named "+names.CustomResource))
	}
	var others v1beta1.HostPathProvisionerList
	err := v.reader.List(ctx, &others)
	if err != nil {
		err = fmt.Errorf("the HostPathProvisioners cannot be listed, so there may be one already: %w; try again", err)
	}
	for _, other := range others.Items {
		if other.Name != created.Name {
			problems = append(problems, field.Forbidden(at, fmt.Sprintf("there is a HostPathProvisioner already, %q, "+
				"and a cluster has only one: change that one, or delete it first", other.Name)))
		}
	}
	problems = append(problems, pools.Validate(created.Spec)...)
	return warnings(created.Spec), refusal(problems, err)
}

// ValidateUpdate checks what was changed, and only that: what stands there already must not keep the rest from change.
func (v *Validator) ValidateUpdate(
	ctx context.Context, old, changed *v1beta1.HostPathProvisioner,
) (admission.Warnings, error) {
	if !changed.DeletionTimestamp.IsZero() || equality.Semantic.DeepEqual(old.Spec, changed.Spec) {
		return nil, nil
	}
	abandoned, err := v.abandoned(ctx, old.Spec, changed)
	texts := append(warnings(changed.Spec), moved(old.Spec, changed.Spec)...)
	if gates.Forced(changed.Annotations) {
		texts = append(texts, fmt.Sprintf(
			"the annotation %s is set: no change is refused for the sake of volumes until you take it off",
			names.ForceDelete))
	}
	return texts, refusal(append(pools.ValidateChange(old.Spec, changed.Spec), abandoned...), err)
}

// ValidateDelete refuses to delete the resource while there are volumes.
func (v *Validator) ValidateDelete(
	ctx context.Context, deleted *v1beta1.HostPathProvisioner,
) (admission.Warnings, error) {
	if !deleted.DeletionTimestamp.IsZero() || gates.Forced(deleted.Annotations) {
		return nil, nil
	}
	if spare, err := v.spare(ctx, deleted); spare || err != nil {
		return nil, err
	}
	volumes, err := v.volumes(ctx)
	if err != nil || len(volumes) == 0 {
		return nil, err
	}
	return nil, fmt.Errorf("the HostPathProvisioner %q still has %s: %s; delete their claims first, or set the "+
		"annotation %s to \"true\" on it to delete it and leave the data on the nodes",
		deleted.Name, gates.Count(volumes), gates.Describe(volumes), names.ForceDelete)
}

// spare reports whether the resource is one too many: kubevirt's operator allowed any name, and the one of the right
// name serves the volumes.
func (v *Validator) spare(ctx context.Context, deleted *v1beta1.HostPathProvisioner) (bool, error) {
	if deleted.Name == names.CustomResource {
		return false, nil
	}
	err := v.reader.Get(ctx, client.ObjectKey{Name: names.CustomResource}, &v1beta1.HostPathProvisioner{})
	if client.IgnoreNotFound(err) != nil {
		return false, fmt.Errorf("it is not known whether the HostPathProvisioner %s is there: %w; try again",
			names.CustomResource, err)
	}
	return !apierrors.IsNotFound(err), nil
}

func (v *Validator) volumes(ctx context.Context) ([]gates.Volume, error) {
	var list corev1.PersistentVolumeList
	if err := v.reader.List(ctx, &list); err != nil {
		return nil, fmt.Errorf("the PersistentVolumes cannot be listed, so volumes might be left behind: %w; try again", err)
	}
	return gates.Volumes(list.Items, v.driver), nil
}

// refusal is one error with a line for each problem, nil if there is none.
func refusal(problems field.ErrorList, err error) error {
	lines := []error{err}
	for _, problem := range problems {
		lines = append(lines, problem)
	}
	return errors.Join(lines...)
}
