package webhook_test

import (
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	quantity "k8s.io/apimachinery/pkg/api/resource"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/v1beta1"
)

// template is that of a claim for each node.
func template() *corev1.PersistentVolumeClaimSpec {
	return &corev1.PersistentVolumeClaimSpec{
		AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		Resources: corev1.VolumeResourceRequirements{
			Requests: corev1.ResourceList{corev1.ResourceStorage: quantity.MustParse("5Gi")},
		},
	}
}

// TestTemplates: claims that exist are not changed, and volumes on them keep their template.
func TestTemplates(t *testing.T) {
	was := pools(pool{Name: "a", Path: "/data/a", PVCTemplate: template()})
	larger, without := *was.DeepCopy(), *was.DeepCopy()
	larger.StoragePools[0].PVCTemplate.Resources.Requests[corev1.ResourceStorage] = quantity.MustParse("9Gi")
	without.StoragePools[0].PVCTemplate = nil
	answer := ask(t, reader(), admissionv1.Update, resource(was), resource(larger))
	judged(t, answer, nil)
	if len(answer.Warnings) != 1 || !strings.HasPrefix(answer.Warnings[0],
		"spec.storagePools[0].pvcTemplate: claims that exist stay as they are") {
		t.Errorf("warnings %q", answer.Warnings)
	}
	volume := pv("pv-a", csi("a"))
	judged(t, ask(t, reader(volume), admissionv1.Update, resource(was), resource(without)), []string{
		`spec.storagePools[0].pvcTemplate: Forbidden: the pool "a", whose filesystem comes from claims, still has 1 ` +
			`volume: pv-a; keep pvcTemplate, delete their claims first, or set ` + override +
			" to leave their data on the nodes",
	})
	// One claim for all nodes is another filesystem than one on each, and not served yet.
	one := *was.DeepCopy()
	one.StoragePools[0].PVCTemplate.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}
	for _, change := range []struct {
		from, to v1beta1.HostPathProvisionerSpec
		which    string
	}{{was, one, "has a claim on each node"}, {one, was, "has one claim for all nodes"}} {
		judged(t, ask(t, reader(volume), admissionv1.Update, resource(change.from), resource(change.to)), []string{
			`spec.storagePools[0].pvcTemplate: Forbidden: the pool "a", which ` + change.which + `, still has 1 volume: ` +
				"pv-a; keep its accessModes, delete their claims first, or set " + override +
				" to leave their data on the nodes",
		})
		judged(t, ask(t, reader(), admissionv1.Update, resource(change.from), resource(change.to)), nil)
	}
	unsized := *was.DeepCopy()
	unsized.StoragePools[0].PVCTemplate.Resources.Requests = nil
	judged(t, ask(t, reader(), admissionv1.Create, nil, resource(unsized)), []string{
		"spec.storagePools[0].pvcTemplate.resources.requests.storage: Required value: want the size of a node's " +
			"filesystem, such as 50Gi",
	})
}
