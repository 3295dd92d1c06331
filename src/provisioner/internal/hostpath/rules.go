package hostpath

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/names"
)

// supported gives the access modes of the PersistentVolume for a claim. What a directory cannot be is refused: a
// volume that is something else than was asked for is worse than none.
func supported(
	claim *corev1.PersistentVolumeClaim, class *storagev1.StorageClass,
) ([]corev1.PersistentVolumeAccessMode, error) {
	if len(class.Parameters) > 0 {
		return nil, fmt.Errorf("StorageClass %s has parameters (%s), and provisioner %s (with a slash) takes none; "+
			"the CSI driver %s (with a dot) does",
			class.Name, strings.Join(slices.Sorted(maps.Keys(class.Parameters)), ", "), names.LegacyProvisioner, names.Driver)
	}
	if len(class.MountOptions) > 0 {
		return nil, fmt.Errorf("StorageClass %s has mountOptions (%s), and the kubelet starts no pod that has a hostPath "+
			"volume with mount options; remove them from the class, or use a class of the CSI driver", class.Name,
			strings.Join(class.MountOptions, ", "))
	}
	if claim.Spec.Selector != nil {
		return nil, errors.New("the claim has a selector, which no volume that is made for it can match; remove it")
	}
	if source := dataSource(claim); source != "" {
		return nil, fmt.Errorf("the claim wants to begin as a copy of %s, and this provisioner cannot copy; leave "+
			"dataSource and dataSourceRef out", source)
	}
	return accessModes(claim)
}

// accessModes are those of the claim, if one node can serve them. (Kubernetes binds a claim only
// to a volume that has all of them.)
func accessModes(claim *corev1.PersistentVolumeClaim) ([]corev1.PersistentVolumeAccessMode, error) {
	for _, mode := range claim.Spec.AccessModes {
		if mode != corev1.ReadWriteOnce && mode != corev1.ReadWriteOncePod {
			return nil, fmt.Errorf("the claim asks for access mode %s, and a hostPath volume is on one node; want "+
				"ReadWriteOnce (all pods of the node) or ReadWriteOncePod",
				mode)
		}
	}
	return slices.Clone(claim.Spec.AccessModes), nil
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
