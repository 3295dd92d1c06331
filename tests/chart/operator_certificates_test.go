package chart

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/hostpath-provisioner/hostpath-provisioner/tests/chart/helmcli"
	"github.com/hostpath-provisioner/hostpath-provisioner/tests/chart/helmsdk"
)

// TestCertificateModes: who writes the Secret, who writes the caBundle, and which Secret the operator is told to read.
func TestCertificateModes(t *testing.T) {
	t.Parallel()
	const certificate, own = operator + "-certificate", operator + "-tls"
	type facts struct {
		Secret           string
		Webhook, Service map[string]string // annotations
		Foreign          []string          // objects of cert-manager
		Empty            []string          // Secrets that Helm makes for the operator to fill
	}
	for mode, want := range map[string]facts{
		"self-managed": {Secret: own, Empty: []string{own}},
		"cert-manager": {
			Secret: certificate, Webhook: map[string]string{"cert-manager.io/inject-ca-from": "storage/" + certificate},
			Foreign: []string{"Certificate storage/" + certificate, "Issuer storage/" + operator + "-issuer"},
		},
		"openshift": {
			Secret: certificate, Webhook: map[string]string{"service.beta.openshift.io/inject-cabundle": "true"},
			Service: map[string]string{"service.beta.openshift.io/serving-cert-secret-name": certificate},
		},
		"existingSecret": {Secret: "mine"},
	} {
		set := map[string]string{"operator.webhook.certificates": mode}
		if mode == "existingSecret" {
			set["operator.webhook.existingSecret"] = "mine"
		}
		objects := helmcli.Objects(t, helmsdk.Newest().MustTemplate(t, withOperator(helmcli.Values{}, set)))
		got := facts{
			Webhook: helmcli.Find[*admissionv1.ValidatingWebhookConfiguration](t, objects, operator).Annotations,
			Service: helmcli.Find[*corev1.Service](t, objects, operator).Annotations,
		}
		for i, id := range helmcli.Ids(objects) {
			if slices.Contains([]string{"Certificate storage/" + certificate, "Issuer storage/" + operator + "-issuer"},
				id) {
				got.Foreign = append(got.Foreign, id)
			}
			if strings.HasPrefix(id, "Secret storage/"+operator) {
				got.Empty = append(got.Empty, objects[i].GetName())
				withoutData(t, objects[i])
			}
		}
		slices.Sort(got.Foreign)
		args := container(t, helmcli.Find[*appsv1.Deployment](t, objects, operator).Spec.Template.Spec, "operator").Args
		if !slices.Contains(args, "--certificates="+mode) {
			t.Errorf("%s: not among %v", mode, args)
		}
		if slices.Contains(args, "--certificate-secret="+want.Secret) {
			got.Secret = want.Secret
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: certificate (-want +got):\n%s", mode, diff)
		}
	}
}

// TestCertificateOfCertManager: for the Service's names, from the issuer that was asked for.
func TestCertificateOfCertManager(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		json   map[string]string
		issuer map[string]any
	}{
		"own issuer": {
			issuer: map[string]any{"name": operator + "-issuer", "kind": "Issuer", "group": "cert-manager.io"},
		},
		"given issuer": {
			json:   set("operator.webhook.certManager.issuerRef", `{"name":"ours","kind":"ClusterIssuer"}`),
			issuer: map[string]any{"name": "ours", "kind": "ClusterIssuer"},
		},
	} {
		values := withOperator(helmcli.Values{JSON: test.json}, map[string]string{
			"operator.webhook.certificates": "cert-manager",
		})
		objects := helmcli.Objects(t, helmsdk.Newest().MustTemplate(t, values))
		got := helmcli.Find[*unstructured.Unstructured](t, objects, operator+"-certificate").Object["spec"]
		want := map[string]any{
			"secretName": operator + "-certificate", "commonName": operator,
			"dnsNames":   []any{operator + ".storage.svc", operator + ".storage.svc.cluster.local"},
			"usages":     []any{"digital signature", "server auth"},
			"privateKey": map[string]any{"algorithm": "ECDSA", "size": int64(256), "rotationPolicy": "Always"},
			"issuerRef":  test.issuer,
		}
		if diff := cmp.Diff(any(want), got); diff != "" {
			t.Errorf("%s: Certificate (-want +got):\n%s", name, diff)
		}
		ids := helmcli.Ids(objects)
		if own := slices.Contains(ids, "Issuer storage/"+operator+"-issuer"); own != (test.json == nil) {
			t.Errorf("%s: an issuer of the chart's own: %v, among %v", name, own, ids)
		}
	}
}

// TestImpossibleOperatorsAreRefused: one sentence each, from templates/_problems.tpl.
func TestImpossibleOperatorsAreRefused(t *testing.T) {
	t.Parallel()
	on := func(pairs ...string) map[string]string {
		all := map[string]string{"operator.enabled": "true"}
		for i := 0; i < len(pairs); i += 2 {
			all[pairs[i]] = pairs[i+1]
		}
		return all
	}
	helmsdk.Each(t, func(t *testing.T, helm helmsdk.Helm) {
		expectRefusals(t, helm, map[string]refusal{
			"existing secret without a name": {
				set: on("operator.webhook.certificates", "existingSecret"),
				want: []string{
					`- operator.webhook.certificates is existingSecret, and operator.webhook.existingSecret is ` +
						`empty; name a Secret of the namespace with tls.crt, tls.key and ca.crt.`,
				},
			},
			"a name without existing secret": {set: on("operator.webhook.existingSecret", "mine"), want: []string{
				`- operator.webhook.existingSecret is "mine", and operator.webhook.certificates is self-managed; set ` +
					`that to existingSecret, or remove the name.`,
			}},
			"an issuer without cert-manager": {
				set: on("operator.webhook.certManager.issuerRef.name", "ours"),
				want: []string{
					`- operator.webhook.certManager.issuerRef is set, and operator.webhook.certificates is ` +
						`self-managed; set that to cert-manager, or remove the issuer.`,
				},
			},
			"an issuer without a name": {
				set: on("operator.webhook.certificates", "cert-manager", "operator.webhook.certManager.issuerRef.kind",
					"Issuer"),
				want: []string{
					`- operator.webhook.certManager.issuerRef: its name is missing; give name, kind (Issuer or ` +
						`ClusterIssuer) and, for an issuer outside cert-manager, group.`,
				},
			},
			"an issuer with a typo": {
				set: on("operator.webhook.certificates", "cert-manager", "operator.webhook.certManager.issuerRef.name",
					"ours",
					"operator.webhook.certManager.issuerRef.knd", "Issuer"), want: []string{
					`- operator.webhook.certManager.issuerRef: unknown key "knd"; it knows name, kind and group.`,
				},
			},
			"OpenShift's certificates elsewhere": {
				set: on("operator.webhook.certificates", "openshift", "openshift", "false"),
				want: []string{
					`- operator.webhook.certificates is openshift, and openshift is false: only OpenShift's service ` +
						`CA writes that certificate; use self-managed or cert-manager.`,
				},
			},
			"one port twice": {set: on("operator.metricsPort", "9443", "operator.healthPort", "9443"), want: []string{
				`- operator.healthPort and operator.metricsPort are both 9443; give each its own port.`,
				`- operator.metricsPort and operator.webhook.port are both 9443; give each its own port.`,
			}},
			"the Service's port twice": {set: on("operator.metricsPort", "443"), want: []string{
				`- operator.metricsPort: 443 is the webhook's port in the same Service; choose another.`,
			}},
			"two monitors": {
				set: on("monitoring.podMonitor.enabled", "true", "monitoring.serviceMonitor.enabled", "true"),
				want: []string{
					`- monitoring: podMonitor and serviceMonitor would scrape every pod twice; enable one.`,
				},
			},
		})
	})
}

// TestClassesMayWaitForTheirPool: with an operator the pools are those of a HostPathProvisioner.
func TestClassesMayWaitForTheirPool(t *testing.T) {
	t.Parallel()
	helmsdk.Newest().MustTemplate(t, withOperator(helmcli.Values{JSON: map[string]string{
		"storageClasses": `[{"name":"a","storagePool":"later"},{"name":"b"}]`,
	}}, nil))
}
