package migrate

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/names"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/persistentvolume"
)

// volume is the PersistentVolume that the claim names, nil where that is gone.
func (m *Migration) volume(ctx context.Context, j *journal) (*corev1.PersistentVolume, error) {
	pv, err := m.API.CoreV1().PersistentVolumes().Get(ctx, j.PV.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read PersistentVolume %s: %w", j.PV.Name, err)
	}
	if nodes, _ := persistentvolume.Nodes(pv, m.TopologyKey); m.ours(pv) && !slices.Contains(nodes, j.Node) {
		return nil, fmt.Errorf("it has been moved to node %s since it was migrated: move it to node %s again, or "+
			"finish with --finish", strings.Join(nodes, ", "), j.Node)
	}
	return pv, nil
}

func (m *Migration) ours(pv *corev1.PersistentVolume) bool {
	return pv != nil && persistentvolume.IsOf(pv, m.Driver)
}

// removeVolume deletes a PersistentVolume, and none of another UID. First its reclaim policy becomes Retain: else the
// data would go with it.
func (m *Migration) removeVolume(ctx context.Context, pv *corev1.PersistentVolume, uid types.UID) error {
	if pv == nil {
		return nil
	}
	if pv.UID != uid {
		return fmt.Errorf("PersistentVolume %s is another one than when this began (UID %s, was %s)", pv.Name, pv.UID,
			uid)
	}
	pv, err := m.exchange().SetPolicy(ctx, pv, corev1.PersistentVolumeReclaimRetain)
	if err != nil {
		return err
	}
	return m.exchange().Remove(ctx, pv)
}

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
