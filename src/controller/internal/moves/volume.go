package moves

import (
	"maps"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/persistentvolume"
)

// specOn is the spec of the PersistentVolume that comes in the place of another one, on a node.
func specOn(old *corev1.PersistentVolume, topologyKey, node string) corev1.PersistentVolumeSpec {
	spec := *old.Spec.DeepCopy()
	spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimRetain
	if c := spec.ClaimRef; c != nil {
		spec.ClaimRef = persistentvolume.BoundTo(c.Namespace, c.Name, c.UID)
	}
	spec.NodeAffinity = persistentvolume.OnNode(topologyKey, node)
	return spec
}

// volumeOn is the PersistentVolume of a move on one of its nodes.
func (e entry) volumeOn(topologyKey, node string) *corev1.PersistentVolume {
	spec := *e.Spec.DeepCopy()
	spec.NodeAffinity = persistentvolume.OnNode(topologyKey, node)
	annotations := maps.Clone(e.Annotations)
	delete(annotations, boundByController)
	return &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: e.PV, Labels: e.Labels, Annotations: annotations}, Spec: spec,
	}
}

// boundByController is Kubernetes' annotation on what it has bound itself: it would take the claim out of the
// PersistentVolume once that is gone.
const boundByController = "pv.kubernetes.io/bound-by-controller"

// claimOf is the claim that a PersistentVolume is bound to.
func claimOf(pv *corev1.PersistentVolume) nodeapi.Claim {
	c := pv.Spec.ClaimRef
	if c == nil {
		return nodeapi.Claim{}
	}
	return nodeapi.Claim{Namespace: c.Namespace, Name: c.Name, UID: string(c.UID)}
}

// bondOf is how the claim of a move is; nil is one that is gone.
func (e entry) bondOf(claim *corev1.PersistentVolumeClaim) bond {
	switch {
	case claim == nil, claim.UID != types.UID(e.Claim.UID), claim.Spec.VolumeName != e.PV,
		claim.DeletionTimestamp != nil && claim.Status.Phase == corev1.ClaimLost:
		return unclaimed
	case claim.Status.Phase == corev1.ClaimBound:
		return bound
	}
	return lost
}
