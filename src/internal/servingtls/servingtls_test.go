package servingtls_test

import (
	"crypto/tls"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/certificates/certificatestest"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/logging/loggingtest"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/servingtls"
)

// writePair makes a certificate and puts it where the server reads it.
func writePair(t *testing.T, dir, name string) {
	t.Helper()
	pair := certificatestest.SelfSigned(t, name, time.Now().Add(-time.Hour))
	put(t, filepath.Join(dir, "tls.crt"), pair["tls.crt"])
	put(t, filepath.Join(dir, "tls.key"), pair["tls.key"])
}

// put replaces a file by another, as the kubelet does.
func put(t *testing.T, path string, data []byte) {
	t.Helper()
	if err := os.WriteFile(path+".new", data, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}

// serve answers handshakes with a configuration.
func serve(t *testing.T, config *tls.Config) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() { _ = tls.Server(conn, config).HandshakeContext(t.Context()); _ = conn.Close() }()
		}
	}()
	return listener.Addr().String()
}

// greet makes one handshake and gives what came of it.
func greet(t *testing.T, address string, client *tls.Config) (tls.ConnectionState, error) {
	t.Helper()
	client.InsecureSkipVerify = true
	conn, err := (&tls.Dialer{NetDialer: &net.Dialer{}, Config: client}).DialContext(t.Context(), "tcp", address)
	if err != nil {
		return tls.ConnectionState{}, err
	}
	defer func() { _ = conn.Close() }()
	return conn.(*tls.Conn).ConnectionState(), nil
}

func TestRenewedCertificatesAreServed(t *testing.T) {
	dir := t.TempDir()
	writePair(t, dir, "first")
	log := &loggingtest.Log{}
	config, err := servingtls.New(servingtls.Options{CertDir: dir}, slog.New(slog.NewTextHandler(log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	address := serve(t, config)
	serves := func(want string) {
		t.Helper()
		state, err := greet(t, address, &tls.Config{NextProtos: []string{"h2", "http/1.1"}})
		if err != nil {
			t.Fatal(err)
		}
		if got := state.PeerCertificates[0].DNSNames[0]; got != want {
			t.Errorf("serves the certificate of %s, want that of %s", got, want)
		}
		if state.NegotiatedProtocol != "http/1.1" {
			t.Errorf("speaks %q", state.NegotiatedProtocol)
		}
	}
	serves("first")
	writePair(t, dir, "second")
	serves("second")
	if got := log.String(); got != "" {
		t.Errorf("logged: %s", got)
	}
	put(t, filepath.Join(dir, "tls.key"), []byte("damaged"))
	serves("second")
	serves("second")
	if n := strings.Count(log.String(), "serving the certificate from before"); n != 1 {
		t.Errorf("logged %d times, want once: %s", n, log)
	}
	writePair(t, dir, "third")
	serves("third")
	if err := os.Remove(filepath.Join(dir, "tls.crt")); err != nil {
		t.Fatal(err)
	}
	serves("third")
}

func TestPolicy(t *testing.T) {
	dir := t.TempDir()
	writePair(t, dir, "server")
	const gcm, cbc = tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256, tls.TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA
	const old12, new13 = "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA", "TLS_AES_128_GCM_SHA256"
	suites := func(names ...string) servingtls.Options { return servingtls.Options{CipherSuites: names} }
	modern := func(names ...string) servingtls.Options {
		return servingtls.Options{MinVersion: "VersionTLS13", CipherSuites: names}
	}
	old := servingtls.Options{MinVersion: "VersionTLS10", CipherSuites: []string{old12}}
	chosen := suites(old12)
	const v12 = tls.VersionTLS12
	only := func(suite uint16) []uint16 { return []uint16{suite} }
	for name, test := range map[string]struct {
		options servingtls.Options
		max     uint16 // of the client
		suites  []uint16
		want    uint16 // version, 0 for a refusal
	}{
		"default":                                {want: tls.VersionTLS13},
		"default, 1.2":                           {max: tls.VersionTLS12, want: tls.VersionTLS12},
		"default, 1.1":                           {max: tls.VersionTLS11},
		"default, weak suite":                    {max: tls.VersionTLS12, suites: only(cbc)},
		"old":                                    {options: old, max: tls.VersionTLS11, want: tls.VersionTLS11},
		"chosen suite":                           {options: chosen, max: v12, suites: only(cbc), want: v12},
		"a suite that is not chosen":             {options: chosen, max: tls.VersionTLS12, suites: only(gcm)},
		"modern":                                 {options: modern(new13), want: tls.VersionTLS13},
		"modern, 1.2":                            {options: modern(), max: tls.VersionTLS12},
		"suites of 1.3 alone leave no older one": {options: suites(new13), max: tls.VersionTLS12},
		"suites of 1.3 beside one of an older on": {
			options: suites(new13, "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"), max: tls.VersionTLS12,
			want: tls.VersionTLS12,
		},
	} {
		t.Run(name, func(t *testing.T) {
			test.options.CertDir = dir
			config, err := servingtls.New(test.options, slog.New(slog.DiscardHandler))
			if err != nil {
				t.Fatal(err)
			}
			state, err := greet(t, serve(t, config), &tls.Config{
				MinVersion: tls.VersionTLS10, MaxVersion: test.max,
				CipherSuites: test.suites,
			})
			if (err != nil) != (test.want == 0) || state.Version != test.want {
				t.Errorf("%s, %v; want %s", tls.VersionName(state.Version), err, tls.VersionName(test.want))
			}
		})
	}
}

func TestWhatIsWrongIsNamed(t *testing.T) {
	half := t.TempDir()
	writePair(t, half, "server")
	put(t, filepath.Join(half, "tls.crt"), []byte("no certificate"))
	for name, test := range map[string]struct {
		options servingtls.Options
		says    []string
	}{
		"no files": {servingtls.Options{CertDir: "/nowhere"}, []string{"/nowhere/tls.crt"}},
		"damaged":  {servingtls.Options{CertDir: half}, []string{half}},
		"version": {
			servingtls.Options{MinVersion: "TLS1.2"},
			[]string{`"TLS1.2"`, "VersionTLS10, VersionTLS11, VersionTLS12, VersionTLS13"},
		},
		"OpenSSL names": {
			servingtls.Options{CipherSuites: []string{"ECDHE-RSA-AES128-GCM-SHA256"}},
			[]string{`"ECDHE-RSA-AES128-GCM-SHA256"`, "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"},
		},
	} {
		_, err := servingtls.New(test.options, slog.New(slog.DiscardHandler))
		if err == nil {
			t.Errorf("%s: no error", name)
			continue
		}
		if slices.ContainsFunc(test.says, func(part string) bool { return !strings.Contains(err.Error(), part) }) {
			t.Errorf("%s: %v; want %v in it", name, err, test.says)
		}
	}
}
