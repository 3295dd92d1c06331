package webhook_test

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/v1beta1"
)

// What kubevirt's operator accepts passes, and each says what becomes of it.
func TestAcceptedWithAWarning(t *testing.T) {
	for name, test := range map[string]struct {
		resource *v1beta1.HostPathProvisioner
		want     []string
	}{
		"trailing slash": {
			resource(pools(pool{Name: "a", Path: "/data/"})),
			[]string{`spec.storagePools[0].path: "/data/" is read as "/data", the same directory`},
		},
		"slashes in between": {
			resource(pools(pool{Name: "a", Path: "/data"}, pool{Name: "b", Path: "//srv//b"})),
			[]string{`spec.storagePools[1].path: "//srv//b" is read as "/srv/b", the same directory`},
		},
		"trailing slash, legacy": {
			resource(legacy("/data/")),
			[]string{
				"spec.pathConfig is for existing installations: it also runs the legacy provisioner; new ones use " +
					"storagePools",
				`spec.pathConfig.path: "/data/" is read as "/data", the same directory`,
			},
		},
		"overlayClassName without pvcTemplate": {
			resource(pools(pool{Name: "a", Path: "/data", OverlayClassName: "hpp-overlay"})),
			[]string{`spec.storagePools[0].overlayClassName: "hpp-overlay" is ignored, and no class of this name is ` +
				`made: it needs a pvcTemplate with ReadWriteMany`},
		},
		"overlayClassName with a claim on each node": {
			resource(pools(pool{Name: "a", Path: "/data", OverlayClassName: "hpp-overlay", PVCTemplate: template()})),
			[]string{`spec.storagePools[0].overlayClassName: "hpp-overlay" is ignored, and no class of this name is ` +
				`made: it needs a pvcTemplate with ReadWriteMany`},
		},
		"unknown snapshotProvider": {
			resource(pools(pool{Name: "a", Path: "/data", SnapshotProvider: "zfs"})),
			[]string{`spec.storagePools[0].snapshotProvider: "zfs" is not known and ignored; the only one is reflink`},
		},
		"unknown gate": {
			resource(changed(pools(pool{Name: "a", Path: "/data"}),
				func(s *spec) { s.FeatureGates = []string{"Cloning"} })),
			[]string{`spec.featureGates[0]: "Cloning" is not known and ignored; the only one is Snapshotting`},
		},
		"another name": {
			with(resource(pools(pool{Name: "a", Path: "/data"})),
				func(r *v1beta1.HostPathProvisioner) { r.Name = "hpp" }),
			[]string{`metadata.name: "hpp" is served because it is the only HostPathProvisioner; one named ` +
				`hostpath-provisioner would be served instead of it`},
		},
	} {
		t.Run(name, func(t *testing.T) {
			response := ask(t, reader(), admissionv1.Create, nil, test.resource)
			judged(t, response, nil)
			if diff := cmp.Diff(test.want, response.Warnings); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// The type does not tell an empty policy from none: the request does.
func TestEmptyPullPolicy(t *testing.T) {
	const empty = `spec.imagePullPolicy: "" is as if it were not there: the operator's base values decide`
	for name, test := range map[string]struct {
		policy any
		want   []string
	}{
		"none":   {nil, nil},
		"empty":  {"", []string{empty}},
		"Always": {string(corev1.PullAlways), nil},
	} {
		t.Run(name, func(t *testing.T) {
			spec := map[string]any{"storagePools": []any{map[string]any{"name": "a", "path": "/data"}}}
			if test.policy != nil {
				spec["imagePullPolicy"] = test.policy
			}
			raw, err := json.Marshal(map[string]any{
				"metadata": map[string]any{"name": "hostpath-provisioner"},
				"spec":     spec,
			})
			if err != nil {
				t.Fatal(err)
			}
			request := admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{
				Operation: admissionv1.Create, Object: runtime.RawExtension{Raw: raw},
			}}
			response := handled(t, reader(), reader(), request)
			judged(t, response, nil)
			if diff := cmp.Diff(test.want, response.Warnings); diff != "" {
				t.Error(diff)
			}
		})
	}
}
