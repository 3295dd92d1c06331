// Package webhook validates HostPathProvisioners before they are stored: what could never run is refused, and so is
// what would leave volumes behind.
package webhook

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation/field"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/names"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/v1beta1"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/operator/internal/chosen"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/operator/internal/gates"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/operator/internal/pools"
)

// Setup serves the webhook on the manager's webhook server, at the path that controller-runtime makes of the kind.
func Setup(mgr ctrl.Manager, driver, namespace string) error {
	return ctrl.NewWebhookManagedBy(mgr, &v1beta1.HostPathProvisioner{}).
		WithValidator(New(mgr.GetAPIReader(), driver, namespace)).
		Complete()
}

// Validator has the webhook's rules.
type Validator struct {
	reader            client.Reader
	driver, namespace string
}

var _ admission.Validator[*v1beta1.HostPathProvisioner] = (*Validator)(nil)

// New makes a Validator for the volumes of a CSI driver, and an operator in a namespace. The reader has to ask the API
// server: a cache may not know a volume that was just made, nor that a node has gone.
func New(reader client.Reader, driver, namespace string) *Validator {
	return &Validator{reader: reader, driver: driver, namespace: namespace}
}

// ValidateCreate refuses a second resource, and whatever the rules forbid.
func (v *Validator) ValidateCreate(
	ctx context.Context, created *v1beta1.HostPathProvisioner,
) (admission.Warnings, error) {
	if !created.DeletionTimestamp.IsZero() {
		return nil, nil
	}
	var problems field.ErrorList
	at := field.NewPath("metadata", "name")
	others, err := v.resources(ctx)
	for _, other := range others {
		if other.Name != created.Name {
			problems = append(problems, field.Forbidden(at, fmt.Sprintf("there is a HostPathProvisioner already, %q, "+
				"and a cluster has only one: change that one, or delete it first", other.Name)))
		}
	}
	texts := warnings(ctx, created.Spec)
	if created.Name != names.CustomResource && len(problems) == 0 {
		texts = append(texts, fmt.Sprintf("%s: %q is served because it is the only HostPathProvisioner; one named %s "+
			"would be served instead of it", at, created.Name, names.CustomResource))
	}
	return texts, refusal(append(problems, pools.Validate(created.Spec)...), err)
}

// ValidateUpdate checks what was changed, and only that: what stands there already must not keep the rest from change.
func (v *Validator) ValidateUpdate(
	ctx context.Context, old, changed *v1beta1.HostPathProvisioner,
) (admission.Warnings, error) {
	if !changed.DeletionTimestamp.IsZero() || equality.Semantic.DeepEqual(old.Spec, changed.Spec) {
		return nil, nil
	}
	texts := append(warnings(ctx, changed.Spec), warnMoved(old.Spec, changed.Spec)...)
	texts = append(texts, reshaped(old.Spec, changed.Spec)...)
	if gates.Forced(changed.Annotations) {
		texts = append(texts, fmt.Sprintf(
			"the annotation %s is set: no change is refused for the sake of volumes until you take it off",
			names.ForceDelete))
	}
	given, abandoned, err := v.abandoned(ctx, old.Spec, changed)
	return append(texts, given...), refusal(append(pools.ValidateChange(old.Spec, changed.Spec), abandoned...), err)
}

// ValidateDelete refuses to delete the resource while there are volumes that the deletion's gate would wait for.
func (v *Validator) ValidateDelete(
	ctx context.Context, deleted *v1beta1.HostPathProvisioner,
) (admission.Warnings, error) {
	if !deleted.DeletionTimestamp.IsZero() || gates.Forced(deleted.Annotations) {
		return nil, nil
	}
	if spare, err := v.isSpare(ctx, deleted); spare || err != nil {
		return nil, err
	}
	all, err := v.readCluster(ctx)
	if err != nil {
		return nil, err
	}
	volumes := gates.OfUsers(all.volumes)
	gate := all.volumesGate(volumes)
	still := fmt.Sprintf("the HostPathProvisioner %q still has ", deleted.Name)
	override := fmt.Sprintf("set the annotation %s to \"true\" on it to delete it and leave the data on the nodes",
		names.ForceDelete)
	switch {
	case gate.Reason == gates.ReasonWaitingForNodes:
		return nil, fmt.Errorf("%s%s; %s, or %s", still, waiting(volumes), adviseWaiting(gate), override)
	case !gate.Open:
		return nil, fmt.Errorf("%s%s: %s; delete their claims first, or %s", still, gates.Count(volumes),
			gates.Describe(volumes), override)
	case gate.Left != "":
		return admission.Warnings{fmt.Sprintf("%s%s; it goes without them, unless a node comes back within %s", still,
			givenUp(volumes), gates.DeadNodeTimeout)}, nil
	}
	return nil, nil
}

// isSpare reports whether the resource is one too many: it is not served, and can go at any time.
func (v *Validator) isSpare(ctx context.Context, deleted *v1beta1.HostPathProvisioner) (bool, error) {
	if deleted.Name == names.CustomResource {
		return false, nil
	}
	all, err := v.resources(ctx)
	return len(all) > 0 && chosen.Name(all) != deleted.Name, err
}

func (v *Validator) resources(ctx context.Context) ([]v1beta1.HostPathProvisioner, error) {
	var all v1beta1.HostPathProvisionerList
	if err := v.reader.List(ctx, &all); err != nil {
		return nil, fmt.Errorf("the HostPathProvisioners cannot be listed, so it is not known which one is served: "+
			"%w; try again", err)
	}
	return all.Items, nil
}

// refusal is one error with a line for each problem, nil if there is none.
func refusal(problems field.ErrorList, err error) error {
	lines := []error{err}
	for _, problem := range problems {
		lines = append(lines, problem)
	}
	return errors.Join(lines...)
}
