package webhook

import (
	"context"
	"fmt"
	"path"
	"slices"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/names"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/v1beta1"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/poolspec"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/operator/internal/gates"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/operator/internal/pools"
)

// loss is a change that takes from volumes what serves them.
type loss struct {
	field string
	// what is lost, as the beginning of a sentence that goes on with the number of volumes.
	what string
	// keep is what to do to keep the volumes.
	keep string
	// of are the volumes that would lose.
	of func([]gates.Volume) []gates.Volume
}

// abandoned refuses a change after which volumes would have nobody to serve them. PersistentVolumes are listed only if
// the change could do that.
func (v *Validator) abandoned(ctx context.Context, old v1beta1.HostPathProvisionerSpec, changed *v1beta1.HostPathProvisioner) []error {
	losses := append(poolLosses(old, changed.Spec), legacyLosses(old, changed.Spec)...)
	if len(losses) == 0 || gates.Forced(changed.Annotations) {
		return nil
	}
	volumes, err := v.volumes(ctx)
	if err != nil {
		return []error{err}
	}
	var problems []error
	for _, lost := range losses {
		if held := lost.of(volumes); len(held) > 0 {
			problems = append(problems, fmt.Errorf("%s: %s still has %s: %s; %s, delete their claims first, or set the annotation %s to \"true\" "+
				"to leave their data on the nodes", lost.field, lost.what, gates.Count(held), gates.Describe(held), lost.keep, names.ForceDelete))
		}
	}
	return problems
}

// poolLosses are the pools that went, and those that are elsewhere now.
func poolLosses(old, changed v1beta1.HostPathProvisionerSpec) []loss {
	before, _ := pools.FromSpec(old)    // What cannot be read has another check.
	after, _ := pools.FromSpec(changed) // Neither name, path nor scope can be unreadable.
	configured := pools.Names(old)
	var losses []loss
	for _, pool := range before.StoragePools {
		of := func(volumes []gates.Volume) []gates.Volume { return gates.InPool(volumes, pool.Name, configured) }
		what := fmt.Sprintf("the pool %q", pool.Name)
		i := slices.IndexFunc(after.StoragePools, func(other poolspec.Pool) bool { return other.Name == pool.Name })
		if i < 0 {
			losses = append(losses, loss{field: listOf(old), what: what + ", which is removed,", keep: "keep it", of: of})
			continue
		}
		now := after.StoragePools[i]
		if path.Clean(now.Path) != path.Clean(pool.Path) {
			losses = append(losses, loss{
				field: fieldOf(changed, i, "path"), what: fmt.Sprintf("%s at %q", what, pool.Path), keep: fmt.Sprintf("keep the path %q", pool.Path), of: of,
			})
		}
		if now.Scope != pool.Scope {
			losses = append(losses, loss{
				field: fieldOf(changed, i, "scope"), what: fmt.Sprintf("%s of scope %s", what, pool.Scope), keep: fmt.Sprintf("keep the scope %s", pool.Scope), of: of,
			})
		}
		if pool.PVCTemplate == nil && now.PVCTemplate != nil {
			// This version would no longer serve it.
			losses = append(losses, loss{
				field: fieldOf(changed, i, "pvcTemplate"), what: what + ", whose filesystem would come from claims,", keep: "leave pvcTemplate out", of: of,
			})
		}
	}
	return losses
}

// legacyLosses is the legacy provisioner, if it goes or works elsewhere now.
func legacyLosses(old, changed v1beta1.HostPathProvisionerSpec) []loss {
	if old.PathConfig == nil || changed.PathConfig != nil && path.Clean(changed.PathConfig.Path) == path.Clean(old.PathConfig.Path) {
		return nil
	}
	lost := loss{field: "spec.pathConfig", what: "the legacy provisioner, which is removed,", keep: "keep pathConfig", of: gates.OfLegacy}
	if changed.PathConfig != nil {
		lost.field, lost.what = "spec.pathConfig.path", fmt.Sprintf("the legacy provisioner at %q", old.PathConfig.Path)
		lost.keep = fmt.Sprintf("keep the path %q", old.PathConfig.Path)
	}
	return []loss{lost}
}

// listOf is the field that pools were written in.
func listOf(spec v1beta1.HostPathProvisionerSpec) string {
	if len(spec.StoragePools) == 0 {
		return "spec.pathConfig"
	}
	return "spec.storagePools"
}

func fieldOf(spec v1beta1.HostPathProvisionerSpec, pool int, field string) string {
	if len(spec.StoragePools) == 0 {
		return "spec.pathConfig." + field
	}
	return fmt.Sprintf("spec.storagePools[%d].%s", pool, field)
}
