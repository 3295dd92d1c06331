package placement

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/names"
)

const (
	provisionOnNode = names.ProvisionOnNode
	immediate       = storagev1.VolumeBindingImmediate
	waiting         = storagev1.VolumeBindingWaitForFirstConsumer
)

func class(mode storagev1.VolumeBindingMode) *storagev1.StorageClass {
	return &storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{Name: "hostpath"}, Provisioner: names.LegacyProvisioner, VolumeBindingMode: &mode,
	}
}

func claim(annotations ...string) *corev1.PersistentVolumeClaim {
	name := "hostpath"
	c := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: "data", UID: "1234", ResourceVersion: "7", Annotations: map[string]string{},
		},
		Spec: corev1.PersistentVolumeClaimSpec{StorageClassName: &name},
	}
	for i := 0; i < len(annotations); i += 2 {
		c.Annotations[annotations[i]] = annotations[i+1]
	}
	return c
}

func TestDecide(t *testing.T) {
	bound := claim(provisionOnNode, "here")
	bound.Spec.VolumeName = "pvc-1"
	deleted := claim(provisionOnNode, "here")
	deleted.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
	populated := claim(provisionOnNode, "here")
	populated.Spec.DataSourceRef = &corev1.TypedObjectReference{Kind: "VolumeImportSource", Name: "image"}
	copied := claim(provisionOnNode, "here")
	copied.Spec.DataSourceRef = &corev1.TypedObjectReference{Kind: "PersistentVolumeClaim", Name: "other"}
	foreign := class(immediate)
	foreign.Provisioner = names.Driver
	without := class(immediate)
	without.VolumeBindingMode = nil
	for _, test := range []struct {
		name  string
		claim *corev1.PersistentVolumeClaim
		class *storagev1.StorageClass
		want  Action
	}{
		{"immediate, nothing said", claim(), class(immediate), Explain},
		{"immediate, annotation empty", claim(provisionOnNode, ""), class(immediate), Explain},
		{"immediate, only selected by hand", claim(SelectedNode, "here"), class(immediate), Explain},
		{"class without a mode", claim(), without, Explain},
		{"immediate, annotated", claim(provisionOnNode, "here"), class(immediate), Provision},
		{"immediate, annotated elsewhere", claim(provisionOnNode, "there"), class(immediate), Verify},
		{"waiting, nothing said", claim(), class(waiting), Ignore},
		{"waiting, selected", claim(SelectedNode, "here"), class(waiting), Provision},
		{"waiting, selected elsewhere", claim(SelectedNode, "there"), class(waiting), Ignore},
		{"waiting, annotated", claim(provisionOnNode, "here"), class(waiting), Select},
		{
			"waiting, annotated and selected", claim(provisionOnNode, "here", SelectedNode, "here"), class(waiting),
			Provision,
		},
		{
			"waiting, annotated, selected elsewhere", claim(provisionOnNode, "here", SelectedNode, "there"),
			class(waiting), Override,
		},
		{"waiting, annotated elsewhere", claim(provisionOnNode, "there"), class(waiting), Verify},
		{
			"waiting, annotated elsewhere, selected", claim(provisionOnNode, "there", SelectedNode, "here"),
			class(waiting), Verify,
		},
		{"bound", bound, class(immediate), Ignore},
		{"being deleted", deleted, class(immediate), Ignore},
		{"another provisioner's", claim(provisionOnNode, "here"), foreign, Ignore},
		{"a populator's", populated, class(immediate), Ignore},
		{"a copy, which is refused with an event later", copied, class(immediate), Provision},
	} {
		if got := Decide(test.claim, test.class, "here"); got != test.want {
			t.Errorf("%s: action %d, want %d", test.name, got, test.want)
		}
	}
}

// TestOneNodeAtMost: whatever is written on a claim, no two nodes make its volume.
func TestOneNodeAtMost(t *testing.T) {
	nodes := []string{"a", "b", "c"}
	for _, mode := range []storagev1.VolumeBindingMode{immediate, waiting} {
		for _, wanted := range append(nodes, "", "gone") {
			for _, selected := range append(nodes, "", "gone") {
				makers := 0
				for _, node := range nodes {
					action := Decide(claim(provisionOnNode, wanted, SelectedNode, selected), class(mode), node)
					if action.Here() || action == Select {
						makers++
					}
				}
				if makers > 1 {
					t.Errorf("%s, annotation %q, selected %q: %d nodes make the volume", mode, wanted, selected, makers)
				}
			}
		}
	}
}
