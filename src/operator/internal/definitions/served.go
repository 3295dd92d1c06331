package definitions

import (
	"context"
	"fmt"
	"slices"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/v1beta1"
)

const (
	establishInterval = 200 * time.Millisecond
	establishTimeout  = time.Minute
)

// established waits until the definition is served, with the version that this operator reads.
func (k *Keeper) established(ctx context.Context) error {
	why := "it has no condition yet"
	err := wait.PollUntilContextTimeout(ctx, establishInterval, establishTimeout, true,
		func(ctx context.Context) (done bool, err error) {
			live, err := k.readLive(ctx)
			if err != nil {
				return false, err
			}
			done, why = served(live)
			return done, nil
		})
	if err != nil {
		return fmt.Errorf("wait until CustomResourceDefinition %s is served (%s): %w", Name, why, err)
	}
	return nil
}

// served reports whether a definition is served as this operator wants it, and if not why.
func served(live *apiextensionsv1.CustomResourceDefinition) (is bool, why string) {
	ours := v1beta1.GroupVersion().Version
	if !slices.ContainsFunc(live.Spec.Versions, func(v apiextensionsv1.CustomResourceDefinitionVersion) bool {
		return v.Name == ours && v.Served
	}) {
		return false, "it has no version " + ours + ": upgrade kubevirt's operator first, to a version that has it"
	}
	why = "it has no condition yet"
	for _, condition := range live.Status.Conditions {
		if condition.Status != apiextensionsv1.ConditionTrue {
			why = condition.Message
		} else if condition.Type == apiextensionsv1.Established {
			return true, ""
		}
	}
	return false, why
}

// migrate makes the definition forget the versions that ours does not have: while there may be objects stored in one,
// the API server takes no definition without it.
func (k *Keeper) migrate(ctx context.Context, seen *apiextensionsv1.CustomResourceDefinition) error {
	ours := v1beta1.GroupVersion()
	stored := seen.Status.StoredVersions
	if !slices.ContainsFunc(stored, func(version string) bool { return version != ours.Version }) {
		return nil
	}
	if !slices.ContainsFunc(seen.Spec.Versions, func(v apiextensionsv1.CustomResourceDefinitionVersion) bool {
		return v.Name == ours.Version && v.Storage
	}) {
		return fmt.Errorf("objects are stored in %v and not in %s: upgrade kubevirt's operator first, to a version "+
			"that stores them in %s", stored, ours.Version, ours.Version)
	}
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(ours.WithKind("HostPathProvisionerList"))
	if err := k.direct.List(ctx, list); err != nil {
		return fmt.Errorf("list what is stored in %v: %w", stored, err)
	}
	for i := range list.Items {
		// An update that changes nothing is stored all the same when the stored version is another.
		if err := k.direct.Update(ctx, &list.Items[i]); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("store HostPathProvisioner %s in %s: %w", list.Items[i].GetName(), ours.Version, err)
		}
	}
	before := seen.DeepCopy()
	seen.Status.StoredVersions = []string{ours.Version}
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	if err := k.direct.Status().Patch(ctx, seen, patch); err != nil {
		return fmt.Errorf("forget the stored versions %v: %w", stored, err)
	}
	return nil
}
