package hostpath

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/names"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/legacyprovisioner/internal/hostpathpv"
)

// possible refuses what a directory of one node cannot be. (Kubernetes binds a claim only to a volume that has all of
// its access modes.)
func possible(claim *corev1.PersistentVolumeClaim, class *storagev1.StorageClass) error {
	if len(class.Parameters) > 0 {
		return fmt.Errorf("StorageClass %s has parameters (%s), and provisioner %s (with a slash) takes none; "+
			"the CSI driver %s (with a dot) does",
			class.Name, strings.Join(slices.Sorted(maps.Keys(class.Parameters)), ", "), names.LegacyProvisioner,
			names.Driver)
	}
	if err := hostpathpv.Possible(claim, class); err != nil {
		return err
	}
	for _, mode := range claim.Spec.AccessModes {
		if mode != corev1.ReadWriteOnce && mode != corev1.ReadWriteOncePod {
			return fmt.Errorf("the claim asks for access mode %s, and a hostPath volume is on one node; want "+
				"ReadWriteOnce (all pods of the node) or ReadWriteOncePod", mode)
		}
	}
	return nil
}
