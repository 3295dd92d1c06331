package operator

import (
	"testing"

	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/v1beta1"
)

// refusals sends to the real API server what its schema lets pass and the webhook refuses, and compares whole messages:
// it is all that a user gets to see. What the schema refuses is in tests/api/crd.
func refusals(t *testing.T, w *world) {
	const at = "spec.storagePools[0]."
	const system = "/etc, a directory of the system: want one that belongs to the pool alone, " +
		"such as /var/lib/hostpath-provisioner"
	pool := func(change func(*v1beta1.StoragePool)) *v1beta1.HostPathProvisioner {
		resource := withPools("local", "/srv/a")
		change(&resource.Spec.StoragePools[0])
		return resource
	}
	legacy := named()
	legacy.Spec.PathConfig = &v1beta1.PathConfig{Path: "/etc"}
	for name, test := range map[string]struct {
		resource *v1beta1.HostPathProvisioner
		want     string
	}{
		"system directory": {
			withPools("local", "/etc/hpp"), at + `path: Invalid value: "/etc/hpp": it is or lies in ` + system,
		},
		"system directory, legacy": {
			legacy, `spec.pathConfig.path: Invalid value: "/etc": it is or lies in ` + system,
		},
		"not clean": {
			withPools("local", "/srv/../srv/a"),
			at + `path: Invalid value: "/srv/../srv/a": it is not clean: write "/srv/a"`,
		},
		"control character": {
			withPools("local", "/srv/\ta"),
			at + `path: Invalid value: "/srv/\ta": want a path without control characters`,
		},
		"one in another": {
			withPools("a", "/srv/a", "b", "/srv/a/b"),
			at + `path: Invalid value: "/srv/a": it and "/srv/a/b" of the pool "b" lie in one another: ` +
				"want separate directories\n" +
				`spec.storagePools[1].path: Invalid value: "/srv/a/b": it and "/srv/a" of the pool "a" lie in one ` +
				`another: want separate directories`,
		},
		"two at one path": {
			withPools("a", "/srv/a", "b", "/srv/a"),
			at + `path: Invalid value: "/srv/a": it and "/srv/a" of the pool "b" lie in one another: ` +
				"want separate directories\n" +
				`spec.storagePools[1].path: Invalid value: "/srv/a": it and "/srv/a" of the pool "a" lie in one ` +
				`another: want separate directories`,
		},
		"reserve that is no amount": {
			pool(func(p *v1beta1.StoragePool) { p.Reserve = new(intstr.FromString("lots")) }),
			at + `reserve: Invalid value: "lots": want a whole number of bytes such as "4096" or "10Gi", ` +
				`or a percentage such as "5%"`,
		},
		"reserve below nothing": {
			pool(func(p *v1beta1.StoragePool) { p.Reserve = new(intstr.FromInt32(-1)) }),
			at + `reserve: Invalid value: "-1": want 0 bytes or more`,
		},
		"reserve of everything": {
			pool(func(p *v1beta1.StoragePool) { p.Reserve = new(intstr.FromString("100%")) }),
			at + `reserve: Invalid value: "100%": want 0% or more and less than 100%`,
		},
		"retention that is no duration": {
			pool(func(p *v1beta1.StoragePool) { p.Trash = &v1beta1.Trash{Retention: "1 day"} }),
			at + `trash.retention: Invalid value: "1 day": want a duration: a number with a unit of s, m or h, ` +
				`such as "36h" or "0s"`,
		},
		"retention below nothing": {
			pool(func(p *v1beta1.StoragePool) { p.Trash = &v1beta1.Trash{Retention: "-1h", PurgeWhenFull: true} }),
			at + `trash.retention: Invalid value: "-1h0m0s": want 0s (purge at once) to 999999h`,
		},
		"node label": {
			pool(func(p *v1beta1.StoragePool) { p.NodeSelector = map[string]string{"": "x"} }),
			at + `nodeSelector: Invalid value: "": want a label key: name part must be non-empty` + "\n" +
				at + `nodeSelector: Invalid value: "": want a label key: name part must consist of alphanumeric ` +
				`characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  ` +
				`or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')`,
		},
		"several at once": {
			pool(func(p *v1beta1.StoragePool) {
				p.Path, p.Reserve = "/srv/./a/", new(intstr.FromString("100%"))
			}),
			at + `path: Invalid value: "/srv/./a": it is not clean: write "/srv/a"` + "\n" +
				at + `reserve: Invalid value: "100%": want 0% or more and less than 100%`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			refused(t, w.Client.Create(t.Context(), test.resource, client.DryRunAll), denied+test.want)
		})
	}
}
