package hostpathpv

import (
	"context"
	"fmt"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/sig-storage-lib-external-provisioner/v13/controller"
)

// Recognize refuses a directory that has none of the volumes which are kept there: then it is not the storage that they
// are on. (Nothing on the storage says which it is: the predecessors wrote nothing there, and so do we not.) One of
// these names in it, or of more, is enough.
func Recognize(dir *Directory, kept []string, more ...string) error {
	for _, name := range append(more, kept...) {
		if _, err := dir.Lstat(name); err == nil {
			return nil
		}
	}
	if len(kept) == 0 {
		return nil
	}
	return fmt.Errorf("%s has none of the %d volumes that the cluster has there (such as %s), so it is not their "+
		"storage, and nothing is made or removed: mount the right one, or delete their PersistentVolumes", dir.Name(),
		len(kept), kept[0])
}

// Kept reports whether the directory of a PersistentVolume has to be there, directly in a directory.
func Kept(pv *corev1.PersistentVolume, directory string) bool {
	if pv.Spec.HostPath == nil || filepath.Dir(pv.Spec.HostPath.Path) != directory {
		return false
	}
	going := pv.Status.Phase == corev1.VolumeReleased || pv.Status.Phase == corev1.VolumeFailed
	return !going || pv.Spec.PersistentVolumeReclaimPolicy != corev1.PersistentVolumeReclaimDelete
}

// Removable reports whether a PersistentVolume asks that its data be removed. Nothing else does.
func Removable(pv *corev1.PersistentVolume) bool {
	return pv.Status.Phase == corev1.VolumeReleased &&
		pv.Spec.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimDelete
}

// Current is the PersistentVolume as it is now, if it is to be deleted now. The library calls once more for one that it
// has just deleted, and with what it saw last; and an administrator may have retained it since, to save the data.
func Current(
	ctx context.Context, client kubernetes.Interface, pv *corev1.PersistentVolume,
) (*corev1.PersistentVolume, error) {
	now, err := client.CoreV1().PersistentVolumes().Get(ctx, pv.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, &controller.IgnoredError{Reason: "the PersistentVolume is gone"}
	case err != nil:
		return nil, fmt.Errorf("read the PersistentVolume: %w", err)
	case now.UID != pv.UID || !Removable(now):
		return nil, &controller.IgnoredError{Reason: "the PersistentVolume is not to be deleted any more"}
	}
	return now, nil
}
