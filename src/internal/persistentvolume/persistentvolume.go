// Package persistentvolume reads what PersistentVolumes say of this driver's volumes, for the nodes and the controller
// alike.
package persistentvolume

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/names"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
)

// IsOf reports whether a PersistentVolume is one of a CSI driver.
func IsOf(pv *corev1.PersistentVolume, driver string) bool {
	return pv.Spec.CSI != nil && pv.Spec.CSI.Driver == driver
}

// Describe gives what one of a driver says, but not whether it is on a certain node.
func Describe(pv *corev1.PersistentVolume, driver, topologyKey string) nodeapi.PersistentVolume {
	capacity, attributes := pv.Spec.Capacity[corev1.ResourceStorage], pv.Spec.CSI.VolumeAttributes
	described := nodeapi.PersistentVolume{
		Name: pv.Name, UID: string(pv.UID), Handle: pv.Spec.CSI.VolumeHandle,
		Pool:  attributes[names.StoragePoolParameter],
		Bytes: capacity.Value(), Released: pv.Annotations[names.ReleaseVolume(driver)],
	}
	if claim := pv.Spec.ClaimRef; claim != nil {
		described.Claim = nodeapi.Claim{Namespace: claim.Namespace, Name: claim.Name, UID: string(claim.UID)}
	}
	described.Nodes, _ = Nodes(pv, topologyKey)
	if onDelete := attributes[nodeapi.KeyOnDelete]; nodeapi.IsOnDelete(onDelete) {
		described.OnDelete = onDelete
	}
	return described
}

// Nodes are those that a volume's affinity names: by the driver's topology key or by name, and by other labels, whose
// values need not be names of nodes. Both are sorted.
func Nodes(pv *corev1.PersistentVolume, topologyKey string) (named, labelled []string) {
	for _, term := range terms(pv) {
		for _, r := range slices.Concat(term.MatchExpressions, term.MatchFields) {
			switch {
			case r.Operator != corev1.NodeSelectorOpIn:
			case r.Key == topologyKey, r.Key == metav1.ObjectNameField:
				named = append(named, r.Values...)
			default:
				labelled = append(labelled, r.Values...)
			}
		}
	}
	slices.Sort(named)
	slices.Sort(labelled)
	return slices.Compact(named), slices.Compact(labelled)
}

// IsByLabels reports whether a volume's affinity asks for another label than the driver's topology key.
func IsByLabels(pv *corev1.PersistentVolume, topologyKey string) bool {
	return slices.ContainsFunc(terms(pv), func(t corev1.NodeSelectorTerm) bool {
		return slices.ContainsFunc(t.MatchExpressions, func(r corev1.NodeSelectorRequirement) bool {
			return r.Key != topologyKey
		})
	})
}

// IsOn reports whether a volume's affinity names a node, by its labels or its name. What Kubernetes cannot read of it
// names none.
func IsOn(pv *corev1.PersistentVolume, node string, labels map[string]string) bool {
	selector := nodeaffinity.NewLazyErrorNodeSelector(&corev1.NodeSelector{NodeSelectorTerms: terms(pv)})
	matches, _ := selector.Match(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node, Labels: labels}})
	return matches
}

func terms(pv *corev1.PersistentVolume) []corev1.NodeSelectorTerm {
	if pv.Spec.NodeAffinity == nil || pv.Spec.NodeAffinity.Required == nil {
		return nil
	}
	return pv.Spec.NodeAffinity.Required.NodeSelectorTerms
}
