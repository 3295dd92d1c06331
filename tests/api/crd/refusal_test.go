package crd

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/v1beta1"
	"github.com/hostpath-provisioner/hostpath-provisioner/tests/api/harness"
	"github.com/hostpath-provisioner/hostpath-provisioner/tests/chart/helmcli"
)

// The server's own words when a rule cannot be evaluated because something else is wrong too.
const unchecked = `, <nil>: Invalid value: null: some validation rules were not checked because the object was ` +
	`invalid; correct the existing errors to complete validation]`

const oneOf = `spec: Invalid value: want either storagePools or pathConfig, and not both: storagePools serves CSI ` +
	`volumes; pathConfig also runs the legacy provisioner`

// refusals are what the schema and its CEL rules say, word for word: it is all that a user gets to see.
func refusals(t *testing.T, s *harness.Server) {
	type spec = v1beta1.HostPathProvisionerSpec
	pool := func(change func(*v1beta1.StoragePool)) func(*spec) {
		return func(s *spec) { change(&s.StoragePools[0]) }
	}
	for name, test := range map[string]struct {
		change func(*spec)
		want   string
	}{
		"neither": {
			func(s *spec) { s.StoragePools = nil },
			oneOf,
		},
		"both": {
			func(s *spec) { s.PathConfig = &v1beta1.PathConfig{Path: "/var/hpvolumes"} },
			oneOf,
		},
		"pull policy": {
			func(s *spec) { s.ImagePullPolicy = "Sometimes" },
			`[spec.imagePullPolicy: Unsupported value: "Sometimes": supported values: "", "Always", ` +
				`"IfNotPresent", "Never"` +
				unchecked,
		},
		"relative path": {
			pool(func(p *v1beta1.StoragePool) { p.Path = "../etc" }),
			`spec.storagePools[0].path: Invalid value: "../etc": the path has to be absolute: begin with /`,
		},
		"no path": {
			pool(func(p *v1beta1.StoragePool) { p.Path = "" }),
			`[spec.storagePools[0].path: Invalid value: "": spec.storagePools[0].path in body should be at least 1 ` +
				`chars long, spec.storagePools[0].path: Invalid value: "": the path has to be absolute: begin with /]`,
		},
		"long path": {
			pool(func(p *v1beta1.StoragePool) { p.Path = "/" + strings.Repeat("a", 1024) }),
			`[spec.storagePools[0].path: Too long: may not be more than 1024 bytes` + unchecked,
		},
		"name": {
			pool(func(p *v1beta1.StoragePool) { p.Name = "My Pool" }),
			`spec.storagePools[0].name: Invalid value: "My Pool": spec.storagePools[0].name in body should match ` +
				`'^[a-z0-9]([-a-z0-9]*[a-z0-9])?$'`,
		},
		"long name": {
			pool(func(p *v1beta1.StoragePool) { p.Name = strings.Repeat("a", 64) }),
			`[spec.storagePools[0].name: Too long: may not be more than 63 bytes` + unchecked,
		},
		"scope": {
			pool(func(p *v1beta1.StoragePool) { p.Scope = "rack" }),
			`[spec.storagePools[0].scope: Unsupported value: "rack": supported values: "node", "shared"` + unchecked,
		},
		"quota": {
			pool(func(p *v1beta1.StoragePool) { p.Quota = "maybe" }),
			`[spec.storagePools[0].quota: Unsupported value: "maybe": supported values: "auto", "required", "none"` +
				unchecked,
		},
		"overcommit": {
			pool(func(p *v1beta1.StoragePool) { p.Overcommit = new(1001.0) }),
			`spec.storagePools[0].overcommit: Invalid value: 1001: spec.storagePools[0].overcommit in body should be ` +
				`less than or equal to 1000`,
		},
		"volumes": {
			pool(func(p *v1beta1.StoragePool) { p.MaxVolumes = -1 }),
			`spec.storagePools[0].maxVolumes: Invalid value: -1: spec.storagePools[0].maxVolumes in body should be ` +
				`greater than or equal to 0`,
		},
		"same name twice": {
			func(s *spec) { s.StoragePools = append(s.StoragePools, v1beta1.StoragePool{Name: "local", Path: "/b"}) },
			`spec.storagePools[1]: Duplicate value: {"name":"local"}`,
		},
		"too many pools": { // the webhook has this limit too
			func(s *spec) {
				for i := range 64 {
					s.StoragePools = append(s.StoragePools, v1beta1.StoragePool{
						Name: fmt.Sprint("p", i), Path: fmt.Sprint("/data/p", i),
					})
				}
			},
			`[spec.storagePools: Too many: 65: must have at most 64 items` + unchecked,
		},
		"relative, legacy": {
			func(s *spec) { s.StoragePools, s.PathConfig = nil, &v1beta1.PathConfig{Path: "hpvolumes"} },
			`spec.pathConfig.path: Invalid value: "hpvolumes": the path has to be absolute: begin with /`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			resource := valid()
			test.change(&resource.Spec)
			refused(
				t, s, resource,
				`HostPathProvisioner.hostpathprovisioner.kubevirt.io "hostpath-provisioner" is invalid: `+test.want,
			)
		})
	}
	t.Run("misspelt field", func(t *testing.T) {
		resource := helmcli.Raw(t, strings.ReplaceAll(harness.Seed(t, "pool-cr.yaml"), "workload", "workloads"))[0]
		refused(t, s, resource,
			`HostPathProvisioner in version "v1beta1" cannot be handled as a HostPathProvisioner: strict decoding `+
				`error: unknown field "spec.workloads"`)
	})
	// What other schemas would refuse and this one must not: it is what pods know, verbatim.
	t.Run("workload is verbatim", func(t *testing.T) {
		resource := valid()
		resource.Spec.Workload.Tolerations = []corev1.Toleration{{
			Key: "a", Operator: corev1.TolerationOpExists, TolerationSeconds: new(int64(5)),
			Effect: corev1.TaintEffectNoExecute,
		}}
		if err := s.Client.Create(t.Context(), resource, client.DryRunAll); err != nil {
			t.Error(err)
		}
	})
}

func refused(t *testing.T, s *harness.Server, object client.Object, want string) {
	t.Helper()
	err := s.Client.Create(t.Context(), object, client.DryRunAll, client.FieldValidation(metav1.FieldValidationStrict))
	if err == nil {
		t.Fatalf("accepted, want\n%s", want)
	}
	if err.Error() != want {
		t.Errorf("refused with\n%s\nwant\n%s", err, want)
	}
}
