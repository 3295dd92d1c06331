package kube

import (
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/controller/csi"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
)

type (
	storageClass struct {
		metav1.TypeMeta   `json:",inline"`
		metav1.ObjectMeta `json:"metadata"`
		Provisioner       string            `json:"provisioner"`
		Parameters        map[string]string `json:"parameters"`
	}

	volumeClaim struct {
		metav1.TypeMeta   `json:",inline"`
		metav1.ObjectMeta `json:"metadata"`
		Spec              struct {
			StorageClassName string `json:"storageClassName"`
			VolumeName       string `json:"volumeName"`
			Resources        struct {
				Requests map[string]resource.Quantity `json:"requests"`
			} `json:"resources"`
		} `json:"spec"`
		Status struct {
			Phase string `json:"phase"`
		} `json:"status"`
	}

	// waiting is what is kept of a claim without a volume.
	waiting struct {
		class string
		bytes int64
		since time.Time
	}
)

func (s *storageClass) DeepCopyObject() runtime.Object { return new(*s) }

func (v *volumeClaim) DeepCopyObject() runtime.Object { return new(*v) }

// keepClaim keeps a claim that has no volume; of others only the name, for there may be 10,000.
func keepClaim(v *volumeClaim) *kept {
	k := &kept{ObjectMeta: stripMeta(&v.ObjectMeta)}
	k.Namespace = v.Namespace
	if v.Status.Phase == "Pending" && v.Spec.VolumeName == "" && v.DeletionTimestamp == nil {
		request := v.Spec.Resources.Requests["storage"]
		k.waits = &waiting{v.Spec.StorageClassName, request.Value(), v.CreationTimestamp.Time}
	}
	return k
}

// Waiting gives the claims of this driver's classes that have no volume.
func (c *Controller) Waiting() (all []csi.WaitingClaim) {
	for _, object := range c.claims.List() {
		k, ok := object.(*kept)
		if !ok || k.waits == nil {
			continue
		}
		known, _, _ := c.classes.GetByKey(k.waits.class) // fails only for a key that is none
		class, ok := known.(*kept)
		if !ok || !class.ours {
			continue
		}
		all = append(all, csi.WaitingClaim{
			Claim: nodeapi.Claim{Namespace: k.Namespace, Name: k.Name, UID: string(k.UID)},
			Pool:  class.volume.Pool, Bytes: k.waits.bytes, Since: k.waits.since,
		})
	}
	return all
}
