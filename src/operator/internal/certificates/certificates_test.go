package certificates

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"maps"
	"math/big"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/openshift/library-go/pkg/crypto"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

const (
	host = "operator.hpp.svc"
	day  = 24 * time.Hour
)

func start() time.Time { return time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC) }

func TestIssue(t *testing.T) {
	fresh := step(t, nil, start())
	authorityNears, leafNears := start().Add(authorityLifetime-authorityMargin),
		start().Add(servingLifetime-servingMargin)
	other := map[string][]byte{}
	maps.Copy(other, fresh)
	delete(other, caKeyKey)

	t.Run("from nothing", func(t *testing.T) {
		if !serves(fresh, host, start()) || !serves(fresh, host, start().Add(-skew/2)) {
			t.Error("the certificate is not valid now, or not for a clock that is behind")
		}
		if len(authorities(t, fresh)) != 1 {
			t.Error("want one authority")
		}
	})
	t.Run("nothing is due", func(t *testing.T) {
		for _, at := range []time.Time{start(), start().Add(time.Hour), leafNears.Add(-time.Minute)} {
			if _, stepped, err := issue(fresh, host, at); stepped || err != nil {
				t.Errorf("a step at %s (%v)", at, err)
			}
		}
	})
	t.Run("certificate nears its end", func(t *testing.T) {
		next := step(t, fresh, leafNears.Add(time.Minute))
		if same(next, fresh, corev1.TLSCertKey) || !same(next, fresh, caCertKey) ||
			!serves(next, host, leafNears.Add(servingLifetime-day)) {
			t.Error("want a new certificate of the old authority")
		}
	})
	t.Run("another host", func(t *testing.T) {
		if next, stepped, err := issue(fresh, "other.hpp.svc", start()); err != nil || !stepped ||
			!serves(next, "other.hpp.svc", start()) {
			t.Errorf("no certificate for the other host (%v)", err)
		}
	})
	t.Run("authority nears its end", func(t *testing.T) {
		leaf := step(t, fresh, authorityNears.Add(-day))
		next := step(t, leaf, authorityNears.Add(day))
		if !same(next, leaf, corev1.TLSCertKey) || len(authorities(t, next)) != 2 ||
			!serves(next, host, authorityNears.Add(day)) {
			t.Error("want a new authority beside the old one, and the certificate as it was")
		}
		last := step(t, next, authorityNears.Add(servingLifetime))
		if verify(
			pairOf(t, last),
			encode(t, authorities(t, last)[0]),
			host,
			authorityNears.Add(servingLifetime),
		) != nil {
			t.Error("the next certificate is not of the new authority")
		}
	})
	t.Run("an authority that has ended is forgotten", func(t *testing.T) {
		next := step(t, fresh, start().Add(authorityLifetime))
		if got := authorities(t, next); len(got) != 1 || !serves(next, host, start().Add(authorityLifetime)) {
			t.Errorf("%d authorities are trusted, want the new one", len(got))
		}
	})
	t.Run("authority without its key, as cert-manager leaves it", func(t *testing.T) {
		next := step(t, other, start())
		if !same(next, fresh, corev1.TLSCertKey) || len(authorities(t, next)) != 2 {
			t.Error("want a new authority beside the old one, and the certificate as it was")
		}
	})
	t.Run("rubbish", func(t *testing.T) {
		next := step(
			t,
			map[string][]byte{
				caCertKey:         []byte("x"),
				caKeyKey:          []byte("x"),
				corev1.TLSCertKey: nil,
				"more":            []byte("y"),
			},
			start(),
		)
		if !serves(next, host, start()) || string(next["more"]) != "y" {
			t.Error("want a certificate, and foreign keys as they were")
		}
	})
}

// Twelve years, in which the authority changes once, looked at each month: what is served is trusted at every moment,
// also between two writes.
func TestSelfManagedIsTrustedAtEachStep(t *testing.T) {
	now := start()
	c := newCluster(t, configuration(nil))
	w := &writer{options: options(SelfManaged), reader: c, client: c, now: func() time.Time { return now }}
	k := &Keeper{options: options(SelfManaged), reader: c, now: func() time.Time { return now }}
	reconciled(t, w)
	written := map[string]bool{}
	c.changed = func() {
		reconciled(t, k)
		if err := k.Ready(nil); err != nil {
			t.Fatalf("at %s: %v", now.Format(time.DateOnly), err)
		}
		written[string(c.secret(t)[corev1.TLSCertKey])] = true
	}
	for now.Before(start().AddDate(12, 0, 0)) {
		result := reconciled(t, w)
		if result.RequeueAfter < day || result.RequeueAfter > servingLifetime {
			t.Fatalf("comes back after %s", result.RequeueAfter)
		}
		now = now.Add(30 * day)
	}
	if len(written) < 15 {
		t.Errorf("%d certificates in 12 years, want one each eight months", len(written))
	}
	if got := authorities(t, c.secret(t)); len(got) != 2 {
		t.Errorf("%d authorities are trusted at the end, want the first, which nothing needs any more, and the second",
			len(got))
	}
}

func TestSelfManagedMendsWhatOthersSpoil(t *testing.T) {
	for name, spoil := range map[string]func(t *testing.T, c *cluster){
		"Secret deleted": func(t *testing.T, c *cluster) {
			c.must(t, c.Delete(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{
				Namespace: "hpp",
				Name:      "operator-certificate",
			}}))
		},
		"Secret emptied":   func(t *testing.T, c *cluster) { c.put(t, nil) },
		"caBundle deleted": func(t *testing.T, c *cluster) { c.trust(t, nil) },
		"caBundle of someone else": func(t *testing.T, c *cluster) {
			c.trust(t, step(t, nil, start())[caCertKey])
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t, configuration(nil))
			w := &writer{options: options(SelfManaged), reader: c, client: c, now: start}
			k := &Keeper{options: options(SelfManaged), reader: c, now: start}
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

func TestExistingSecret(t *testing.T) {
	c := newCluster(t, configuration(nil))
	w := &writer{options: options(ExistingSecret), reader: c, client: c, now: start}
	k := &Keeper{options: options(ExistingSecret), reader: c, now: start}
	if result := reconciled(t, w); result.RequeueAfter != 0 {
		t.Error("waits for a time, not for the Secret")
	}
	for range 2 { // The second one is another authority's.
		data := step(t, nil, start())
		c.put(t, data)
		reconciled(t, w)
		reconciled(t, k)
		if err := k.Ready(nil); err != nil {
			t.Error(err)
		}
		if diff := cmp.Diff(data, c.secret(t)); diff != "" {
			t.Error("the administrator's Secret was written: " + diff)
		}
	}
	c.put(t, map[string][]byte{caCertKey: []byte("no certificate")})
	_, err := w.Reconcile(t.Context(), reconcile.Request{})
	const want = "terminal error: the Secret hpp/operator-certificate: its ca.crt contains no certificate (could not " +
		"read any certificates): " +
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
	c := newCluster(t, before)
	reconciled(t, &writer{options: options(SelfManaged), reader: c, client: c, now: start})
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
	foreign, own := step(t, nil, start()), selfSigned(t)
	elsewhere, _, err := issue(nil, "other.hpp.svc", start())
	if err != nil {
		t.Fatal(err)
	}
	const configured = "in the ValidatingWebhookConfiguration operator does not verify the certificate that is served: "
	for name, test := range map[string]struct {
		mode   string
		data   map[string][]byte // nil: no Secret
		bundle []byte
		none   bool // no webhook configuration
		unread bool
		at     time.Time
		want   string // the whole sentence; "" for ready
	}{
		"ready": {mode: CertManager, data: good, bundle: good[caCertKey]},
		"self-signed, as cert-manager's own issuer makes it": {mode: CertManager, data: own, bundle: own[caCertKey]},
		"nothing read yet": {
			mode: SelfManaged, unread: true,
			want: "no certificate to serve from the Secret hpp/operator-certificate: it has not been read yet; " +
				"the operator's leader makes it: see the logs of the pod that holds the Lease",
		},
		"no Secret, self-managed": {
			mode: SelfManaged,
			want: "no certificate to serve from the Secret hpp/operator-certificate: it is not there; " +
				"the operator's leader makes it: see the logs of the pod that holds the Lease",
		},
		"no Secret, cert-manager": {
			mode: CertManager,
			want: "no certificate to serve from the Secret hpp/operator-certificate: it is not there; " +
				"cert-manager makes it: see whether it runs, and `kubectl -n hpp describe certificate`",
		},
		"no Secret, OpenShift": {
			mode: OpenShift,
			want: "no certificate to serve from the Secret hpp/operator-certificate: it is not there; " +
				"OpenShift's service CA makes it for the Service operator: see its annotations and the project " +
				"openshift-service-ca",
		},
		"no Secret, existingSecret": {
			mode: ExistingSecret,
			want: "no certificate to serve from the Secret hpp/operator-certificate: it is not there; " +
				"it has to be made with tls.crt, tls.key and ca.crt for operator.hpp.svc",
		},
		"a Secret that holds no pair": {
			mode: ExistingSecret, data: map[string][]byte{
				corev1.TLSCertKey:       good[corev1.TLSCertKey],
				corev1.TLSPrivateKeyKey: foreign[corev1.TLSPrivateKeyKey],
			},
			want: "no certificate to serve from the Secret hpp/operator-certificate: its tls.crt and tls.key are no " +
				"certificate with its key " +
				"(tls: private key does not match public key); it has to be made with tls.crt, tls.key and ca.crt " +
				"for operator.hpp.svc",
		},
		"no configuration": {
			mode: CertManager, data: good, none: true,
			want: "the ValidatingWebhookConfiguration operator is not there, or names no webhook: upgrade the " +
				"release again to get it back",
		},
		"no caBundle, cert-manager": {
			mode: CertManager, data: good,
			want: "the webhook validate of the ValidatingWebhookConfiguration operator has no caBundle yet: " +
				"cert-manager's cainjector writes it: see whether it runs",
		},
		"no caBundle, OpenShift": {
			mode: OpenShift, data: good,
			want: "the webhook validate of the ValidatingWebhookConfiguration operator has no caBundle yet: " +
				"OpenShift's service CA writes it: " +
				"see the project openshift-service-ca",
		},
		"caBundle of another authority": {
			mode: ExistingSecret, data: good, bundle: foreign[caCertKey],
			want: "the caBundle of the webhook validate " + configured + "x509: certificate " +
				"signed by unknown authority",
		},
		"caBundle is no PEM": {
			mode: SelfManaged, data: good, bundle: []byte("x"),
			want: "the caBundle of the webhook validate " + configured + "it contains no certificate in PEM; " +
				"the operator's leader writes it: see the logs of the pod that holds the Lease",
		},
		"certificate for another name": {
			mode: SelfManaged, data: elsewhere, bundle: elsewhere[caCertKey],
			want: "the caBundle of the webhook validate " + configured +
				"x509: certificate is valid for other.hpp.svc, other.hpp.svc.cluster.local, not operator.hpp.svc; " +
				"the operator's leader writes it: see the logs of the pod that holds the Lease",
		},
		"expired": {
			mode: OpenShift, data: good, bundle: good[caCertKey], at: start().Add(servingLifetime + day),
			want: "the caBundle of the webhook validate " + configured + "x509: certificate has expired or is not " +
				"yet valid",
		},
	} {
		t.Run(name, func(t *testing.T) {
			var objects []client.Object
			if !test.none {
				objects = append(objects, configuration(test.bundle))
			}
			c := newCluster(t, objects...)
			if test.data != nil {
				c.put(t, test.data)
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
	k := &Keeper{options: options(ExistingSecret), reader: c, now: start}
	address := serve(t, k)
	if _, err := shown(address); err == nil {
		t.Error("a handshake without a certificate")
	}
	first, second := step(t, nil, start()), step(t, nil, start())
	for _, data := range []map[string][]byte{first, second} {
		c.put(t, data)
		reconciled(t, k)
		if got, err := shown(address); err != nil || !slices.Equal(got, pairOf(t, data).Certificate[0]) {
			t.Errorf("another certificate is served (%v)", err)
		}
	}
	c.put(t, map[string][]byte{corev1.TLSCertKey: []byte("x")})
	reconciled(t, k)
	if got, err := shown(address); err != nil || !slices.Equal(got, pairOf(t, second).Certificate[0]) {
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

// put is what somebody else writes into the Secret.
func (c *cluster) put(t *testing.T, data map[string][]byte) {
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

func (c *cluster) trust(t *testing.T, bundle []byte) {
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
	next, stepped, err := issue(data, host, at)
	if err != nil || !stepped {
		t.Fatalf("no step (%v)", err)
	}
	return next
}

// selfSigned is a certificate that is its own authority.
func selfSigned(t *testing.T) map[string][]byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: start(), NotAfter: start().Add(day), DNSNames: []string{host},
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := crypto.EncodeKey(key)
	if err != nil {
		t.Fatal(err)
	}
	certificate := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	return map[string][]byte{corev1.TLSCertKey: certificate, caCertKey: certificate, corev1.TLSPrivateKeyKey: private}
}

func same(a, b map[string][]byte, key string) bool { return slices.Equal(a[key], b[key]) }

func authorities(t *testing.T, data map[string][]byte) []*x509.Certificate {
	t.Helper()
	found, err := crypto.CertsFromPEM(data[caCertKey])
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func encode(t *testing.T, certificate *x509.Certificate) []byte {
	t.Helper()
	data, err := crypto.EncodeCertificates(certificate)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func pairOf(t *testing.T, data map[string][]byte) *tls.Certificate {
	t.Helper()
	pair, err := tls.X509KeyPair(data[corev1.TLSCertKey], data[corev1.TLSPrivateKeyKey])
	if err != nil {
		t.Fatal(err)
	}
	return &pair
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

// shown is the certificate that a new handshake shows.
func shown(address string) ([]byte, error) {
	connection, err := tls.Dial("tcp", address, &tls.Config{InsecureSkipVerify: true})
	if err != nil {
		return nil, err
	}
	defer func() { _ = connection.Close() }()
	return connection.ConnectionState().PeerCertificates[0].Raw, nil
}
