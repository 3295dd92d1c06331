// Package webhook validates HostPathProvisioners before they are stored: what could never run is refused, and so is
// what would leave volumes behind.
package webhook

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/singleflight"
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
		WithValidator(New(mgr.GetAPIReader(), mgr.GetClient(), driver, namespace)).
		Complete()
}

// listTimeout is how long the resources may take to be listed for reviews, whoever sent the first of them.
const listTimeout = 5 * time.Second

// Validator has the webhook's rules.
type Validator struct {
	reader, cache     client.Reader
	driver, namespace string
	lists             singleflight.Group // of the resources
}

var _ admission.Validator[*v1beta1.HostPathProvisioner] = (*Validator)(nil)

// New makes a Validator for the volumes of a CSI driver, and an operator in a namespace. The reader has to ask the API
// server: a cache may not know a volume that was just made, nor that a node has gone. The cache knows the resources.
func New(reader, cache client.Reader, driver, namespace string) *Validator {
	return &Validator{reader: reader, cache: cache, driver: driver, namespace: namespace}
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
	if err := v.checkStored(ctx, old); err != nil {
		return nil, err
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
	if err := v.checkStored(ctx, deleted); err != nil {
		return nil, err
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

// checkStored refuses a review about a resource that the cluster does not have. Every pod can send reviews to the
// webhook's port, and an answer about volumes names claims and lists them all. Only who may read the resource, or what
// the operator makes for it, has its UID.
func (v *Validator) checkStored(ctx context.Context, reviewed *v1beta1.HostPathProvisioner) error {
	var cached v1beta1.HostPathProvisioner
	err := v.cache.Get(ctx, client.ObjectKeyFromObject(reviewed), &cached)
	if err == nil && cached.UID == reviewed.UID {
		return nil
	}
	all, err := v.resources(ctx)
	if err != nil {
		return err
	}
	is := func(stored v1beta1.HostPathProvisioner) bool { return stored.UID == reviewed.UID }
	if !slices.ContainsFunc(all, is) {
		return fmt.Errorf("there is no HostPathProvisioner %q with the UID %q: try again", reviewed.Name, reviewed.UID)
	}
	return nil
}

// resources lists the resources, once for all who ask at the same time: the operator's own requests are not to wait for
// those of other pods.
func (v *Validator) resources(ctx context.Context) ([]v1beta1.HostPathProvisioner, error) {
	all, err, _ := v.lists.Do("", func() (any, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), listTimeout)
		defer cancel()
		var all v1beta1.HostPathProvisionerList
		err := v.reader.List(ctx, &all)
		return all.Items, err
	})
	if err != nil {
		return nil, fmt.Errorf("the HostPathProvisioners cannot be listed, so it is not known which one is served: "+
			"%w; try again", err)
	}
	items, _ := all.([]v1beta1.HostPathProvisioner)
	return items, nil
}

// refusal is one error with a line for each problem, nil if there is none.
func refusal(problems field.ErrorList, err error) error {
	lines := []error{err}
	for _, problem := range problems {
		lines = append(lines, problem)
	}
	return errors.Join(lines...)
}
