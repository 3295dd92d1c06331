package chart

import (
	"crypto/tls"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hostpath-provisioner/hostpath-provisioner/tests/chart/helmcli"
	"github.com/hostpath-provisioner/hostpath-provisioner/tests/chart/helmsdk"
	"github.com/hostpath-provisioner/hostpath-provisioner/tests/internal/process"
)

// TestControllerCertificates: who writes the Secret, whom the nodes trust, and what the controller may write: what Helm
// has made for it, and nothing else.
func TestControllerCertificates(t *testing.T) {
	t.Parallel()
	const certificate, own, ca = controller + "-certificate", controller + "-tls", controller + "-authorities"
	type facts struct {
		Secret, CA             string
		Service, ConfigMap     map[string]string // annotations
		Foreign                []string          // objects of cert-manager
		Empty                  []string          // objects that Helm makes for the controller to fill
		WritesSecret, WritesCA bool
	}
	for mode, want := range map[string]facts{
		"self-managed": {Secret: own, CA: ca, Empty: []string{own, ca}, WritesSecret: true, WritesCA: true},
		"cert-manager": {
			Secret: certificate, CA: ca, Empty: []string{ca}, WritesCA: true,
			Foreign: []string{"Certificate storage/" + certificate, "Issuer storage/" + controller + "-issuer"},
		},
		"openshift": {
			Secret: certificate, CA: controller + "-service-ca",
			Service:   map[string]string{"service.beta.openshift.io/serving-cert-secret-name": certificate},
			ConfigMap: map[string]string{"service.beta.openshift.io/inject-cabundle": "true"},
		},
		"existingSecret": {Secret: "mine", CA: ca, Empty: []string{ca}, WritesCA: true},
	} {
		values := helmcli.Values{Set: map[string]string{"controller.certificates": mode}}
		if mode == "existingSecret" {
			values.Set["controller.existingSecret"] = "mine"
		}
		objects := helmcli.Objects(t, helmsdk.Newest().MustTemplate(t, values))
		spec := helmcli.Find[*appsv1.Deployment](t, objects, controller).Spec.Template.Spec
		rules := helmcli.Find[*rbacv1.Role](t, objects, controller).Rules
		got := facts{
			Service:      helmcli.Find[*corev1.Service](t, objects, controller).Annotations,
			WritesSecret: allowed(rules, right{"", "secrets", own, "patch"}),
			WritesCA:     allowed(rules, right{"", "configmaps", ca, "patch"}),
		}
		args := container(t, spec, "controller").Args
		if !slices.Contains(args, "--certificates="+mode) {
			t.Errorf("%s: not among %v", mode, args)
		}
		for _, arg := range args {
			name, found := strings.CutPrefix(arg, "--certificate-secret=")
			if found && allowed(rules, right{"", "secrets", name, "get"}) {
				got.Secret = name
			}
		}
		nodes := container(t, daemonSet(t, values).Spec.Template.Spec, "driver").Args
		for _, name := range []string{ca, controller + "-service-ca"} {
			flag := "--controller-ca=" + name
			if slices.Contains(nodes, flag) && slices.Contains(args, flag) && allowed(
				helmcli.Find[*rbacv1.Role](t, objects, "hpp-hostpath-provisioner-csi-driver").Rules,
				right{"", "configmaps", name, "get"}) {
				got.CA = name
			}
		}
		for i, id := range helmcli.Ids(objects) {
			switch kind, _, _ := strings.Cut(id, " "); {
			case kind == "Certificate" || kind == "Issuer":
				got.Foreign = append(got.Foreign, id)
			case kind == "ConfigMap" && objects[i].GetName() == controller+"-service-ca":
				got.ConfigMap = objects[i].GetAnnotations()
			case (kind == "ConfigMap" || kind == "Secret") && strings.HasPrefix(objects[i].GetName(), controller):
				got.Empty = append(got.Empty, objects[i].GetName())
				withoutData(t, objects[i])
			}
		}
		for _, resource := range []string{"secrets", "configmaps"} {
			if allowed(rules, right{"", resource, "", "create"}) {
				t.Errorf("%s: the controller may create %s", mode, resource)
			}
		}
		slices.Sort(got.Foreign)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", mode, diff)
		}
	}
}

// withoutData wants an object without data: then neither Helm nor kubectl takes away what somebody has written into it.
func withoutData(t *testing.T, object client.Object) {
	t.Helper()
	var data int
	switch o := object.(type) {
	case *corev1.Secret:
		data = len(o.Data) + len(o.StringData)
	case *corev1.ConfigMap:
		data = len(o.Data) + len(o.BinaryData)
	}
	if data > 0 {
		t.Errorf("%s is not empty: %+v", object.GetName(), object)
	}
}

// TestTheOperatorsRenderingLeavesOutWhatIsFilled: it takes back what it did not write. Helm makes these objects.
func TestTheOperatorsRenderingLeavesOutWhatIsFilled(t *testing.T) {
	t.Parallel()
	filled := []string{
		"Secret storage/" + controller + "-tls", "ConfigMap storage/" + controller + "-authorities",
		"ConfigMap storage/hpp-hostpath-provisioner-shared-pool-ids",
		"ConfigMap storage/hpp-hostpath-provisioner-moves",
	}
	of := func(values helmcli.Values) (found []string) {
		for _, id := range helmcli.Ids(helmcli.Objects(t, helmsdk.Newest().MustTemplate(t, values))) {
			if slices.Contains(filled, id) {
				found = append(found, id)
			}
		}
		return found
	}
	if got := of(withOperator(helmcli.Values{}, nil)); len(got) != len(filled) {
		t.Errorf("beside the operator Helm makes %v, want %v", got, filled)
	}
	if got := of(helmcli.Values{Set: set("mounter.managed", "true")}); len(got) > 0 {
		t.Errorf("the operator would apply %v", got)
	}
}

// TestControllerCertificateOfCertManager: for the name that the nodes dial.
func TestControllerCertificateOfCertManager(t *testing.T) {
	t.Parallel()
	objects := helmcli.Objects(t, helmsdk.Newest().MustTemplate(t, helmcli.Values{
		Set:  map[string]string{"controller.certificates": "cert-manager"},
		JSON: set("controller.certManager.issuerRef", `{"name":"ours","kind":"ClusterIssuer"}`),
	}))
	spec := helmcli.Find[*unstructured.Unstructured](t, objects, controller+"-certificate").Object["spec"]
	got, _ := spec.(map[string]any)
	for key, want := range map[string]any{
		"secretName": controller + "-certificate",
		"dnsNames":   []any{controller + ".storage.svc", controller + ".storage.svc.cluster.local"},
		"issuerRef":  map[string]any{"name": "ours", "kind": "ClusterIssuer"},
	} {
		if diff := cmp.Diff(want, got[key]); diff != "" {
			t.Errorf("%s (-want +got):\n%s", key, diff)
		}
	}
}

// TestImpossibleControllersAreRefused: one sentence each.
func TestImpossibleControllersAreRefused(t *testing.T) {
	t.Parallel()
	helmsdk.Each(t, func(t *testing.T, helm helmsdk.Helm) {
		expectRefusals(t, helm, map[string]refusal{
			"existing secret without a name": {set: set("controller.certificates", "existingSecret"), want: []string{
				`- controller.certificates is existingSecret, and controller.existingSecret is empty; name a Secret ` +
					`of the namespace with tls.crt, tls.key and ca.crt.`,
			}},
			"a name without existing secret": {set: set("controller.existingSecret", "mine"), want: []string{
				`- controller.existingSecret is "mine", and controller.certificates is self-managed; set that to ` +
					`existingSecret, or remove the name.`,
			}},
			"an issuer without cert-manager": {
				set: set("controller.certManager.issuerRef.name", "ours"),
				want: []string{
					`- controller.certManager.issuerRef is set, and controller.certificates is self-managed; set ` +
						`that to cert-manager, or remove the issuer.`,
				},
			},
			"an issuer with a typo": {
				set: map[string]string{
					"controller.certificates": "cert-manager", "controller.certManager.issuerRef.nam": "ours",
				},
				want: []string{
					`- controller.certManager.issuerRef: unknown key "nam"; it knows name, kind and group.`,
				},
			},
			"OpenShift's certificates elsewhere": {
				set: map[string]string{"controller.certificates": "openshift", "openshift": "false"},
				want: []string{
					`- controller.certificates is openshift, and openshift is false: only OpenShift's service CA ` +
						`writes that certificate; use self-managed or cert-manager.`,
				},
			},
			"an unknown mode": {
				set: set("controller.certificates", "acme"), want: []string{"/controller/certificates"},
			},
			"a Service that begins with a digit": {set: set("fullnameOverride", "1st"), want: []string{
				`- the controller's Service would be "1st-controller", and the name of a Service begins with a ` +
					`letter and has no dots; set fullnameOverride.`,
			}},
			"no drain": {
				json: set("controller.podDisruptionBudget.maxUnavailable", "0"), want: []string{"maxUnavailable"},
			},
			"no grace": {
				set: map[string]string{"controller.nodeGrace": "0s", "controller.nodeGoneAfter": "0h"},
				want: []string{
					"- controller.nodeGrace is 0s; it must be more than 0.",
					"- controller.nodeGoneAfter is 0h; it must be more than 0.",
				},
			},
			"grace in days": {set: set("controller.nodeGoneAfter", "1d"), want: []string{"/controller/nodeGoneAfter"}},
		})
	})
}

// TestControllerTakesWhatTheChartWrites starts the built driver with the flags and the configuration of the
// controller's pod.
func TestControllerTakesWhatTheChartWrites(t *testing.T) {
	t.Parallel()
	dir, address := t.TempDir(), freeAddress(t)
	values := renderings()["two pools"]
	values.Set = map[string]string{"driver.metricsTLS.enabled": "true", "driver.metricsTLS.secretName": "mine"}
	objects := helmcli.Objects(t, helmsdk.Newest().MustTemplate(t, values))
	pod := helmcli.Find[*appsv1.Deployment](t, objects, controller).Spec.Template.Spec
	files := map[string]string{
		"config.yaml": helmcli.Find[*corev1.ConfigMap](t, objects, daemonSet(t, values).Name).Data["config.yaml"],
		"kubeconfig": `{"clusters":[{"name":"c","cluster":{"server":"http://127.0.0.1:1"}}],` +
			`"contexts":[{"name":"x","context":{"cluster":"c"}}],"current-context":"x"}`,
	}
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	args := []string{"--kubeconfig=" + filepath.Join(dir, "kubeconfig")}
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: writeCertificate(t, dir)}}}
	instead := map[string]string{
		"--endpoint": "unix://" + filepath.Join(dir, "csi.sock"), "--config": filepath.Join(dir, "config.yaml"),
		"--http-address": address, "--state-dir": filepath.Join(dir, "state"), "--tunnel-address": freeAddress(t),
	}
	for _, argument := range container(t, pod, "controller").Args {
		name, _, _ := strings.Cut(argument, "=")
		if value, found := instead[name]; found {
			argument = name + "=" + value
		}
		args = append(args, argument)
	}
	runUntil(t, client, "https://"+overTLS(t, dir, args)+"/metrics", []string{"go_goroutines"},
		process.Build(t, "./src/controller"), args...)
}
