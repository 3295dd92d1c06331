// Package gates decides what blocks the deletion of a HostPathProvisioner, or of one of its pools: which volumes, which
// pods, and until when. It is pure: objects and a time in, gates with a reason and a message out.
package gates

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/names"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/poolspec"
)

// shown is how many volumes or pods a message names.
const shown = 10

// Volume is a PersistentVolume whose data only this provisioner can serve or remove.
type Volume struct {
	// PV is the PersistentVolume's name.
	PV string
	// Claim is <namespace>/<name> of its claim, "" if it has none.
	Claim string
	// Pool is its attribute storagePool, "" if it has none. See InPool.
	Pool string
	// Legacy says that the legacy provisioner made it: it belongs to pathConfig, not to a pool.
	Legacy bool
	// OfPool says that it is behind a claim that the operator made for a pool.
	OfPool bool
	// Nodes are the values that its node affinity requires. Empty: it is tied to no node.
	Nodes []string
}

// Volumes are those of the PersistentVolumes that block a deletion: of our CSI driver or of the legacy provisioner. One
// that is Released and has the reclaim policy Retain does not count: its owner said that the data stays, and nobody
// will ask us to remove it. The namespace is the operator's.
func Volumes(pvs []corev1.PersistentVolume, driver, namespace string) []Volume {
	var volumes []Volume
	for i := range pvs {
		pv := &pvs[i]
		if isRetained(pv) {
			continue
		}
		volume := Volume{PV: pv.Name, Claim: claimOf(pv), Nodes: nodesOf(pv), OfPool: ofPool(pv, namespace)}
		switch {
		case pv.Spec.CSI != nil && pv.Spec.CSI.Driver == driver:
			volume.Pool = pv.Spec.CSI.VolumeAttributes[names.StoragePoolParameter]
		case pv.Spec.HostPath != nil && legacy(pv):
			volume.Legacy = true
		default:
			continue
		}
		volumes = append(volumes, volume)
	}
	slices.SortFunc(volumes, func(a, b Volume) int {
		return cmp.Or(strings.Compare(a.Claim, b.Claim), strings.Compare(a.PV, b.PV))
	})
	return volumes
}

// InPool are the volumes that block the removal of one of the configured pools. A volume that names no pool, where that
// means none (poolspec.DefaultPool), may be in any, so it blocks each.
func InPool(volumes []Volume, pool string, configured []string) []Volume {
	if !slices.Contains(configured, pool) {
		configured = append(slices.Clone(configured), pool)
	}
	return matching(volumes, func(volume Volume) bool {
		meant := poolspec.DefaultPool(configured, volume.Pool)
		return !volume.Legacy && (meant == "" || meant == pool)
	})
}

// OfLegacy are the volumes that the legacy provisioner made.
func OfLegacy(volumes []Volume) []Volume {
	return matching(volumes, func(volume Volume) bool { return volume.Legacy })
}

// OfUsers are the volumes that keep the resource. Those behind the claims of its own pools do not: nobody but the
// operator made these, and nobody deletes them. The pool that such a volume is in has to stay all the same.
func OfUsers(volumes []Volume) []Volume {
	return matching(volumes, func(volume Volume) bool { return !volume.OfPool })
}

// Describe names up to ten volumes by claim and PersistentVolume, and counts the others.
func Describe(volumes []Volume) string {
	texts := make([]string, len(volumes))
	for i, volume := range volumes {
		texts[i] = volume.PV
		if volume.Claim != "" {
			texts[i] = fmt.Sprintf("%s (%s)", volume.Claim, volume.PV)
		}
	}
	return List(texts)
}

// Count is how many volumes there are, with the noun.
func Count(volumes []Volume) string {
	if len(volumes) == 1 {
		return "1 volume"
	}
	return fmt.Sprintf("%d volumes", len(volumes))
}

// List joins up to ten texts, and counts the others.
func List(texts []string) string {
	if len(texts) <= shown {
		return strings.Join(texts, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(texts[:shown], ", "), len(texts)-shown)
}

func matching(volumes []Volume, wanted func(Volume) bool) []Volume {
	return slices.DeleteFunc(slices.Clone(volumes), func(volume Volume) bool { return !wanted(volume) })
}

func isRetained(pv *corev1.PersistentVolume) bool {
	return pv.Status.Phase == corev1.VolumeReleased &&
		pv.Spec.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimRetain
}

// legacy reports whether a volume has the annotations of kubevirt's provisioner, which ours writes too. Others, such as
// minikube's, identify themselves by the same annotation.
func legacy(pv *corev1.PersistentVolume) bool {
	_, identified := pv.Annotations[names.LegacyIdentity]
	by, said := pv.Annotations[names.ProvisionedBy]
	return by == names.LegacyProvisioner || identified && !said
}

func claimOf(pv *corev1.PersistentVolume) string {
	if pv.Spec.ClaimRef == nil {
		return ""
	}
	return pv.Spec.ClaimRef.Namespace + "/" + pv.Spec.ClaimRef.Name
}

func ofPool(pv *corev1.PersistentVolume, namespace string) bool {
	claim := pv.Spec.ClaimRef
	return claim != nil && claim.Namespace == namespace && strings.HasPrefix(claim.Name, names.PoolClaimPrefix)
}

// nodesOf are the values of every requirement In: of the CSI driver's topology key as of the host name, both of which
// are the node's name, or a name that no node has, which then counts as a node that is gone.
func nodesOf(pv *corev1.PersistentVolume) []string {
	if pv.Spec.NodeAffinity == nil || pv.Spec.NodeAffinity.Required == nil {
		return nil
	}
	var found []string
	for _, term := range pv.Spec.NodeAffinity.Required.NodeSelectorTerms {
		for _, requirement := range term.MatchExpressions {
			if requirement.Operator == corev1.NodeSelectorOpIn {
				found = append(found, requirement.Values...)
			}
		}
	}
	slices.Sort(found)
	return slices.Compact(found)
}
