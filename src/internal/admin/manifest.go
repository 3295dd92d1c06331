package admin

import (
	"fmt"
	"io"

	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/yaml"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/names"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi/wire"
)

// object is a part of an object of the Kubernetes API, with the API's names.
type object = map[string]any

// manifests are a PersistentVolume and, where its volume was made for one, a claim.
type manifests struct {
	Manifests []object `json:"manifests"`
}

func manifestsOf(a *wire.AdoptResponse, class string) manifests {
	all := []object{persistentVolume(a, class)}
	if a.GetVolume().GetClaimName() != "" {
		all = append(all, claimOf(a, class))
	}
	return manifests{all}
}

// writeManifests writes them for kubectl create.
func writeManifests(w io.Writer, m manifests) error {
	for i, one := range m.Manifests {
		text, err := yaml.Marshal(one)
		if err != nil {
			return err
		}
		if i > 0 {
			text = append([]byte("---\n"), text...)
		}
		if _, err := w.Write(text); err != nil {
			return fmt.Errorf("write the manifests: %w", err)
		}
	}
	return nil
}

// persistentVolume is the one for a volume that has none. Its claim has no uid, so a new claim of that name gets it.
func persistentVolume(a *wire.AdoptResponse, class string) object {
	v := a.GetVolume()
	spec := object{
		"accessModes":                   []string{"ReadWriteOnce"},
		"capacity":                      storage(v),
		"persistentVolumeReclaimPolicy": "Retain",
		"storageClassName":              class,
		"csi": object{
			"driver":           a.GetDriver(),
			"volumeHandle":     v.GetId(),
			"volumeAttributes": object{names.StoragePoolParameter: v.GetPool()},
		},
	}
	if !a.GetShared() {
		spec["nodeAffinity"] = object{"required": object{"nodeSelectorTerms": []object{{"matchExpressions": []object{
			{"key": a.GetTopologyKey(), "operator": "In", "values": []string{a.GetNode()}},
		}}}}}
	}
	if v.GetClaimName() != "" {
		spec["claimRef"] = object{
			"apiVersion": "v1", "kind": "PersistentVolumeClaim",
			"namespace": v.GetClaimNamespace(), "name": v.GetClaimName(),
		}
	}
	metadata := object{"name": v.GetId(), "annotations": object{names.ProvisionedBy: a.GetDriver()}}
	return object{"apiVersion": "v1", "kind": "PersistentVolume", "metadata": metadata, "spec": spec}
}

// claimOf is the one that a PersistentVolume of persistentVolume is for.
func claimOf(a *wire.AdoptResponse, class string) object {
	v := a.GetVolume()
	return object{
		"apiVersion": "v1", "kind": "PersistentVolumeClaim",
		"metadata": object{"namespace": v.GetClaimNamespace(), "name": v.GetClaimName()},
		"spec": object{
			"accessModes":      []string{"ReadWriteOnce"},
			"resources":        object{"requests": storage(v)},
			"storageClassName": class,
			"volumeName":       v.GetId(),
		},
	}
}

func storage(v *wire.Volume) object {
	return object{"storage": resource.NewQuantity(v.GetBytes(), resource.BinarySI).String()}
}
