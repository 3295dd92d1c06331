package certificates

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/hostpath-provisioner/hostpath-provisioner/tests/api/harness"
	"github.com/hostpath-provisioner/hostpath-provisioner/tests/chart/helmcli"
)

// certManager: with an issuer of the chart's own, self-signed.
func certManager(t *testing.T, w *world) {
	w.startCertManager(t)
	w.install(t, "cert-manager", helmcli.Values{})
	w.Ready(t)
	w.answers(t)
	// Another certificate, as when the first runs out. The Certificate goes too: cert-manager 1.11 can issue a second
	// time at once, because it looks in stale caches, and then waits for ever if the Secret goes meanwhile.
	before := harness.Get(t, w.Server, secret())
	w.Delete(t, object("Certificate", secretName, nil))
	w.Delete(t, secret())
	w.Upgrade(t, helmcli.Values{Set: map[string]string{"operator.webhook.certificates": "cert-manager"}})
	renewed := harness.Until(t, w.Server, "another certificate", secret(), func(s *corev1.Secret) error {
		if len(s.Data["tls.crt"]) == 0 || string(s.Data["tls.crt"]) == string(before.Data["tls.crt"]) {
			return fmt.Errorf("it is the old one, or none")
		}
		return nil
	})
	w.servesPEM(t, renewed.Data["tls.crt"])
	w.Ready(t)
	w.answers(t)
}

// certManagerIssuer: with an issuer that is there, whose authority signs more than this.
func certManagerIssuer(t *testing.T, w *world) {
	w.startCertManager(t)
	w.Create(t,
		object("Issuer", "root", map[string]any{"selfSigned": map[string]any{}}),
		object("Certificate", "company", map[string]any{
			"isCA": true, "commonName": "company", "secretName": "company", "issuerRef": map[string]any{"name": "root"},
		}),
		object("Issuer", "company", map[string]any{"ca": map[string]any{"secretName": "company"}}),
	)
	w.install(t, "cert-manager", helmcli.Values{JSON: map[string]string{
		"operator.webhook.certManager.issuerRef": `{"name":"company","kind":"Issuer","group":"cert-manager.io"}`,
	}})
	w.Ready(t)
	w.answers(t)
	company := harness.Get(t, w.Server, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: harness.Namespace, Name: "company"},
	})
	got := harness.Get(t, w.Server, configuration()).Webhooks[0].ClientConfig.CABundle
	if string(got) != string(company.Data["tls.crt"]) {
		t.Errorf("the caBundle is not the company's authority:\n%s", got)
	}
}

func object(kind, name string, spec map[string]any) *unstructured.Unstructured {
	o := &unstructured.Unstructured{
		Object: map[string]any{"apiVersion": "cert-manager.io/v1", "kind": kind, "spec": spec},
	}
	o.SetNamespace(harness.Namespace)
	o.SetName(name)
	return o
}

// startCertManager runs the controller and the CA injector until the test ends. Their webhook
// only checks what users write.
func (w *world) startCertManager(t *testing.T) {
	t.Helper()
	w.Kinds(t, certManagerKinds(t)...)
	folder := helmcli.CertManager(t)
	controller := w.Run(t, filepath.Join(folder, "controller"), nil, "--kubeconfig="+w.Server.Kubeconfig,
		"--leader-elect=false",
		"--cluster-resource-namespace="+harness.Namespace,
		"--metrics-listen-address=127.0.0.1:"+strconv.Itoa(harness.FreePort(t)))
	injector := w.Run(
		t, filepath.Join(folder, "cainjector"), nil, "--kubeconfig="+w.Server.Kubeconfig, "--leader-elect=false",
	)
	harness.Eventually(t, "cert-manager runs", func(context.Context) error {
		if err := controller.Running(); err != nil {
			return err
		}
		return injector.Running()
	})
}

// certManagerKinds are cert-manager's definitions, without the labels, which hold what its own chart would fill in.
func certManagerKinds(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob(
		filepath.Join(helmcli.Download(t, "github.com/cert-manager/cert-manager@v1.11.5"), "deploy", "crds",
			"crd-*.yaml"),
	)
	if err != nil || len(files) < 6 {
		t.Fatalf("cert-manager's definitions: %v (%v)", files, err)
	}
	folder := t.TempDir()
	var clean []string
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var definition unstructured.Unstructured
		if err := yaml.Unmarshal(data, &definition.Object); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		definition.SetLabels(nil)
		if data, err = yaml.Marshal(definition.Object); err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(folder, filepath.Base(file))
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		clean = append(clean, path)
	}
	return clean
}
