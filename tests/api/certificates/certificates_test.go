// Package certificates tests where the webhook's certificate comes from: each of the four modes, until the API server
// has called the webhook. cert-manager is the real one; of OpenShift's service CA only what it would write is played.
package certificates

import (
	"context"
	"crypto/tls"
	"encoding/pem"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/names"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/v1beta1"
	"github.com/hostpath-provisioner/hostpath-provisioner/tests/api/harness"
	"github.com/hostpath-provisioner/hostpath-provisioner/tests/chart/helmcli"
)

const (
	secretName = harness.OperatorName + "-certificate"
	ownName    = harness.OperatorName + "-tls"
	host       = harness.OperatorName + "." + harness.Namespace + ".svc"
)

// world is one control plane; the modes follow one another on it.
type world struct {
	*harness.Server
	binary string
	*harness.Operator
}

func TestCertificates(t *testing.T) {
	s := harness.Start(t)
	w := &world{Server: s, binary: s.Build(t, "./src/operator")}
	for _, test := range []struct {
		name string
		do   func(*testing.T, *world)
	}{
		{"self-managed", selfManaged},
		{"beside an older leader", besideAnOlderLeader},
		{"existing secret", existingSecret},
		{"openshift", openshift},
		{"cert-manager", certManager},
		{"cert-manager with an issuer", certManagerIssuer},
	} {
		t.Run(test.name, func(t *testing.T) { test.do(t, w) })
	}
}

// install installs the operator in a mode, for the length of a test.
func (w *world) install(t *testing.T, mode string, more helmcli.Values) {
	t.Helper()
	if more.Set == nil {
		more.Set = map[string]string{}
	}
	more.Set["operator.webhook.certificates"] = mode
	w.Operator = w.InstallOperator(t, w.binary, more)
	t.Cleanup(func() {
		w.Stop(t)
		w.Uninstall(t)
		_ = w.Client.Delete(context.WithoutCancel(t.Context()), secret()) // not every mode has it
	})
}

// secret is that of cert-manager or of OpenShift.
func secret() *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: harness.Namespace, Name: secretName}}
}

// own is the Secret that Helm makes without data, and the operator fills.
func own() *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: harness.Namespace, Name: ownName}}
}

// selfManaged: nobody does anything, also not when the certificate is lost, and an upgrade keeps it. A Secret that
// somebody has deleted comes back with an upgrade: the operator may not make one.
func selfManaged(t *testing.T, w *world) {
	values := helmcli.Values{Set: map[string]string{"operator.webhook.certificates": "self-managed"}}
	w.install(t, "self-managed", helmcli.Values{})
	w.Ready(t)
	w.answers(t)
	first := harness.Get(t, w.Server, own())
	values.Set["commonLabels.upgraded"] = "once"
	w.Upgrade(t, values)
	kept := harness.Get(t, w.Server, own())
	if !reflect.DeepEqual(kept.Data, first.Data) || kept.Labels["upgraded"] != "once" {
		t.Errorf("an upgrade has changed the certificate, or nothing at all: labels %v", kept.Labels)
	}
	w.renewed(t, func() {
		harness.Change(t, w.Server, own(), func(s *corev1.Secret) { s.Data = nil })
	})
	w.renewed(t, func() {
		w.Delete(t, own())
		w.Upgrade(t, values)
	})
	// A caBundle that somebody spoils is mended.
	w.inject(t, []byte(authority(t, "another").certificate))
	harness.Until(t, w.Server, "the caBundle", configuration(),
		func(c *admissionregistrationv1.ValidatingWebhookConfiguration) error {
			got, want := c.Webhooks[0].ClientConfig.CABundle, harness.Get(t, w.Server, own()).Data["ca.crt"]
			if string(got) != string(want) {
				return fmt.Errorf("it is\n%s\nwant\n%s", got, want)
			}
			return nil
		})
	w.answers(t)
}

// besideAnOlderLeader: an upgrade starts a new operator while the old one leads, which does not know the Secret, and
// ends only when the new one is ready.
func besideAnOlderLeader(t *testing.T, w *world) {
	lease := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: harness.Namespace, Name: "hostpath-provisioner-operator"},
	}
	if err := w.Client.Delete(t.Context(), lease.DeepCopy()); client.IgnoreNotFound(err) != nil {
		t.Fatal(err)
	}
	lease.Spec = coordinationv1.LeaseSpec{
		HolderIdentity: new("older"), LeaseDurationSeconds: new(int32(3600)),
		RenewTime: &metav1.MicroTime{Time: time.Now()},
	}
	w.Create(t, lease)
	t.Cleanup(func() { _ = w.Client.Delete(context.WithoutCancel(t.Context()), lease) })
	w.install(t, "self-managed", helmcli.Values{})
	w.Ready(t)
	w.answers(t)
	if holder := harness.Get(t, w.Server, lease).Spec.HolderIdentity; *holder != "older" {
		t.Errorf("%s leads", *holder)
	}
}

// renewed wants another certificate to be made and served after the own one is lost.
func (w *world) renewed(t *testing.T, lose func()) {
	t.Helper()
	lost := harness.Get(t, w.Server, own())
	lose()
	made := harness.Until(t, w.Server, "another certificate", own(), func(s *corev1.Secret) error {
		if len(s.Data["tls.crt"]) == 0 || string(s.Data["tls.crt"]) == string(lost.Data["tls.crt"]) {
			return fmt.Errorf("it is the lost one, or none")
		}
		return nil
	})
	w.servesPEM(t, made.Data["tls.crt"])
	w.Ready(t)
	w.answers(t)
}

// existingSecret: the administrator makes and renews it, under a name of his own.
func existingSecret(t *testing.T, w *world) {
	w.install(t, "existingSecret", helmcli.Values{Set: map[string]string{"operator.webhook.existingSecret": "mine"}})
	w.unready(t, `no certificate to serve from the Secret storage/mine: it is not there`)
	mine := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: harness.Namespace, Name: "mine"}, Type: corev1.SecretTypeTLS,
	}
	mine.Data = authority(t, "first").secret(t)
	w.Create(t, mine)
	defer w.Delete(t, mine)
	w.Ready(t)
	w.answers(t)
	renewed := authority(t, "second").secret(t)
	harness.Change(t, w.Server, mine, func(s *corev1.Secret) { s.Data = renewed })
	w.servesPEM(t, renewed["tls.crt"])
	w.Ready(t)
	w.answers(t)
}

// openshift: the service CA reads the annotations of Service and webhook configuration, and writes Secret and caBundle.
func openshift(t *testing.T, w *world) {
	w.install(t, "openshift", helmcli.Values{})
	service := harness.Get(t, w.Server, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: harness.Namespace, Name: harness.OperatorName},
	})
	if got := service.Annotations["service.beta.openshift.io/serving-cert-secret-name"]; got != secretName {
		t.Errorf("the Service asks for the Secret %q, want %q", got, secretName)
	}
	annotations := harness.Get(t, w.Server, configuration()).Annotations
	if got := annotations["service.beta.openshift.io/inject-cabundle"]; got != "true" {
		t.Errorf("the webhook configuration asks for no caBundle: %q", got)
	}
	w.unready(t, `no certificate to serve from the Secret storage/`+secretName+`: it is not there`)
	ca := authority(t, "service CA")
	made := secret()
	made.Type, made.Data = corev1.SecretTypeTLS, ca.secret(t)
	delete(made.Data, "ca.crt") // it has none there
	w.Create(t, made)
	w.unready(t, `has no caBundle yet`)
	w.inject(t, []byte(authority(t, "another").certificate))
	w.unready(t, `does not verify the certificate that is served`)
	w.inject(t, []byte(ca.certificate))
	w.Ready(t)
	w.answers(t)
	// An upgrade of the release does not take the caBundle away.
	w.Upgrade(t, helmcli.Values{Set: map[string]string{"operator.webhook.certificates": "openshift"}})
	w.Ready(t)
	w.answers(t)
}

func configuration() *admissionregistrationv1.ValidatingWebhookConfiguration {
	return &admissionregistrationv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: harness.OperatorName},
	}
}

func (w *world) inject(t *testing.T, bundle []byte) {
	t.Helper()
	harness.Change(t, w.Server, configuration(), func(c *admissionregistrationv1.ValidatingWebhookConfiguration) {
		c.Webhooks[0].ClientConfig.CABundle = bundle
	})
}

// answers wants the API server to have asked the webhook, over its Service and with its caBundle.
func (w *world) answers(t *testing.T) {
	t.Helper()
	wrong := &v1beta1.HostPathProvisioner{
		ObjectMeta: metav1.ObjectMeta{Name: names.CustomResource},
		Spec:       v1beta1.HostPathProvisionerSpec{StoragePools: []v1beta1.StoragePool{{Name: "local", Path: "/etc"}}},
	}
	harness.Eventually(t, "the webhook answers", func(ctx context.Context) error {
		err := w.Client.Create(ctx, wrong.DeepCopy(), client.DryRunAll)
		if err == nil ||
			!strings.Contains(err.Error(),
				`admission webhook "validate.hostpathprovisioner.kubevirt.io" denied the request: `) {
			return fmt.Errorf("create says %w", err)
		}
		return nil
	})
}

// unready waits until /readyz fails and says why in these words.
func (w *world) unready(t *testing.T, words string) {
	t.Helper()
	harness.Eventually(t, "the operator is not ready", func(ctx context.Context) error {
		if err := w.Running(); err != nil {
			return err
		}
		if err := w.Readyz(ctx); err == nil {
			return fmt.Errorf("it is ready")
		}
		// /readyz keeps reasons to itself; the log has them.
		if !strings.Contains(w.Log(), strings.ReplaceAll(words, `"`, `\"`)) {
			return fmt.Errorf("its log does not say %q", words)
		}
		return nil
	})
}

// servesPEM waits until both servers show a certificate.
func (w *world) servesPEM(t *testing.T, certificate []byte) {
	t.Helper()
	block, _ := pem.Decode(certificate)
	for _, address := range []string{w.Webhook, w.Metrics} {
		harness.Eventually(t, address+" serves the new certificate", func(ctx context.Context) error {
			dialer := &tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true}}
			connection, err := dialer.DialContext(ctx, "tcp", address)
			if err != nil {
				return err
			}
			defer connection.Close()
			shown := connection.(*tls.Conn).ConnectionState().PeerCertificates[0]
			if string(shown.Raw) != string(block.Bytes) {
				return fmt.Errorf("it shows the one of %s", shown.NotBefore)
			}
			return nil
		})
	}
}
