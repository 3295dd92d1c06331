package controller_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	pb "github.com/container-storage-interface/spec/lib/go/csi"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/names"
	"github.com/hostpath-provisioner/hostpath-provisioner/tests/api/harness"
)

const (
	selectedNode = "volume.kubernetes.io/selected-node"
	mib          = 1 << 20
)

// request is what csi-provisioner asks for a new claim's volume; with the node that the scheduler has selected, "" for
// a class that binds immediately.
func (w *world) request(
	t *testing.T, bytes int64, node string,
) (claim *corev1.PersistentVolumeClaim, q *pb.CreateVolumeRequest) {
	t.Helper()
	claim = &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", GenerateName: "data-"},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, StorageClassName: new(immediate),
			Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{
				corev1.ResourceStorage: *resource.NewQuantity(bytes, resource.BinarySI),
			}},
		},
	}
	if node != "" {
		claim.Annotations = map[string]string{selectedNode: node}
	}
	w.Create(t, claim)
	q = &pb.CreateVolumeRequest{
		Name: "pvc-" + string(claim.UID), CapacityRange: &pb.CapacityRange{RequiredBytes: bytes},
		VolumeCapabilities: []*pb.VolumeCapability{{
			AccessType: &pb.VolumeCapability_Mount{Mount: &pb.VolumeCapability_MountVolume{}},
			AccessMode: &pb.VolumeCapability_AccessMode{Mode: pb.VolumeCapability_AccessMode_SINGLE_NODE_WRITER},
		}},
		Parameters: map[string]string{
			names.StoragePoolParameter: poolName, "csi.storage.k8s.io/pvc/namespace": "default",
			"csi.storage.k8s.io/pvc/name": claim.Name, "csi.storage.k8s.io/pv/name": "pvc-" + string(claim.UID),
		},
	}
	if node != "" {
		here := []*pb.Topology{{Segments: map[string]string{topologyKey: node}}}
		q.AccessibilityRequirements = &pb.TopologyRequirement{Requisite: here, Preferred: here}
	}
	return claim, q
}

// create has a controller make a volume, on the node that is given.
func (w *world) create(t *testing.T, controller *program, q *pb.CreateVolumeRequest, node string) {
	t.Helper()
	answer, err := controller.CreateVolume(t.Context(), q)
	if err != nil {
		t.Fatal(err)
	}
	at := answer.GetVolume().GetAccessibleTopology()
	if len(at) != 1 || at[0].GetSegments()[topologyKey] != node || answer.GetVolume().GetVolumeId() != q.GetName() {
		t.Fatalf("the answer is %v, want %s on %s", answer, q.GetName(), node)
	}
	for name, p := range w.nodes {
		if p.has(q.GetName()) != (name == node) {
			t.Errorf("%s has volume %s: %t", name, q.GetName(), name != node)
		}
	}
}

// bound makes a volume on a node, and its PersistentVolume.
func (w *world) bound(t *testing.T, node string) *corev1.PersistentVolume {
	t.Helper()
	_, q := w.request(t, 16*mib, node)
	w.create(t, w.controller, q, node)
	return w.persistentVolume(t, q.GetName(), q.GetName(), node)
}

// persistentVolume makes one of a volume on a node.
func (w *world) persistentVolume(t *testing.T, name, handle, node string) *corev1.PersistentVolume {
	t.Helper()
	pv := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PersistentVolumeSpec{
			Capacity:                      corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("16Mi")},
			AccessModes:                   []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain, StorageClassName: "none",
			PersistentVolumeSource: corev1.PersistentVolumeSource{
				CSI: &corev1.CSIPersistentVolumeSource{Driver: names.Driver, VolumeHandle: handle},
			},
			NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{
				NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{
					{Key: topologyKey, Operator: corev1.NodeSelectorOpIn, Values: []string{node}},
				}}},
			}},
		},
	}
	w.Create(t, pv)
	return pv
}

// deleted has the controller delete a volume.
func (w *world) deleted(t *testing.T, id string) {
	t.Helper()
	if _, err := w.controller.DeleteVolume(t.Context(), &pb.DeleteVolumeRequest{VolumeId: id}); err != nil {
		t.Fatal(err)
	}
	for name, p := range w.nodes {
		if p.has(id) {
			t.Errorf("%s has %s, which was deleted", name, id)
		}
	}
}

// mostRoom waits until the controller knows that a node has the most room of the first two.
func (w *world) mostRoom(t *testing.T, node string) {
	t.Helper()
	harness.Eventually(t, node+" has the most room", func(ctx context.Context) error {
		room := map[string]int64{}
		for _, name := range []string{"node-1", "node-2"} {
			answer, err := w.controller.GetCapacity(ctx, &pb.GetCapacityRequest{
				Parameters:         map[string]string{names.StoragePoolParameter: poolName},
				AccessibleTopology: &pb.Topology{Segments: map[string]string{topologyKey: name}},
			})
			if err != nil {
				return err
			}
			room[name] = answer.GetMaximumVolumeSize().GetValue()
		}
		if room[node] <= min(room["node-1"], room["node-2"]) {
			return fmt.Errorf("room: %v", room)
		}
		return nil
	})
}

func (w *world) event(t *testing.T, object, reason, message string) {
	t.Helper()
	harness.Eventually(t, "event "+reason+" on "+object, func(ctx context.Context) error {
		var list corev1.EventList
		err := w.Client.List(ctx, &list)
		for _, event := range list.Items {
			if event.InvolvedObject.Name == object && event.Reason == reason &&
				strings.Contains(event.Message, message) {
				return nil
			}
		}
		return errors.Join(err, errors.New("it is not there"))
	})
}
