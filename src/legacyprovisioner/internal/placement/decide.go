// Package placement decides which node makes the volume of a claim. Each node has an instance of the provisioner and
// nobody leads them: every instance comes to the same answer from the claim and its class alone.
package placement

import (
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/names"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/legacyprovisioner/internal/hostpathpv"
)

// SelectedNode is the annotation in which the scheduler says where it wants the volume of a claim
// whose class waits for a consumer.
const SelectedNode = "volume.kubernetes.io/selected-node"

// Action is what the instance on a node has to do about a claim.
type Action int

// What there is to do.
const (
	// Ignore: nothing, or nothing yet.
	Ignore Action = iota
	// Provision the volume here.
	Provision
	// Select this node: the annotation names it, and the class would wait for a consumer. Kubernetes asks for the
	// volume only once a node is selected, and the scheduler keeps to the selection.
	Select
	// Override the scheduler: it selected another node than the annotation, which names this one.
	// Provision here and say so.
	Override
	// Verify that the node in the annotation, another one, exists.
	Verify
	// Explain that nobody will ever provision this claim: its class binds immediately and no annotation names a node.
	Explain
)

// Decide gives the action of the instance on a node. Of all nodes' instances at most one is told to
// Provision, Select or Override, whatever the scheduler writes later: where there is an annotation, only that
// node; else only the selected one.
func Decide(claim *corev1.PersistentVolumeClaim, class *storagev1.StorageClass, node string) Action {
	bound := claim.Spec.VolumeName != ""
	if bound || claim.DeletionTimestamp != nil || hostpathpv.Populated(claim) ||
		class.Provisioner != names.LegacyProvisioner {
		return Ignore
	}
	wanted, selected := claim.Annotations[names.ProvisionOnNode], claim.Annotations[SelectedNode]
	waits := waitsForConsumer(class)
	switch {
	case wanted == "":
		return follow(waits, selected == node)
	case wanted != node:
		return Verify
	case waits && selected == "":
		return Select
	case waits && selected != node:
		return Override
	default:
		return Provision
	}
}

func waitsForConsumer(class *storagev1.StorageClass) bool {
	return class.VolumeBindingMode != nil && *class.VolumeBindingMode == storagev1.VolumeBindingWaitForFirstConsumer
}

// follow is Decide for a claim without the annotation.
func follow(waits, here bool) Action {
	switch {
	case !waits:
		return Explain
	case here:
		return Provision
	default:
		return Ignore
	}
}

// Here reports whether an action is to make the volume on this node.
func (a Action) Here() bool { return a == Provision || a == Override }
