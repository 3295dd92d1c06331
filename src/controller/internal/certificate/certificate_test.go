package certificate

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"log/slog"
	"maps"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/certificates"
)

const (
	servingName = "controller.hpp.svc"
	trustedName = "controller-authorities"
	olderName   = "controller-ca"
	secretName  = "controller-certificate"
	day         = 24 * time.Hour
)

// Three years, in which the authority changes after half a year and the old one ends after two and a half, looked at
// each month by two replicas, of which the second also looks between any two writes of the first: what is served is
// trusted at every moment.
func TestSelfManagedCertificateIsTrustedAtEachStep(t *testing.T) {
	api := newFakeAPI(t)
	old, _, err := certificates.Issue(nil, servingName, api.now.AddDate(-7, -6, 0))
	if err != nil {
		t.Fatal(err)
	}
	api.put(old)
	first, second := api.replica(certificates.SelfManaged), api.replica(certificates.SelfManaged)
	shown := map[string]bool{}
	api.wrote = func() {
		wrote := api.wrote
		api.wrote = func() {}
		second.look(t.Context())
		api.wrote = wrote
	}
	for until := api.now.AddDate(3, 0, 0); api.now.Before(until); api.now = api.now.Add(30 * day) {
		for _, c := range []*Keeper{first, second, first} {
			if !c.look(t.Context()) {
				t.Fatal(c.fault)
			}
			api.verify()
		}
		if !first.pair.Leaf.Equal(second.pair.Leaf) {
			t.Fatal("the replicas serve different certificates")
		}
		shown[string(first.pair.Certificate[0])] = true
	}
	if len(shown) < 5 {
		t.Errorf("%d certificates in 3 years, want one each eight months", len(shown))
	}
	if got := strings.Count(api.trusted[certificates.AuthoritiesKey], "BEGIN"); got > 2 {
		t.Errorf("%d authorities are trusted at the end", got)
	}
}

// TestOlderNodesAreToldTheAuthorities: beside those of a controller of their version, which may still serve.
func TestOlderNodesAreToldTheAuthorities(t *testing.T) {
	api := newFakeAPI(t)
	before := issued(t, api.now)[certificates.AuthoritiesKey]
	api.older = map[string]string{certificates.AuthoritiesKey: string(before)}
	c := api.replica(certificates.SelfManaged)
	if !c.look(t.Context()) {
		t.Fatal(c.fault)
	}
	trusted := api.older[certificates.AuthoritiesKey]
	if err := certificates.Verify(c.pair, []byte(trusted), servingName, api.now); err != nil {
		t.Errorf("an older node refuses the new certificate: %v", err)
	}
	if !strings.Contains(trusted, strings.TrimSpace(string(before))) {
		t.Errorf("an older node does not trust the older controller any more:\n%s", trusted)
	}
}

func TestReplicasThatStartTogetherShareOneCertificate(t *testing.T) {
	for range 3 {
		api := newFakeAPI(t)
		replicas := []*Keeper{
			api.replica(certificates.SelfManaged), api.replica(certificates.SelfManaged),
			api.replica(certificates.SelfManaged),
		}
		var all sync.WaitGroup
		for _, c := range replicas {
			all.Go(func() { c.look(t.Context()) })
		}
		all.Wait()
		api.verify()
		for _, c := range replicas {
			if err := c.Ready(); err != nil {
				t.Fatal(err)
			}
			if !c.pair.Leaf.Equal(replicas[0].pair.Leaf) {
				t.Error("the replicas serve different certificates")
			}
		}
		if api.filled != 1 {
			t.Errorf("the Secret was written %d times", api.filled)
		}
	}
}

// The other replica writes the Secret between this one's reading and writing.
func TestSecretOfAnotherReplicaIsReadAgain(t *testing.T) {
	api := newFakeAPI(t)
	slow, fast := api.replica(certificates.SelfManaged), api.replica(certificates.SelfManaged)
	api.writes = func() {
		api.writes = func() {}
		fast.look(t.Context())
	}
	if !slow.look(t.Context()) || !slow.pair.Leaf.Equal(fast.pair.Leaf) || api.filled != 1 {
		t.Errorf("the Secret was written %d times (%v)", api.filled, slow.fault)
	}
	if strings.Contains(api.log.String(), "WARN") {
		t.Error("a conflict is no fault: " + api.log.String())
	}
}

func TestSelfManagedMendsWhatOthersSpoil(t *testing.T) {
	for name, spoil := range map[string]func(*fakeAPI){
		"Secret emptied":    func(a *fakeAPI) { a.secret = nil },
		"Secret spoilt":     func(a *fakeAPI) { a.secret = map[string][]byte{"tls.crt": []byte("x")} },
		"ConfigMap deleted": func(a *fakeAPI) { a.trusted = nil },
		"ConfigMap spoilt":  func(a *fakeAPI) { a.trusted = map[string]string{"ca.crt": "x"} },
	} {
		t.Run(name, func(t *testing.T) {
			api := newFakeAPI(t)
			c := api.replica(certificates.SelfManaged)
			c.look(t.Context())
			spoil(api)
			if !c.look(t.Context()) {
				t.Error(c.fault)
			}
			api.verify()
		})
	}
}

// A Secret that somebody has deleted is not made again, which would take a right to make any. Until an upgrade of the
// release does that, the certificate from before is served.
func TestDeletedSecretComesBackWithTheRelease(t *testing.T) {
	api := newFakeAPI(t)
	c := api.replica(certificates.SelfManaged)
	c.look(t.Context())
	api.put(nil)
	if c.look(t.Context()) || c.Ready() != nil || !strings.Contains(api.log.String(), "upgrade the release") {
		t.Errorf("without its Secret: %v\n%s", c.Ready(), api.log.String())
	}
	api.verify()
	lost := c.pair
	api.put(map[string][]byte{})
	if !c.look(t.Context()) || c.pair.Leaf.Equal(lost.Leaf) {
		t.Errorf("with a Secret again: %v", c.fault)
	}
	api.verify()
}

// One replica looks later than the other, and the authority is another one.
func TestForeignCertificateIsTrustedAtEachStep(t *testing.T) {
	for _, mode := range []string{certificates.CertManager, certificates.ExistingSecret} {
		t.Run(mode, func(t *testing.T) {
			api := newFakeAPI(t)
			early, late := api.replica(mode), api.replica(mode)
			looks := func() {
				for range 2 {
					for _, c := range []*Keeper{early, late, early} {
						if !c.look(t.Context()) {
							t.Fatal(c.fault)
						}
						api.verify()
					}
				}
			}
			for n, data := range []map[string][]byte{issued(t, api.now), issued(t, api.now)} {
				api.put(data)
				looks()
				for _, c := range api.replicas {
					if pair, err := certificates.Pair(data); err != nil || !c.pair.Leaf.Equal(pair.Leaf) {
						t.Errorf("step %d: another certificate is served (%v)", n, err)
					}
				}
			}
			if api.written != 2 {
				t.Errorf("the ConfigMap was written %d times, want once for each authority", api.written)
			}
		})
	}
}

// OpenShift's service CA makes the Secret and writes the ConfigMap, in any order.
func TestOpenShiftsCertificateIsServedOnceItIsTrusted(t *testing.T) {
	api := newFakeAPI(t)
	c := api.replica(certificates.OpenShift)
	secret := issued(t, api.now)
	inject := func(authorities string) { api.trusted = map[string]string{"service-ca.crt": authorities} }
	authorities := string(secret["ca.crt"])
	delete(secret, "ca.crt")
	api.put(secret)
	for _, untrusted := range []func(){
		func() {}, func() { inject("") }, func() { inject(string(issued(t, api.now)["ca.crt"])) },
	} {
		untrusted()
		if c.look(t.Context()) {
			t.Error("a certificate is served that no node trusts")
		}
	}
	const want = "no certificate to serve from the Secret hpp/controller-certificate: service-ca.crt of the " +
		"ConfigMap " +
		trustedName + " does not verify its tls.crt: x509: certificate signed by unknown authority"
	if err := c.Ready(); err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("got  %v\nwant %s", err, want)
	}
	inject(authorities)
	if !c.look(t.Context()) {
		t.Error(c.fault)
	}
	if api.written != 0 {
		t.Error("the ConfigMap was written, which is OpenShift's")
	}
}

func TestCertificateNotReadySaysWhatToDo(t *testing.T) {
	const before = "no certificate to serve from the Secret hpp/controller-certificate: "
	const absent = "it is not there; "
	for mode, want := range map[string]string{
		certificates.SelfManaged: "secrets is forbidden; the chart makes it for the controller to fill, which has to " +
			"be allowed to get and patch it: upgrade the release to get it and its rights back",
		certificates.CertManager: absent + "cert-manager makes it: see whether it runs, and `kubectl -n hpp describe " +
			"certificate`",
		certificates.OpenShift: absent + "OpenShift's service CA makes it for the Service controller: see its " +
			"annotations and the project openshift-service-ca",
		certificates.ExistingSecret: absent +
			"it has to be made with tls.crt, tls.key and ca.crt for controller.hpp.svc",
	} {
		t.Run(mode, func(t *testing.T) {
			api := newFakeAPI(t)
			if mode == certificates.SelfManaged {
				api.fault = errors.New("secrets is forbidden")
			}
			c := api.replica(mode)
			if err := c.Ready(); err == nil || !strings.HasPrefix(err.Error(), before+"it has not been read yet; ") {
				t.Errorf("before the first look: %v", err)
			}
			c.look(t.Context())
			if err := c.Ready(); err == nil || err.Error() != before+want {
				t.Errorf("got  %v\nwant %s", err, before+want)
			}
			if _, err := handshake(c, nil); err == nil {
				t.Error("a handshake without a certificate")
			}
		})
	}
}

func TestUnusableCertificateIsRefused(t *testing.T) {
	now := newFakeAPI(t).now
	good, foreign := issued(t, now), issued(t, now)
	elsewhere, _, err := certificates.Issue(nil, "other.hpp.svc", now)
	if err != nil {
		t.Fatal(err)
	}
	with := func(key string, value []byte) map[string][]byte {
		other := maps.Clone(good)
		other[key] = value
		return other
	}
	for name, test := range map[string]struct {
		data map[string][]byte
		want string
	}{
		"broken":      {with("tls.crt", []byte("x")), "its tls.crt and tls.key are no certificate with its key"},
		"another key": {with("tls.key", foreign["tls.key"]), "its tls.crt and tls.key are no certificate with its key"},
		"no authority": {
			with("ca.crt", nil), "its ca.crt does not verify its tls.crt: it contains no certificate in PEM",
		},
		"another authority": {
			with("ca.crt", foreign["ca.crt"]),
			"its ca.crt does not verify its tls.crt: x509: certificate signed by unknown",
		},
		"another name": {elsewhere, "x509: certificate is valid for other.hpp.svc"},
		"expired":      {issued(t, now.Add(-400*day)), "the certificate has expired, at 2026-10-17T12:00:00Z"},
		"a clock that is a day behind": {
			issued(t, now.Add(day)),
			"the certificate is not yet valid, only from 2026-11-22T11:00:00Z on: see the clock",
		},
		"deleted": {nil, "it is not there"},
	} {
		t.Run(name, func(t *testing.T) {
			api := newFakeAPI(t)
			c := api.replica(certificates.ExistingSecret)
			api.put(test.data)
			if c.look(t.Context()) || c.Ready() == nil || !strings.Contains(c.Ready().Error(), test.want) {
				t.Errorf("alone: %v, want %s", c.Ready(), test.want)
			}
			api.put(good)
			if !c.look(t.Context()) {
				t.Fatal(c.fault)
			}
			served := c.pair
			api.log.Reset()
			api.put(test.data)
			for range 2 {
				if c.look(t.Context()) {
					t.Error("it was not refused")
				}
			}
			if c.Ready() != nil || c.pair != served {
				t.Errorf("the certificate from before is gone: %v", c.Ready())
			}
			if got := api.log.String(); strings.Count(got, "cannot be used") != 1 || !strings.Contains(got, test.want) {
				t.Errorf("the log says %s, want once %s", got, test.want)
			}
			api.verify()
		})
	}
}

// While the nodes cannot learn what to trust, the certificate from before is served.
func TestCertificateWaitsForTheConfigMap(t *testing.T) {
	api := newFakeAPI(t)
	c := api.replica(certificates.ExistingSecret)
	for range 2 {
		before := c.pair
		api.put(issued(t, api.now))
		api.fault = errors.New("the API is away")
		if c.look(t.Context()) || c.pair != before {
			t.Error("served before it is trusted")
		}
		api.fault = nil
		if !c.look(t.Context()) || c.pair == before {
			t.Error(c.fault)
		}
		api.verify()
	}
}

func TestCertificateIsShownOverTLS13(t *testing.T) {
	api := newFakeAPI(t)
	c := api.replica(certificates.SelfManaged)
	c.look(t.Context())
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM([]byte(api.trusted[certificates.AuthoritiesKey]))
	client := &tls.Config{RootCAs: roots, ServerName: servingName, Time: func() time.Time { return api.now }}
	state, err := handshake(c, client)
	if err != nil || state.Version != tls.VersionTLS13 || !state.PeerCertificates[0].Equal(c.pair.Leaf) {
		t.Errorf("version %x (%v)", state.Version, err)
	}
	client.MaxVersion = tls.VersionTLS12
	if _, err := handshake(c, client); err == nil {
		t.Error("a handshake with TLS 1.2")
	}
}

func TestCertificateIsLookedForAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := newFakeAPI(t)
		c := api.replica(certificates.ExistingSecret)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- c.Run(ctx) }()
		synctest.Wait()
		api.put(issued(t, api.now))
		time.Sleep(retryAfter + time.Second)
		if err := c.Ready(); err != nil {
			t.Error(err)
		}
		renewed := issued(t, api.now)
		api.put(renewed)
		time.Sleep(c.Interval + time.Second)
		want, err := certificates.Pair(renewed)
		if shown, _ := c.get(nil); err != nil || !shown.Leaf.Equal(want.Leaf) {
			t.Errorf("the renewed certificate is not served (%v)", err)
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// fakeAPI is an API with one Secret and one ConfigMap.
type fakeAPI struct {
	t        *testing.T
	now      time.Time
	log      bytes.Buffer
	logger   *slog.Logger
	replicas []*Keeper
	// writes is called before the Secret is written, wrote after any write.
	writes, wrote func()
	fault         error

	mu      sync.Mutex
	secret  map[string][]byte
	version int // of the Secret, 0 without
	filled  int // how often the Secret was written
	trusted map[string]string
	written int // how often the ConfigMap was
	older   map[string]string
}

func newFakeAPI(t *testing.T) *fakeAPI {
	t.Helper()
	a := &fakeAPI{
		t: t, now: time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC), writes: func() {}, wrote: func() {},
	}
	a.logger = slog.New(slog.NewTextHandler(&a.log, nil))
	return a
}

func (a *fakeAPI) replica(mode string) *Keeper {
	c := New(Config{
		Mode: mode, DNSName: servingName, SecretName: secretName, ConfigMapName: trustedName, Store: a,
		Log: a.logger, Now: func() time.Time { return a.now }, Interval: 10 * time.Second,
	})
	a.replicas = append(a.replicas, c)
	if mode == certificates.SelfManaged && a.version == 0 {
		a.put(map[string][]byte{}) // the chart's
	}
	return c
}

// verify fails unless the nodes trust what every replica serves.
func (a *fakeAPI) verify() {
	a.t.Helper()
	a.mu.Lock()
	trusted := []byte(a.trusted[certificates.AuthoritiesKey])
	a.mu.Unlock()
	for n, c := range a.replicas {
		pair, err := c.get(nil)
		if err != nil {
			continue // serves nothing yet
		}
		if err := certificates.Verify(pair, trusted, servingName, a.now); err != nil {
			a.t.Errorf("at %s replica %d serves what the nodes do not trust: %v", a.now.Format(time.DateOnly), n, err)
		}
	}
}

func (a *fakeAPI) Secret(_ context.Context, name string) (map[string][]byte, string, error) {
	a.must(name == secretName)
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.fault != nil || a.version == 0 {
		return nil, "", a.fault
	}
	return maps.Clone(a.secret), strconv.Itoa(a.version), nil
}

func (a *fakeAPI) WriteSecret(_ context.Context, name, version string, data map[string][]byte) error {
	a.must(name == secretName)
	a.writes()
	a.mu.Lock()
	if a.version == 0 || version != strconv.Itoa(a.version) {
		a.mu.Unlock()
		return errors.New("conflict: the Secret has another version")
	}
	a.secret = maps.Clone(data)
	a.version++
	a.filled++
	a.mu.Unlock()
	a.verify()
	a.wrote()
	return nil
}

func (a *fakeAPI) ConfigMap(_ context.Context, name string) (map[string]string, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if name == olderName {
		return maps.Clone(a.older), nil
	}
	a.must(name == trustedName)
	return maps.Clone(a.trusted), nil
}

func (a *fakeAPI) WriteConfigMap(_ context.Context, name string, data map[string]string) error {
	a.must(name == trustedName || name == olderName && a.older != nil)
	if a.fault != nil {
		return a.fault
	}
	a.mu.Lock()
	if name == olderName {
		a.older = maps.Clone(data)
		a.mu.Unlock()
		return nil
	}
	a.trusted = maps.Clone(data)
	a.written++
	a.mu.Unlock()
	a.verify()
	a.wrote()
	return nil
}

func (a *fakeAPI) must(expected bool) {
	if !expected {
		panic("another object was asked for")
	}
}

// issued is a Secret with a new authority and a certificate of it.
func issued(t *testing.T, at time.Time) map[string][]byte {
	t.Helper()
	data, _, err := certificates.Issue(nil, servingName, at)
	if err != nil {
		t.Fatal(err)
	}
	delete(data, "ca.key")
	return data
}

// put replaces the Secret; nil removes it.
func (a *fakeAPI) put(data map[string][]byte) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.secret, a.version = data, a.version+1
	if data == nil {
		a.version = 0
	}
}

// handshake is what a node sees.
func handshake(c *Keeper, config *tls.Config) (tls.ConnectionState, error) {
	if config == nil {
		config = &tls.Config{ServerName: servingName}
	}
	near, far := net.Pipe()
	defer func() { _ = far.Close() }()
	go func() {
		_ = tls.Server(near, c.TLS()).Handshake()
		_ = near.Close()
	}()
	client := tls.Client(far, config)
	err := client.Handshake()
	return client.ConnectionState(), err
}
