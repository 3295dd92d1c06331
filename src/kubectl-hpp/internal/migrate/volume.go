package migrate

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/names"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/persistentvolume"
)

// newVolume is the PersistentVolume that takes the place of the old one, under its name.
func (m *Migration) newVolume(j *journal) *corev1.PersistentVolume {
	filesystem := corev1.PersistentVolumeFilesystem
	return &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{
			Name: j.PV.Name, Annotations: map[string]string{names.ProvisionedBy: m.Driver},
		},
		Spec: corev1.PersistentVolumeSpec{
			AccessModes: j.PV.Spec.AccessModes, StorageClassName: j.PV.Spec.StorageClassName, VolumeMode: &filesystem,
			Capacity: corev1.ResourceList{
				corev1.ResourceStorage: *resource.NewQuantity(j.Bytes, resource.BinarySI),
			},
			PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain,
			ClaimRef:                      j.claimRef(),
			PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{
				Driver: m.Driver, VolumeHandle: j.PV.Name,
				VolumeAttributes: map[string]string{names.StoragePoolParameter: j.Pool},
			}},
			NodeAffinity: persistentvolume.OnNode(m.TopologyKey, j.Node),
		},
	}
}

func (j *journal) claimRef() *corev1.ObjectReference {
	return persistentvolume.BoundTo(j.Claim.Namespace, j.Claim.Name, j.ClaimUID)
}

func (m *Migration) create(ctx context.Context, pv *corev1.PersistentVolume) error {
	if _, err := m.API.CoreV1().PersistentVolumes().Create(ctx, pv, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("create PersistentVolume %s: %w", pv.Name, err)
	}
	return nil
}
