// Package webhook judges HostPathProvisioners before they are stored: what could never run is refused, and so is what
// would leave volumes behind.
package webhook

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/names"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/v1beta1"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/operator/internal/gates"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/operator/internal/pools"
)

// Options of the webhook.
type Options struct {
	// DriverName is the CSI driver whose volumes count.
	DriverName string
}

// Setup serves the webhook on the manager's webhook server, at the path that controller-runtime makes of the kind.
func Setup(mgr ctrl.Manager, options Options) error {
	return ctrl.NewWebhookManagedBy(mgr, &v1beta1.HostPathProvisioner{}).
		WithValidator(New(mgr.GetAPIReader(), options)).
		Complete()
}

// Validator is the webhook's judgement.
type Validator struct {
	reader client.Reader
	driver string
}

var _ admission.Validator[*v1beta1.HostPathProvisioner] = (*Validator)(nil)

// New makes a Validator. The reader has to ask the API server: a cache may not know a volume that was just made.
func New(reader client.Reader, options Options) *Validator {
	return &Validator{reader: reader, driver: options.DriverName}
}

// ValidateCreate refuses another name, a second resource, and whatever the rules forbid.
func (v *Validator) ValidateCreate(ctx context.Context, created *v1beta1.HostPathProvisioner) (admission.Warnings, error) {
	if !created.DeletionTimestamp.IsZero() {
		return nil, nil
	}
	var problems []error
	if created.Name != names.CustomResource {
		problems = append(problems, fmt.Errorf("metadata.name: %q is not allowed: the only HostPathProvisioner of a cluster is named %s",
			created.Name, names.CustomResource))
	}
	var others v1beta1.HostPathProvisionerList
	if err := v.reader.List(ctx, &others); err != nil {
		problems = append(problems, fmt.Errorf("the HostPathProvisioners cannot be listed, so there may be one already: %w; try again", err))
	}
	for _, other := range others.Items {
		if other.Name != created.Name {
			problems = append(problems, fmt.Errorf("metadata.name: there is a HostPathProvisioner already, %q, and a cluster has only one: "+
				"change that one, or delete it first", other.Name))
		}
	}
	problems = append(problems, errorsOf(pools.Problems(created.Spec))...)
	return warnings(created.Spec), errors.Join(problems...)
}

// ValidateUpdate judges what was changed, and only that: what stands there already must not keep the rest from change.
func (v *Validator) ValidateUpdate(ctx context.Context, old, changed *v1beta1.HostPathProvisioner) (admission.Warnings, error) {
	if !changed.DeletionTimestamp.IsZero() || equality.Semantic.DeepEqual(old.Spec, changed.Spec) {
		return nil, nil
	}
	problems := errorsOf(pools.NewProblems(old.Spec, changed.Spec))
	problems = append(problems, v.abandoned(ctx, old.Spec, changed)...)
	texts := append(warnings(changed.Spec), moved(old.Spec, changed.Spec)...)
	if gates.Forced(changed.Annotations) {
		texts = append(texts, fmt.Sprintf("the annotation %s is set: no change is refused for the sake of volumes until you take it off", names.ForceDelete))
	}
	return texts, errors.Join(problems...)
}

// ValidateDelete refuses to delete the resource while there are volumes.
func (v *Validator) ValidateDelete(ctx context.Context, deleted *v1beta1.HostPathProvisioner) (admission.Warnings, error) {
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
	return nil, fmt.Errorf("the HostPathProvisioner %q still has %s: %s; delete their claims first, or set the annotation %s to \"true\" on it "+
		"to delete it and leave the data on the nodes", deleted.Name, gates.Count(volumes), gates.Describe(volumes), names.ForceDelete)
}

// spare tells whether the resource is one too many: kubevirt's operator allowed any name, and the one of the right name
// serves the volumes.
func (v *Validator) spare(ctx context.Context, deleted *v1beta1.HostPathProvisioner) (bool, error) {
	if deleted.Name == names.CustomResource {
		return false, nil
	}
	err := v.reader.Get(ctx, client.ObjectKey{Name: names.CustomResource}, &v1beta1.HostPathProvisioner{})
	if err != nil && !apierrors.IsNotFound(err) {
		return false, fmt.Errorf("nobody can say whether the HostPathProvisioner %s is there: %w; try again", names.CustomResource, err)
	}
	return err == nil, nil
}

func (v *Validator) volumes(ctx context.Context) ([]gates.Volume, error) {
	var list corev1.PersistentVolumeList
	if err := v.reader.List(ctx, &list); err != nil {
		return nil, fmt.Errorf("the PersistentVolumes cannot be listed, so volumes might be left behind: %w; try again", err)
	}
	return gates.Volumes(list.Items, v.driver), nil
}

func errorsOf(problems []pools.Problem) []error {
	found := make([]error, len(problems))
	for i, problem := range problems {
		found[i] = errors.New(problem.String())
	}
	return found
}
