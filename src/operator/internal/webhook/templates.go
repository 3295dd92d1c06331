package webhook

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/v1beta1"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/operator/internal/pools"
)

// reshaped are warnings about templates that are others now: claims that were made of the old one stay as they are.
func reshaped(old, changed v1beta1.HostPathProvisionerSpec) admission.Warnings {
	var texts admission.Warnings
	for i, pool := range changed.StoragePools {
		before := slices.IndexFunc(old.StoragePools, func(o v1beta1.StoragePool) bool { return o.Name == pool.Name })
		if before < 0 || old.StoragePools[before].PVCTemplate == nil || pool.PVCTemplate == nil ||
			equality.Semantic.DeepEqual(old.StoragePools[before].PVCTemplate, pool.PVCTemplate) {
			continue
		}
		stays := "claims that exist stay as they are, and only nodes that are new to the pool get claims of this shape"
		if pools.SharesClaim(pool) && pools.SharesClaim(old.StoragePools[before]) {
			stays = "the claim that exists stays as it is"
		}
		texts = append(texts, fmt.Sprintf("%s: %s; grow an existing one with kubectl edit pvc, if its class allows it",
			pools.FieldOf(changed, i).Child("pvcTemplate"), stays))
	}
	return texts
}
