package everynode

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

// Values of the annotation by which a class says who may have a retained volume, with its data, next. They count only
// for volumes that were made with the reclaim policy Retain: who saves one from deletion keeps it for himself.
const (
	// reuseNever: nobody, until an administrator acts. It is what an absent annotation says.
	reuseNever = "Never"
	// reuseSamePVCName: a claim of the same namespace and name.
	reuseSamePVCName = "SamePVCName"
	// reuseAlways: any claim of the class, of any namespace.
	reuseAlways = "Always"
)

// supported gives the reuse policy of a volume. What a directory cannot be is refused: a volume that is something else
// than was asked for is worse than none.
func supported(claim *corev1.PersistentVolumeClaim, class *storagev1.StorageClass, provisioner string) (string, error) {
	if len(class.Parameters) > 0 {
		return "", fmt.Errorf("StorageClass %s has parameters (%s), and provisioner %s takes none; remove them from "+
			"the class", class.Name, strings.Join(slices.Sorted(maps.Keys(class.Parameters)), ", "), provisioner)
	}
	if err := hostpathpv.Possible(claim, class); err != nil {
		return "", err
	}
	policy, said := class.Annotations[names.ReusePolicy(provisioner)]
	if !said {
		return reuseNever, nil
	}
	if policies := []string{reuseNever, reuseSamePVCName, reuseAlways}; !slices.Contains(policies, policy) {
		return "", fmt.Errorf("StorageClass %s: annotation %s: %q: want %s, %s or %s", class.Name,
			names.ReusePolicy(provisioner), policy, reuseNever, reuseSamePVCName, reuseAlways)
	}
	if class.ReclaimPolicy == nil || *class.ReclaimPolicy != corev1.PersistentVolumeReclaimRetain {
		return reuseNever, nil
	}
	return policy, nil
}
