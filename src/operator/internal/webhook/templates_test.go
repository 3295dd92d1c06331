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

// templateForAll is that of one claim for all nodes.
func templateForAll() *corev1.PersistentVolumeClaimSpec {
	many := template()
	many.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}
	return many
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
	// One claim for all nodes is another filesystem than one on each.
	one := *was.DeepCopy()
	one.StoragePools[0].PVCTemplate = templateForAll()
	for _, change := range []struct {
		from, to v1beta1.HostPathProvisionerSpec
		which    string
	}{{was, one, "has a claim on each node"}, {one, was, "has one claim for all nodes"}} {
		judged(t, ask(t, reader(volume), admissionv1.Update, resource(change.from), resource(change.to)), []string{
			`spec.storagePools[0].pvcTemplate: Forbidden: the pool "a", which ` + change.which + `, still has 1 ` +
				"volume: pv-a; keep its accessModes, delete their claims first, or set " + override +
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

// TestTemplatesForAll: what is refused of pools whose nodes share a claim, and what is not.
func TestTemplatesForAll(t *testing.T) {
	shared := func(name string, change ...func(*pool)) pool {
		made := pool{Name: name, Path: "/data/" + name, PVCTemplate: templateForAll()}
		for _, apply := range change {
			apply(&made)
		}
		return made
	}
	class := func(name string) func(*pool) { return func(p *pool) { p.OverlayClassName = name } }
	for name, test := range map[string]struct {
		pools []pool
		want  []string
	}{
		"one":              {[]pool{shared("a")}, nil},
		"of scope shared":  {[]pool{shared("a", func(p *pool) { p.Scope = "shared" })}, nil},
		"with a volume":    {[]pool{shared("a", func(p *pool) { p.PVCTemplate.VolumeName = "nfs" })}, nil},
		"classes apart":    {[]pool{shared("a"), shared("b", class("b"))}, nil},
		"one has no class": {[]pool{shared("a"), {Name: "b", Path: "/data/b", PVCTemplate: template()}}, nil},
		"classes of a name": {[]pool{shared("a"), shared("b")}, []string{
			`spec.storagePools[1].overlayClassName: Invalid value: "": the StorageClass of the pool "a" is called ` +
				"hpp-overlay already: want a name of its own, such as hpp-overlay-b",
		}},
		"no name of a class": {[]pool{shared("a", class("My Class"))}, []string{
			`spec.storagePools[0].overlayClassName: Invalid value: "My Class": want the name of a StorageClass: ` +
				`a lowercase RFC`,
		}},
		"of scope node": {[]pool{shared("a", func(p *pool) { p.Scope = "node" })}, []string{
			`spec.storagePools[0].scope: Invalid value: "node": one claim for all nodes (pvcTemplate with ` +
				`ReadWriteMany)`,
		}},
		"a claim on each, of scope shared": {
			[]pool{{Name: "a", Path: "/data/a", Scope: "shared", PVCTemplate: template()}}, []string{
				`spec.storagePools[0].scope: Invalid value: "shared": a claim on each node (pvcTemplate without ` +
					`ReadWriteMany)`,
			},
		},
		"devices": {
			[]pool{shared("a", func(p *pool) { p.PVCTemplate.VolumeMode = new(corev1.PersistentVolumeBlock) })},
			[]string{
				`spec.storagePools[0].pvcTemplate.volumeMode: Invalid value: "Block": with ReadWriteMany all ` +
					`nodes would mount`,
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			answer := ask(t, reader(), admissionv1.Create, nil, resource(pools(test.pools...)))
			message := ""
			if answer.Result != nil {
				message = answer.Result.Message
			}
			if answer.Allowed != (test.want == nil) {
				t.Errorf("allowed: %v, %s", answer.Allowed, message)
			}
			for _, want := range test.want {
				if !strings.Contains(message, want) {
					t.Errorf("it says %q, want %q", message, want)
				}
			}
		})
	}
	// The scope that it has anyway is no change.
	was, said := pools(shared("a")), pools(shared("a", func(p *pool) { p.Scope = "shared" }))
	volume := pv("pv-a", csi("a"))
	judged(t, ask(t, reader(volume), admissionv1.Update, resource(was), resource(said)), nil)
	larger := *was.DeepCopy()
	larger.StoragePools[0].PVCTemplate.Resources.Requests[corev1.ResourceStorage] = quantity.MustParse("9Gi")
	answer := ask(t, reader(volume), admissionv1.Update, resource(was), resource(larger))
	judged(t, answer, nil)
	if len(answer.Warnings) != 1 || !strings.HasPrefix(answer.Warnings[0],
		"spec.storagePools[0].pvcTemplate: the claim that exists stays as it is; grow") {
		t.Errorf("warnings %q", answer.Warnings)
	}
}
