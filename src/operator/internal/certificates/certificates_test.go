package certificates

import (
	"bytes"
	"context"
	"crypto/tls"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/certificates"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/certificates/certificatestest"
)

const (
	host = "operator.hpp.svc"
	day  = 24 * time.Hour
	year = 365 * day
)

func start() time.Time { return time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC) }

// Three years, in which the authority changes after half a year and the old one ends after two and a half, looked at
// each month: what is served is trusted at every moment, also between two writes.
func TestSelfManagedIsTrustedAtEachStep(t *testing.T) {
	now := start()
	c := newCluster(t, configuration(nil), empty())
	c.putSecret(t, step(t, nil, start().AddDate(-7, -6, 0)))
	w := &writer{options: options(certificates.SelfManaged), reader: c, client: c, now: func() time.Time { return now }}
	k := &Keeper{options: options(certificates.SelfManaged), reader: c, now: func() time.Time { return now }}
	reconciled(t, w)
	written := map[string]bool{}
	c.changed = func() {
		reconciled(t, k)
		if err := k.Ready(nil); err != nil {
			t.Fatalf("at %s: %v", now.Format(time.DateOnly), err)
		}
		written[string(c.secret(t)[corev1.TLSCertKey])] = true
	}
	for now.Before(start().AddDate(3, 0, 0)) {
		result := reconciled(t, w)
		if result.RequeueAfter < day || result.RequeueAfter > year {
			t.Fatalf("comes back after %s", result.RequeueAfter)
		}
		now = now.Add(30 * day)
	}
	if len(written) < 5 {
		t.Errorf("%d certificates in 3 years, want one each eight months", len(written))
	}
	if got := bytes.Count(c.secret(t)[certificates.AuthoritiesKey], []byte("BEGIN CERTIFICATE")); got != 2 {
		t.Errorf("%d authorities are trusted at the end, want the first, which nothing needs any more, and the second",
			got)
	}
}

func TestSelfManagedMendsWhatOthersSpoil(t *testing.T) {
	for name, spoil := range map[string]func(t *testing.T, c *cluster){
		"Secret emptied":   func(t *testing.T, c *cluster) { c.putSecret(t, nil) },
		"caBundle deleted": func(t *testing.T, c *cluster) { c.writeTrust(t, nil) },
		"caBundle of someone else": func(t *testing.T, c *cluster) {
			c.writeTrust(t, step(t, nil, start())[certificates.AuthoritiesKey])
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t, configuration(nil), empty())
			w := &writer{options: options(certificates.SelfManaged), reader: c, client: c, now: start}
			k := &Keeper{options: options(certificates.SelfManaged), reader: c, now: start}
			reconciled(t, w)
			spoil(t, c)
			reconciled(t, w)
			reconciled(t, k)
			if err := k.Ready(nil); err != nil {
				t.Error(err)
			}
		})
	}
}

// A Secret that somebody has deleted is not made again, which would take a right to make any: an upgrade of the release
// does that. What the release said of it stays.
func TestDeletedSecretComesBackWithTheRelease(t *testing.T) {
	c := newCluster(t, configuration(nil), empty())
	w := &writer{options: options(certificates.SelfManaged), reader: c, client: c, now: start}
	k := &Keeper{options: options(certificates.SelfManaged), reader: c, now: start}
	reconciled(t, w)
	c.must(t, c.Delete(t.Context(), empty()))
	if result := reconciled(t, w); result.RequeueAfter != 0 {
		t.Error("waits for a time, not for the Secret")
	}
	reconciled(t, k)
	if err := k.Ready(nil); err == nil || !strings.Contains(err.Error(), "it is not there; the chart makes it") {
		t.Errorf("without its Secret: %v", err)
	}
	c.must(t, c.Create(t.Context(), empty()))
	reconciled(t, w)
	reconciled(t, k)
	if err := k.Ready(nil); err != nil {
		t.Error(err)
	}
	var found corev1.Secret
	c.must(t, c.Get(t.Context(), client.ObjectKeyFromObject(empty()), &found))
	if diff := cmp.Diff(empty().Labels, found.Labels); diff != "" || found.Type != empty().Type {
		t.Errorf("type %s, labels (-want +got):\n%s", found.Type, diff)
	}
}

func TestExistingSecret(t *testing.T) {
	c := newCluster(t, configuration(nil))
	w := &writer{options: options(certificates.ExistingSecret), reader: c, client: c, now: start}
	k := &Keeper{options: options(certificates.ExistingSecret), reader: c, now: start}
	if result := reconciled(t, w); result.RequeueAfter != 0 {
		t.Error("waits for a time, not for the Secret")
	}
	for range 2 { // The second one is another authority's.
		data := step(t, nil, start())
		c.putSecret(t, data)
		reconciled(t, w)
		reconciled(t, k)
		if err := k.Ready(nil); err != nil {
			t.Error(err)
		}
		if diff := cmp.Diff(data, c.secret(t)); diff != "" {
			t.Error("the administrator's Secret was written: " + diff)
		}
	}
	c.putSecret(t, map[string][]byte{certificates.AuthoritiesKey: []byte("no certificate")})
	_, err := w.Reconcile(t.Context(), reconcile.Request{})
	const want = "terminal error: the Secret hpp/operator-certificate: its ca.crt contains no valid certificate: " +
		"it has to be the authority of its tls.crt"
	if err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

func TestTheCaBundleAloneIsWritten(t *testing.T) {
	fail := admissionv1.Fail
	before := configuration(nil)
	before.Annotations = map[string]string{"of": "others"}
	before.Webhooks[0].FailurePolicy = &fail
	c := newCluster(t, before, empty())
	reconciled(t, &writer{options: options(certificates.SelfManaged), reader: c, client: c, now: start})
	after := c.configuration(t)
	bundle := after.Webhooks[0].ClientConfig.CABundle
	if len(bundle) == 0 {
		t.Fatal("no caBundle")
	}
	after.Webhooks[0].ClientConfig.CABundle, after.ResourceVersion = nil, before.ResourceVersion
	if diff := cmp.Diff(before.Webhooks, after.Webhooks); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(before.ObjectMeta, after.ObjectMeta); diff != "" {
		t.Error(diff)
	}
}

func TestReady(t *testing.T) {
	good := step(t, nil, start())
	foreign, own := step(t, nil, start()), certificatestest.SelfSigned(t, host, start())
	elsewhere, _, err := certificates.Issue(nil, "other.hpp.svc", start())
	if err != nil {
		t.Fatal(err)
	}
	const configured = "in the ValidatingWebhookConfiguration operator does not verify the certificate that is served: "
	const fills = "the chart makes it for the operator to fill: upgrade the release to get it back, or see " +
		"the operator's log"
	for name, test := range map[string]struct {
		mode   string
		data   map[string][]byte // nil: no Secret
		bundle []byte
		none   bool // no webhook configuration
		unread bool
		at     time.Time
		want   string // the whole sentence; "" for ready
	}{
		"ready": {mode: certificates.CertManager, data: good, bundle: good[certificates.AuthoritiesKey]},
		"self-signed, as cert-manager's own issuer makes it": {
			mode: certificates.CertManager, data: own, bundle: own[certificates.AuthoritiesKey],
		},
		"nothing read yet": {
			mode: certificates.SelfManaged, unread: true,
			want: "no certificate to serve from the Secret hpp/operator-certificate: it has not been read yet; " +
				fills,
		},
		"no Secret, self-managed": {
			mode: certificates.SelfManaged,
			want: "no certificate to serve from the Secret hpp/operator-certificate: it is not there; " + fills,
		},
		"no Secret, cert-manager": {
			mode: certificates.CertManager,
			want: "no certificate to serve from the Secret hpp/operator-certificate: it is not there; " +
				"cert-manager makes it: see whether it runs, and `kubectl -n hpp describe certificate`",
		},
		"no Secret, OpenShift": {
			mode: certificates.OpenShift,
			want: "no certificate to serve from the Secret hpp/operator-certificate: it is not there; " +
				"OpenShift's service CA makes it for the Service operator: see its annotations and the project " +
				"openshift-service-ca",
		},
		"no Secret, existingSecret": {
			mode: certificates.ExistingSecret,
			want: "no certificate to serve from the Secret hpp/operator-certificate: it is not there; " +
				"it has to be made with tls.crt, tls.key and ca.crt for operator.hpp.svc",
		},
		"a Secret that holds no pair": {
			mode: certificates.ExistingSecret, data: map[string][]byte{
				corev1.TLSCertKey:       good[corev1.TLSCertKey],
				corev1.TLSPrivateKeyKey: foreign[corev1.TLSPrivateKeyKey],
			},
			want: "no certificate to serve from the Secret hpp/operator-certificate: its tls.crt and tls.key are no " +
				"certificate with its key " +
				"(tls: private key does not match public key); it has to be made with tls.crt, tls.key and ca.crt " +
				"for operator.hpp.svc",
		},
		"no configuration": {
			mode: certificates.CertManager, data: good, none: true,
			want: "the ValidatingWebhookConfiguration operator is not there, or names no webhook: upgrade the " +
				"release again to get it back",
		},
		"no caBundle, cert-manager": {
			mode: certificates.CertManager, data: good,
			want: "the webhook validate of the ValidatingWebhookConfiguration operator has no caBundle yet: " +
				"cert-manager's cainjector writes it: see whether it runs",
		},
		"no caBundle, OpenShift": {
			mode: certificates.OpenShift, data: good,
			want: "the webhook validate of the ValidatingWebhookConfiguration operator has no caBundle yet: " +
				"OpenShift's service CA writes it: " +
				"see the project openshift-service-ca",
		},
		"caBundle of another authority": {
			mode: certificates.ExistingSecret, data: good, bundle: foreign[certificates.AuthoritiesKey],
			want: "the caBundle of the webhook validate " + configured + "x509: certificate " +
				"signed by unknown authority",
		},
		"caBundle is no PEM": {
			mode: certificates.SelfManaged, data: good, bundle: []byte("x"),
			want: "the caBundle of the webhook validate " + configured + "it contains no certificate in PEM; " +
				"the operator writes it: see its log",
		},
		"certificate for another name": {
			mode: certificates.SelfManaged, data: elsewhere, bundle: elsewhere[certificates.AuthoritiesKey],
			want: "the caBundle of the webhook validate " + configured +
				"x509: certificate is valid for other.hpp.svc, other.hpp.svc.cluster.local, not operator.hpp.svc; " +
				"the operator writes it: see its log",
		},
		"expired": {
			mode: certificates.OpenShift, data: good, bundle: good[certificates.AuthoritiesKey],
			at: start().Add(year + day), want: "the caBundle of the webhook validate " + configured +
				"the certificate has expired, at 2027-11-21T12:00:00Z; " +
				"OpenShift's service CA writes it: see the project openshift-service-ca",
		},
	} {
		t.Run(name, func(t *testing.T) {
			var objects []client.Object
			if !test.none {
				objects = append(objects, configuration(test.bundle))
			}
			c := newCluster(t, objects...)
			if test.data != nil {
				c.putSecret(t, test.data)
			}
			k := &Keeper{options: options(test.mode), reader: c, now: func() time.Time {
				if test.at.IsZero() {
					return start()
				}
				return test.at
			}}
			if !test.unread {
				reconciled(t, k)
			}
			err := k.Ready(nil)
			switch {
			case test.want == "" && err != nil:
				t.Error(err)
			case test.want != "" && (err == nil || !strings.HasPrefix(err.Error(), test.want)):
				t.Errorf("got  %v\nwant %s", err, test.want)
			}
		})
	}
}

// The next handshake shows the new certificate, and a Secret that is spoilt or gone takes nothing away.
func TestRenewedSecretsAreServedWithoutARestart(t *testing.T) {
	c := newCluster(t)
	k := &Keeper{options: options(certificates.ExistingSecret), reader: c, now: start}
	address := serve(t, k)
	if _, err := shownCertificate(address); err == nil {
		t.Error("a handshake without a certificate")
	}
	first, second := step(t, nil, start()), step(t, nil, start())
	for _, data := range []map[string][]byte{first, second} {
		c.putSecret(t, data)
		reconciled(t, k)
		if got, err := shownCertificate(address); err != nil || !slices.Equal(got, pairOf(t, data).Certificate[0]) {
			t.Errorf("another certificate is served (%v)", err)
		}
	}
	c.putSecret(t, map[string][]byte{corev1.TLSCertKey: []byte("x")})
	reconciled(t, k)
	if got, err := shownCertificate(address); err != nil || !slices.Equal(got, pairOf(t, second).Certificate[0]) {
		t.Errorf("the last good certificate is not served (%v)", err)
	}
}

func TestSetupRefusesAnotherMode(t *testing.T) {
	_, err := Setup(nil, Options{Mode: "acme"})
	const want = `certificates "acme": want one of self-managed, cert-manager, openshift, existingSecret`
	if err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

// cluster is an API server with one Secret and one webhook configuration. changed is called after each write.
type cluster struct {
	client.Client
	changed func()
}

func newCluster(t *testing.T, objects ...client.Object) *cluster {
	t.Helper()
	scheme := runtime.NewScheme()
	c := &cluster{changed: func() {}}
	c.must(t, corev1.AddToScheme(scheme))
	c.must(t, admissionv1.AddToScheme(scheme))
	c.Client = fake.NewClientBuilder().
		WithScheme(scheme).
		WithObjects(objects...).
		WithInterceptorFuncs(interceptor.Funcs{
			Create: func(ctx context.Context, next client.WithWatch, object client.Object,
				options ...client.CreateOption,
			) error {
				defer c.changed()
				return next.Create(ctx, object, options...)
			},
			Update: func(ctx context.Context, next client.WithWatch, object client.Object,
				options ...client.UpdateOption,
			) error {
				defer c.changed()
				return next.Update(ctx, object, options...)
			},
			Patch: func(ctx context.Context, next client.WithWatch, object client.Object, patch client.Patch,
				options ...client.PatchOption,
			) error {
				defer c.changed()
				return next.Patch(ctx, object, patch, options...)
			},
		}).
		Build()
	return c
}

func (c *cluster) must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (c *cluster) secret(t *testing.T) map[string][]byte {
	t.Helper()
	var found corev1.Secret
	c.must(t, c.Get(t.Context(), client.ObjectKey{Namespace: "hpp", Name: "operator-certificate"}, &found))
	return found.Data
}

// empty is the Secret as the chart makes it.
func empty() *corev1.Secret {
	return &corev1.Secret{Type: corev1.SecretTypeOpaque, ObjectMeta: metav1.ObjectMeta{
		Namespace: "hpp", Name: "operator-certificate",
		Labels: map[string]string{"app.kubernetes.io/managed-by": "Helm"},
	}}
}

// putSecret is what somebody else writes into the Secret.
func (c *cluster) putSecret(t *testing.T, data map[string][]byte) {
	t.Helper()
	object := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "hpp", Name: "operator-certificate"}, Data: data}
	if err := c.Update(t.Context(), object); err != nil {
		c.must(t, c.Create(t.Context(), object))
	}
}

func (c *cluster) configuration(t *testing.T) *admissionv1.ValidatingWebhookConfiguration {
	t.Helper()
	var found admissionv1.ValidatingWebhookConfiguration
	c.must(t, c.Get(t.Context(), client.ObjectKey{Name: "operator"}, &found))
	return &found
}

func (c *cluster) writeTrust(t *testing.T, bundle []byte) {
	t.Helper()
	found := c.configuration(t)
	found.Webhooks[0].ClientConfig.CABundle = bundle
	c.must(t, c.Update(t.Context(), found))
}

func configuration(bundle []byte) *admissionv1.ValidatingWebhookConfiguration {
	return &admissionv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: "operator"},
		Webhooks: []admissionv1.ValidatingWebhook{{Name: "validate", ClientConfig: admissionv1.WebhookClientConfig{
			CABundle: bundle, Service: &admissionv1.ServiceReference{Namespace: "hpp", Name: "operator"},
		}}},
	}
}

func options(mode string) Options {
	return Options{
		Mode:                 mode,
		Namespace:            "hpp",
		Secret:               "operator-certificate",
		WebhookConfiguration: "operator",
		Service:              "operator",
	}
}

func reconciled(t *testing.T, r reconcile.Reconciler) reconcile.Result {
	t.Helper()
	result, err := r.Reconcile(t.Context(), reconcile.Request{})
	if err != nil {
		t.Fatal(err)
	}
	return result
}

// step is one that has to be due.
func step(t *testing.T, data map[string][]byte, at time.Time) map[string][]byte {
	t.Helper()
	next, stepped, err := certificates.Issue(data, host, at)
	if err != nil || !stepped {
		t.Fatalf("no step (%v)", err)
	}
	return next
}

func pairOf(t *testing.T, data map[string][]byte) *tls.Certificate {
	t.Helper()
	pair, err := certificates.Pair(data)
	if err != nil {
		t.Fatal(err)
	}
	return pair
}

func serve(t *testing.T, k *Keeper) string {
	t.Helper()
	listener, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{GetCertificate: k.GetCertificate})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			connection, err := listener.Accept()
			if err != nil {
				return
			}
			go func(connection net.Conn) {
				defer func() { _ = connection.Close() }()
				_, _ = connection.Read(make([]byte, 1))
			}(connection)
		}
	}()
	return listener.Addr().String()
}

// shownCertificate is the certificate that a new handshake shows.
func shownCertificate(address string) ([]byte, error) {
	connection, err := tls.Dial("tcp", address, &tls.Config{InsecureSkipVerify: true})
	if err != nil {
		return nil, err
	}
	defer func() { _ = connection.Close() }()
	return connection.ConnectionState().PeerCertificates[0].Raw, nil
}
