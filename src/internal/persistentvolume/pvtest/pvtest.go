// Package pvtest makes PersistentVolumes for tests.
package pvtest

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
)

// Driver is that of the volumes, Key its topology key.
const (
	Driver = "kubevirt.io.hostpath-provisioner"
	Key    = "topology.hostpath.csi/node"
)

// New is a PersistentVolume on a node; "" is none.
func New(name, driver, handle, node string) *corev1.PersistentVolume {
	object := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PersistentVolumeSpec{
			Capacity: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("5Gi")},
			ClaimRef: &corev1.ObjectReference{Namespace: "shop", Name: "data", UID: "77"},
			PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{
				Driver: driver, VolumeHandle: handle, VolumeAttributes: map[string]string{"storagePool": "local"},
			}},
		},
	}
	if node != "" {
		object.Spec.NodeAffinity = Affinity(corev1.NodeSelectorTerm{
			MatchExpressions: []corev1.NodeSelectorRequirement{
				{Key: Key, Operator: corev1.NodeSelectorOpIn, Values: []string{node}},
			},
		})
	}
	return object
}

// Affinity is a node affinity with any of the terms.
func Affinity(terms ...corev1.NodeSelectorTerm) *corev1.VolumeNodeAffinity {
	return &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: terms}}
}

// Described is what New says.
func Described(name, handle, node string) nodeapi.PersistentVolume {
	want := nodeapi.PersistentVolume{
		Name: name, Handle: handle, Pool: "local", Bytes: 5 << 30,
		Claim: nodeapi.Claim{Namespace: "shop", Name: "data", UID: "77"},
	}
	if node != "" {
		want.Nodes = []string{node}
	}
	return want
}
