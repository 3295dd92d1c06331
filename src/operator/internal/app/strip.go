package app

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/names"
)

// A large cluster has thousands of nodes and volumes; what nobody reads of them is not kept.

// identity is an object's metadata with some annotations and no labels.
func identity(from metav1.ObjectMeta, annotations []string) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Name: from.Name, Namespace: from.Namespace, UID: from.UID, ResourceVersion: from.ResourceVersion,
		CreationTimestamp: from.CreationTimestamp, DeletionTimestamp: from.DeletionTimestamp,
		Annotations: pickKeys(from.Annotations, annotations),
	}
}

func pickKeys(from map[string]string, keys []string) map[string]string {
	var picked map[string]string
	for _, key := range keys {
		if value, found := from[key]; found {
			if picked == nil {
				picked = map[string]string{}
			}
			picked[key] = value
		}
	}
	return picked
}

func stripNode(object any) (any, error) {
	node, ok := object.(*corev1.Node)
	if !ok {
		return object, nil
	}
	slim := &corev1.Node{ObjectMeta: identity(node.ObjectMeta, nil)}
	slim.Labels = node.Labels
	slim.Spec.Taints, slim.Spec.Unschedulable = node.Spec.Taints, node.Spec.Unschedulable
	for _, condition := range node.Status.Conditions {
		if condition.Type == corev1.NodeReady {
			slim.Status.Conditions = []corev1.NodeCondition{{
				Type: condition.Type, Status: condition.Status, LastTransitionTime: condition.LastTransitionTime,
			}}
		}
	}
	return slim, nil
}

// stripVolume keeps what the gates ask for, and of other drivers' volumes nothing but that they are there.
func (op *operator) stripVolume(object any) (any, error) {
	pv, ok := object.(*corev1.PersistentVolume)
	if !ok {
		return object, nil
	}
	slim := &corev1.PersistentVolume{
		ObjectMeta: identity(pv.ObjectMeta, []string{names.ProvisionedBy, names.LegacyIdentity}),
	}
	csi := pv.Spec.CSI
	if pv.Spec.HostPath == nil && (csi == nil || csi.Driver != op.driverName) {
		return slim, nil
	}
	slim.Spec.ClaimRef = pv.Spec.ClaimRef
	slim.Spec.PersistentVolumeReclaimPolicy = pv.Spec.PersistentVolumeReclaimPolicy
	slim.Spec.NodeAffinity = pv.Spec.NodeAffinity
	slim.Spec.HostPath = pv.Spec.HostPath
	slim.Status.Phase = pv.Status.Phase
	if csi != nil {
		slim.Spec.CSI = &corev1.CSIPersistentVolumeSource{
			Driver: csi.Driver, VolumeHandle: csi.VolumeHandle,
			VolumeAttributes: pickKeys(csi.VolumeAttributes, []string{names.StoragePoolParameter}),
		}
	}
	return slim, nil
}

// stripClaim keeps what the status and the mounter say of a claim that provides a pool with its filesystem.
func stripClaim(object any) (any, error) {
	claim, ok := object.(*corev1.PersistentVolumeClaim)
	if !ok {
		return object, nil
	}
	slim := &corev1.PersistentVolumeClaim{ObjectMeta: identity(claim.ObjectMeta, nil)}
	slim.Labels = claim.Labels
	slim.Spec.StorageClassName, slim.Spec.VolumeName = claim.Spec.StorageClassName, claim.Spec.VolumeName
	slim.Spec.VolumeMode, slim.Spec.AccessModes = claim.Spec.VolumeMode, claim.Spec.AccessModes
	slim.Status = corev1.PersistentVolumeClaimStatus{
		Phase: claim.Status.Phase, AccessModes: claim.Status.AccessModes, Capacity: claim.Status.Capacity,
		Conditions: claim.Status.Conditions,
	}
	return slim, nil
}

func stripPod(object any) (any, error) {
	pod, ok := object.(*corev1.Pod)
	if !ok {
		return object, nil
	}
	pod.ManagedFields = nil
	pod.Spec = corev1.PodSpec{NodeName: pod.Spec.NodeName}
	return pod, nil
}

func stripMetadata(object any) (any, error) {
	definition, ok := object.(*metav1.PartialObjectMetadata)
	if ok {
		definition.ObjectMeta = identity(definition.ObjectMeta, []string{names.AppliedBy})
	}
	return object, nil
}
