package hostpathpv

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/sig-storage-lib-external-provisioner/v13/controller"
)

// Possible refuses what no directory can be: a volume that is something else than was asked for is worse than none.
func Possible(claim *corev1.PersistentVolumeClaim, class *storagev1.StorageClass) error {
	if len(class.MountOptions) > 0 {
		return fmt.Errorf("StorageClass %s has mountOptions (%s), and the kubelet starts no pod that has a hostPath "+
			"volume with mount options; remove them from the class, or use a class of the CSI driver", class.Name,
			strings.Join(class.MountOptions, ", "))
	}
	if claim.Spec.Selector != nil {
		return errors.New("the claim has a selector, which no volume that is made for it can match; remove it")
	}
	if source := dataSource(claim); source != "" {
		return fmt.Errorf("the claim wants to begin as a copy of %s, and this provisioner cannot copy; leave "+
			"dataSource and dataSourceRef out", source)
	}
	return nil
}

// dataSource names the claim or snapshot that a volume would have to be a copy of.
func dataSource(claim *corev1.PersistentVolumeClaim) string {
	if s := claim.Spec.DataSourceRef; s != nil {
		return s.Kind + " " + s.Name
	}
	if s := claim.Spec.DataSource; s != nil {
		return s.Kind + " " + s.Name
	}
	return ""
}

// Populated reports whether the claim's data source is of a kind that a volume populator serves. It makes a claim of
// its own without one, and gives this claim the volume of that.
func Populated(claim *corev1.PersistentVolumeClaim) bool {
	s := claim.Spec.DataSourceRef
	return s != nil && s.Kind != "PersistentVolumeClaim" && s.Kind != "VolumeSnapshot"
}

// Absent fails when the claim has a PersistentVolume already: another instance's, or one that this process does not see
// yet. The API takes only one of a name; asking first spares a directory that nobody would ever use.
func Absent(ctx context.Context, client kubernetes.Interface, name string) error {
	_, err := client.CoreV1().PersistentVolumes().Get(ctx, name, metav1.GetOptions{})
	switch {
	case err == nil:
		return &controller.IgnoredError{Reason: "the claim's PersistentVolume is there already"}
	case apierrors.IsNotFound(err):
		return nil
	default:
		return fmt.Errorf("look for PersistentVolume %s: %w", name, err)
	}
}

// PersistentVolume is what is the same in every mode: of the claim's size and access modes and the class's reclaim
// policy, at a path. (The library adds claim and class.)
func PersistentVolume(
	o controller.ProvisionOptions, path string, annotations map[string]string,
) *corev1.PersistentVolume {
	policy := corev1.PersistentVolumeReclaimDelete
	if o.StorageClass.ReclaimPolicy != nil {
		policy = *o.StorageClass.ReclaimPolicy
	}
	filesystem := corev1.PersistentVolumeFilesystem
	return &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: o.PVName, Annotations: annotations},
		Spec: corev1.PersistentVolumeSpec{
			AccessModes: slices.Clone(o.PVC.Spec.AccessModes),
			Capacity: corev1.ResourceList{
				corev1.ResourceStorage: o.PVC.Spec.Resources.Requests[corev1.ResourceStorage],
			},
			PersistentVolumeReclaimPolicy: policy,
			VolumeMode:                    &filesystem,
			PersistentVolumeSource: corev1.PersistentVolumeSource{
				HostPath: &corev1.HostPathVolumeSource{Path: path},
			},
		},
	}
}
