package tlspolicy_test

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"math/big"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	configv1 "github.com/openshift/api/config/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/operator/internal/tlspolicy"
)

const (
	gcm128 = "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"
	gcm256 = "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384"
	cbc128 = "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA"
)

// intermediate are the suites of the profile Intermediate that Go can be told to serve.
func intermediate() []string {
	return []string{
		"TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256", gcm128, "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384", gcm256,
		"TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256", "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256",
	}
}

func TestCurrent(t *testing.T) {
	const unavoidable = "the cipher suites of TLS 1.3 cannot be chosen in Go: all of them are served"
	const only13 = "none of the cipher suites asked for is one of TLS 1.2 or older: only TLS 1.3 is served, with the " +
		"suites that Go chooses"
	of := func(kind configv1.TLSProfileType) *configv1.TLSSecurityProfile {
		return &configv1.TLSSecurityProfile{Type: kind}
	}
	old := append(intermediate(), "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256", "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256",
		"TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA", cbc128, "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA",
		"TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA", "TLS_RSA_WITH_AES_128_GCM_SHA256", "TLS_RSA_WITH_AES_256_GCM_SHA384",
		"TLS_RSA_WITH_AES_128_CBC_SHA256", "TLS_RSA_WITH_AES_128_CBC_SHA", "TLS_RSA_WITH_AES_256_CBC_SHA",
		"TLS_RSA_WITH_3DES_EDE_CBC_SHA")
	for name, test := range map[string]struct {
		overrides tlspolicy.Overrides
		profile   *configv1.TLSSecurityProfile
		want      tlspolicy.Policy
		notes     []string
	}{
		"no profile": {
			want:  tlspolicy.Policy{MinVersion: "VersionTLS12", CipherSuites: intermediate()},
			notes: []string{unavoidable},
		},
		"empty type": {profile: of(""), want: tlspolicy.Policy{
			MinVersion:   "VersionTLS12",
			CipherSuites: intermediate(),
		}, notes: []string{unavoidable}},
		"Intermediate": {profile: of("Intermediate"), want: tlspolicy.Policy{
			MinVersion:   "VersionTLS12",
			CipherSuites: intermediate(),
		}, notes: []string{unavoidable}},
		"Modern": {profile: of("Modern"), want: tlspolicy.Policy{MinVersion: "VersionTLS13"}},
		"Old": {
			profile: of("Old"), want: tlspolicy.Policy{MinVersion: "VersionTLS10", CipherSuites: old},
			notes: []string{
				"the TLS security profile names cipher suites that Go does not have, they are left out: " +
					"ECDHE-ECDSA-AES256-SHA384, ECDHE-RSA-AES256-SHA384, AES256-SHA256", unavoidable,
			},
		},
		"Custom": {
			profile: custom("VersionTLS11", "ECDHE-RSA-AES128-SHA", "DHE-RSA-AES128-GCM-SHA256",
				"ECDHE-RSA-AES256-GCM-SHA384"),
			want: tlspolicy.Policy{MinVersion: "VersionTLS11", CipherSuites: []string{cbc128, gcm256}},
			notes: []string{"the TLS security profile names cipher suites that Go does not have, they are left " +
				"out: DHE-RSA-AES128-GCM-SHA256"},
		},
		"Custom with suites of TLS 1.3 only": {
			profile: custom("VersionTLS12", "TLS_AES_128_GCM_SHA256"),
			want:    tlspolicy.Policy{MinVersion: "VersionTLS13"}, notes: []string{only13},
		},
		"Custom with an unknown version": {
			profile: custom("VersionTLS14", "ECDHE-RSA-AES128-SHA"),
			want:    tlspolicy.Policy{MinVersion: "VersionTLS12", CipherSuites: []string{cbc128}},
			notes: []string{`the TLS security profile's minTLSVersion "VersionTLS14" is unknown: VersionTLS12 is ` +
				`used`},
		},
		"Custom without its section": {
			profile: of("Custom"), want: tlspolicy.Policy{MinVersion: "VersionTLS12", CipherSuites: intermediate()},
			notes: []string{"the TLS security profile is of type Custom and has no section custom: Intermediate is " +
				"used", unavoidable},
		},
		"unknown type": {
			profile: of("Paranoid"), want: tlspolicy.Policy{MinVersion: "VersionTLS12", CipherSuites: intermediate()},
			notes: []string{`the TLS security profile's type "Paranoid" is unknown: Intermediate is used`, unavoidable},
		},
		"version overridden": {
			overrides: tlspolicy.Overrides{MinVersion: "VersionTLS13"}, profile: of("Old"),
			want: tlspolicy.Policy{MinVersion: "VersionTLS13"},
		},
		"suites overridden": {
			overrides: tlspolicy.Overrides{CipherSuites: []string{gcm128, gcm128}}, profile: of("Old"),
			want:  tlspolicy.Policy{MinVersion: "VersionTLS10", CipherSuites: []string{gcm128}},
			notes: []string{unavoidable},
		},
		"both overridden, as in kubevirt's example": {
			overrides: tlspolicy.Overrides{MinVersion: "VersionTLS13", CipherSuites: []string{
				"TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256",
			}},
			profile: of("Old"), want: tlspolicy.Policy{MinVersion: "VersionTLS13"},
		},
		"overridden with suites of TLS 1.3 only": {
			overrides: tlspolicy.Overrides{CipherSuites: []string{"TLS_AES_128_GCM_SHA256"}},
			want:      tlspolicy.Policy{MinVersion: "VersionTLS13"}, notes: []string{only13},
		},
	} {
		t.Run(name, func(t *testing.T) {
			source := source(t, test.overrides)
			source.SetProfile(test.profile)
			if diff := cmp.Diff(test.want, source.Current()); diff != "" {
				t.Error(diff)
			}
			if diff := cmp.Diff(test.notes, source.Notes()); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestNewRefuses(t *testing.T) {
	_, err := tlspolicy.New(
		tlspolicy.Overrides{MinVersion: "1.2", CipherSuites: []string{gcm128, "ECDHE-RSA-AES128-GCM-SHA256"}})
	if err == nil {
		t.Fatal("accepted")
	}
	version, suites, two := strings.Cut(err.Error(), "\n")
	if want := `TLS_MIN_VERSION_OVERRIDE: "1.2": want one of VersionTLS10, VersionTLS11, ` +
		`VersionTLS12, VersionTLS13`; version != want {
		t.Errorf("got %q, want %q", version, want)
	}
	const begin = `TLS_CIPHERS_OVERRIDE: "ECDHE-RSA-AES128-GCM-SHA256": want names among `
	if !two || !strings.HasPrefix(suites, begin) || !strings.Contains(suites, gcm128) ||
		strings.Contains(suites, "\n") {
		t.Errorf("got %q, want %q and the names", suites, begin)
	}
}

func TestHandshakes(t *testing.T) {
	source := source(t, tlspolicy.Overrides{})
	address := serve(t, source)
	twelve := func(suite uint16) *tls.Config {
		return &tls.Config{MaxVersion: tls.VersionTLS12, CipherSuites: []uint16{suite}}
	}
	steps := []struct {
		name    string
		profile *configv1.TLSSecurityProfile
		client  *tls.Config
		version uint16 // 0: refused
		suite   uint16 // 0: any
	}{
		{"Intermediate, TLS 1.3", nil, &tls.Config{}, tls.VersionTLS13, 0},
		{
			"Intermediate, TLS 1.2 with one of its suites",
			nil,
			twelve(tls.TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384),
			tls.VersionTLS12,
			tls.TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
		},
		{"Intermediate, TLS 1.2 with CBC", nil, twelve(tls.TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA), 0, 0},
		{"Intermediate, TLS 1.1", nil, &tls.Config{MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS11}, 0, 0},
		{
			"Modern, TLS 1.2",
			&configv1.TLSSecurityProfile{Type: "Modern"},
			twelve(tls.TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384),
			0,
			0,
		},
		{"Modern, TLS 1.3", &configv1.TLSSecurityProfile{Type: "Modern"}, &tls.Config{}, tls.VersionTLS13, 0},
		{
			"Old, TLS 1.1", &configv1.TLSSecurityProfile{Type: "Old"},
			&tls.Config{
				MinVersion:   tls.VersionTLS10,
				MaxVersion:   tls.VersionTLS11,
				CipherSuites: []uint16{tls.TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA},
			},
			tls.VersionTLS11, tls.TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA,
		},
		{
			"Old, TLS 1.2 with CBC",
			&configv1.TLSSecurityProfile{Type: "Old"},
			twelve(tls.TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA),
			tls.VersionTLS12,
			tls.TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA,
		},
		{
			"Custom, its suite",
			custom("VersionTLS12", "ECDHE-RSA-AES128-GCM-SHA256"),
			twelve(tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256),
			tls.VersionTLS12,
			tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
		},
		{
			"Custom, another suite",
			custom("VersionTLS12", "ECDHE-RSA-AES128-GCM-SHA256"),
			twelve(tls.TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384),
			0,
			0,
		},
		{
			"Custom without a suite below TLS 1.3",
			custom("VersionTLS12", "TLS_AES_128_GCM_SHA256"),
			twelve(tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256),
			0,
			0,
		},
		{
			"profile gone: Intermediate again",
			nil,
			twelve(tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256),
			tls.VersionTLS12,
			tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
		},
	}
	for _, step := range steps {
		t.Run(step.name, func(t *testing.T) {
			source.SetProfile(step.profile)
			state, err := shake(address, step.client)
			switch {
			case step.version == 0 && err == nil:
				t.Errorf("accepted with %s and %s", tls.VersionName(state.Version),
					tls.CipherSuiteName(state.CipherSuite))
			case step.version != 0 && err != nil:
				t.Error(err)
			case step.version != state.Version || step.suite != 0 && step.suite != state.CipherSuite:
				t.Errorf("got %s with %s", tls.VersionName(state.Version), tls.CipherSuiteName(state.CipherSuite))
			}
		})
	}
}

func TestHTTP2IsOff(t *testing.T) {
	state, err := shake(serve(t, source(t, tlspolicy.Overrides{})), &tls.Config{NextProtos: []string{"h2", "http/1.1"}})
	if err != nil || state.NegotiatedProtocol != "http/1.1" {
		t.Errorf("got %q (%v), want http/1.1", state.NegotiatedProtocol, err)
	}
}

// A session from before must not outlive the policy that allowed it.
func TestResumedSessionsObeyToo(t *testing.T) {
	source := source(t, tlspolicy.Overrides{})
	address := serve(t, source)
	client := &tls.Config{MaxVersion: tls.VersionTLS12, ClientSessionCache: tls.NewLRUClientSessionCache(1)}
	if _, err := shake(address, client); err != nil {
		t.Fatal(err)
	}
	if state, err := shake(address, client); err != nil || !state.DidResume {
		t.Fatalf("the second handshake resumed nothing (%v): this test would prove nothing", err)
	}
	source.SetProfile(&configv1.TLSSecurityProfile{Type: "Modern"})
	if _, err := shake(address, client); err == nil {
		t.Error("a session of TLS 1.2 was resumed under Modern")
	}
}

func TestHandshakesWhileThePolicyChanges(t *testing.T) {
	source := source(t, tlspolicy.Overrides{})
	address := serve(t, source)
	var both sync.WaitGroup
	both.Go(func() {
		for range 200 {
			source.SetProfile(&configv1.TLSSecurityProfile{Type: "Modern"})
			source.SetProfile(nil)
		}
	})
	both.Go(func() {
		for range 20 {
			if _, err := shake(address, &tls.Config{}); err != nil {
				t.Error(err)
			}
			if got := source.Current().MinVersion; got != "VersionTLS12" && got != "VersionTLS13" {
				t.Errorf("minimum version %q", got)
			}
		}
	})
	both.Wait()
}

func source(t *testing.T, overrides tlspolicy.Overrides) *tlspolicy.Source {
	t.Helper()
	source, err := tlspolicy.New(overrides)
	if err != nil {
		t.Fatal(err)
	}
	return source
}

func custom(version configv1.TLSProtocolVersion, ciphers ...string) *configv1.TLSSecurityProfile {
	return &configv1.TLSSecurityProfile{Type: configv1.TLSProfileCustomType, Custom: &configv1.CustomTLSProfile{
		TLSProfileSpec: configv1.TLSProfileSpec{Ciphers: ciphers, MinTLSVersion: version},
	}}
}

// serve answers handshakes as the webhook's server does, with an RSA certificate.
func serve(t *testing.T, source *tlspolicy.Source) string {
	t.Helper()
	config := &tls.Config{NextProtos: []string{"h2"}}
	source.Configure(config)
	// Set after Configure, as another TLSOpt would.
	certificate := certificate(t)
	config.GetCertificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return certificate, nil }
	listener, err := tls.Listen("tcp", "127.0.0.1:0", config)
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
			go answer(connection)
		}
	}()
	return listener.Addr().String()
}

// answer sends one byte: a client of TLS 1.3 learns of the server's refusal, and gets its session, only when it reads.
func answer(connection net.Conn) {
	defer func() { _ = connection.Close() }()
	_, _ = connection.Write([]byte{1})
	_, _ = connection.Read(make([]byte, 1))
}

func shake(address string, client *tls.Config) (tls.ConnectionState, error) {
	client = client.Clone()
	client.InsecureSkipVerify = true
	connection, err := tls.Dial("tcp", address, client)
	if err != nil {
		return tls.ConnectionState{}, err
	}
	defer func() { _ = connection.Close() }()
	if _, err := connection.Read(make([]byte, 1)); err != nil {
		return tls.ConnectionState{}, err
	}
	return connection.ConnectionState(), nil
}

func certificate(t *testing.T) *tls.Certificate {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1),
		NotAfter:     time.Now().Add(time.Hour),
		DNSNames:     []string{"localhost"},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}
