package webhook

import (
	"context"
	"fmt"
	"path"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/names"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/v1beta1"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/operator/internal/gates"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/operator/internal/pools"
)

// loss is a change that takes from volumes what serves them.
type loss struct {
	at *field.Path
	// what is lost, as the beginning of a sentence that goes on with how many volumes.
	what string
	// keep is what to do to keep the volumes.
	keep string
	// of are the volumes that would lose.
	of func([]gates.Volume) []gates.Volume
}

// abandoned refuses a change after which volumes would have nobody to serve them, and warns of one that leaves behind
// what nobody can reach, or that takes the driver off nodes. The cluster is asked only if the change could do that.
func (v *Validator) abandoned(
	ctx context.Context, old v1beta1.HostPathProvisionerSpec, changed *v1beta1.HostPathProvisioner,
) (admission.Warnings, field.ErrorList, error) {
	var losses []loss
	if !gates.Forced(changed.Annotations) {
		losses = append(poolLosses(old, changed.Spec), legacyLosses(old, changed.Spec)...)
	}
	narrowings := narrowed(old, changed.Spec)
	if len(losses)+len(narrowings) == 0 {
		return nil, nil, nil
	}
	all, err := v.readCluster(ctx)
	if err != nil {
		return nil, nil, err
	}
	var texts admission.Warnings
	var problems field.ErrorList
	for _, lost := range losses {
		left := lost.of(all.volumes)
		gate := all.volumesGate(left)
		switch {
		case !gate.Open:
			problems = append(problems, field.Forbidden(lost.at, lost.refused(left, gate)))
		case gate.Left != "":
			texts = append(texts,
				fmt.Sprintf("%s: %s still has %s; their data stays there", lost.at, lost.what, givenUp(left)))
		}
	}
	for _, one := range narrowings {
		if nodes := one.leaves(all); nodes != "" {
			texts = append(texts, fmt.Sprintf("%s: %s %s: %s", one.at, one.does, nodes, one.then))
		}
	}
	return texts, problems, nil
}

// refused is why these volumes stand in the way, and what to do.
func (l loss) refused(left []gates.Volume, gate gates.Gate) string {
	has, do := gates.Count(left)+": "+gates.Describe(left), "delete their claims first"
	if gate.Reason == gates.ReasonWaitingForNodes {
		has, do = waiting(left), adviseWaiting(gate)
	}
	return fmt.Sprintf("%s still has %s; %s, %s, or set the annotation %s to \"true\" to leave their data on the nodes",
		l.what, has, l.keep, do, names.ForceDelete)
}

// poolLosses are the pools that went, and those that are elsewhere now.
func poolLosses(old, changed v1beta1.HostPathProvisionerSpec) []loss {
	after, configured := pools.FromSpec(changed), pools.Names(old)
	var losses []loss
	for before, pool := range pools.FromSpec(old) {
		of := func(volumes []gates.Volume) []gates.Volume { return gates.InPool(volumes, pool.Name, configured) }
		what := fmt.Sprintf("the pool %q", pool.Name)
		i := slices.IndexFunc(after, func(other v1beta1.StoragePool) bool { return other.Name == pool.Name })
		if i < 0 {
			at := field.NewPath("spec", "storagePools")
			if before == len(old.StoragePools) {
				at = pools.FieldOf(old, before)
			}
			losses = append(losses, loss{at: at, what: what + ", which is removed,", keep: "keep it", of: of})
			continue
		}
		add := func(lost bool, name, how, keep string) {
			if lost {
				losses = append(losses,
					loss{at: pools.FieldOf(changed, i).Child(name), what: what + how, keep: keep, of: of})
			}
		}
		add(path.Clean(after[i].Path) != path.Clean(pool.Path), "path",
			fmt.Sprintf(" at %q", pool.Path), fmt.Sprintf("keep the path %q", pool.Path))
		template, would := pool.PVCTemplate != nil, after[i].PVCTemplate != nil
		scope := pools.Scope(pool)
		add(!template && !would && pools.Scope(after[i]) != scope, "scope", " of scope "+scope, "keep the scope "+scope)
		add(!template && would, "pvcTemplate", ", whose filesystem would come from claims,", "leave pvcTemplate out")
		add(template && !would, "pvcTemplate", ", whose filesystem comes from claims,", "keep pvcTemplate")
		if was := pools.SharesClaim(pool); template && would && was != pools.SharesClaim(after[i]) {
			how := map[bool]string{
				true: ", which has one claim for all nodes,", false: ", which has a claim on each node,",
			}
			add(true, "pvcTemplate", how[was], "keep its accessModes")
		}
	}
	return losses
}

// legacyLosses is the legacy provisioner, if it goes or works elsewhere now.
func legacyLosses(old, changed v1beta1.HostPathProvisionerSpec) []loss {
	at := field.NewPath("spec", "pathConfig")
	switch {
	case old.PathConfig == nil:
		return nil
	case changed.PathConfig == nil:
		what := "the legacy provisioner, which is removed,"
		return []loss{{at: at, what: what, keep: "keep pathConfig", of: gates.OfLegacy}}
	case path.Clean(changed.PathConfig.Path) != path.Clean(old.PathConfig.Path):
		what := fmt.Sprintf("the legacy provisioner at %q", old.PathConfig.Path)
		keep := fmt.Sprintf("keep the path %q", old.PathConfig.Path)
		return []loss{{at: at.Child("path"), what: what, keep: keep, of: gates.OfLegacy}}
	}
	return nil
}
