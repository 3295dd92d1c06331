package admin

import (
	"slices"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/names"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/store"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
)

func (s *Server) shared(name string) bool {
	return slices.ContainsFunc(s.Pools.Status(),
		func(is nodeapi.PoolStatus) bool { return is.Name == name && is.Shared })
}

// object is a part of an object of the Kubernetes API, with the API's names.
type object = map[string]any

// persistentVolume is the one for a volume that has none. Its claim has no uid, so a new claim of that name gets it.
func (s *Server) persistentVolume(r store.Record, class string) object {
	spec := object{
		"accessModes":                   []string{"ReadWriteOnce"},
		"capacity":                      object{"storage": resource.NewQuantity(r.Bytes, resource.BinarySI).String()},
		"persistentVolumeReclaimPolicy": "Retain",
		"storageClassName":              class,
		"csi": object{
			"driver":           s.Driver,
			"volumeHandle":     r.ID,
			"volumeAttributes": object{names.StoragePoolParameter: r.Pool},
		},
	}
	if !s.shared(r.Pool) {
		spec["nodeAffinity"] = object{"required": object{"nodeSelectorTerms": []object{{"matchExpressions": []object{
			{"key": s.TopologyKey, "operator": "In", "values": []string{s.Node}},
		}}}}}
	}
	if r.Claim.Name != "" {
		spec["claimRef"] = object{
			"apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": r.Claim.Namespace, "name": r.Claim.Name,
		}
	}
	metadata := object{"name": r.ID, "annotations": object{names.ProvisionedBy: s.Driver}}
	return object{"apiVersion": "v1", "kind": "PersistentVolume", "metadata": metadata, "spec": spec}
}
