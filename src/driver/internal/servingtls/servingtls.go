// Package servingtls makes the TLS configuration of a server from files that somebody else renews, and from the names
// of versions and cipher suites that Kubernetes uses.
package servingtls

import (
	"crypto/tls"
	"fmt"
	"log/slog"
	"strings"
)

// Options are the files and the policy; all but CertDir may be empty.
type Options struct {
	// CertDir has tls.crt and tls.key, as a Secret of type kubernetes.io/tls is mounted.
	CertDir string
	// MinVersion is VersionTLS10 to VersionTLS13, "" for VersionTLS12.
	MinVersion string
	// CipherSuites are IANA names; none means those of Mozilla's intermediate profile. They are for TLS 1.2 and older: Go
	// does not let the suites of TLS 1.3 be chosen.
	CipherSuites []string
}

// New reads the certificate and returns a configuration that reads it again, at a handshake, whenever the files have
// changed.
func New(o Options, log *slog.Logger) (*tls.Config, error) {
	version, err := Version(o.MinVersion)
	if err != nil {
		return nil, err
	}
	suites, err := Suites(o.CipherSuites)
	if err != nil {
		return nil, err
	}
	if len(suites) == 0 { // only suites of TLS 1.3 are wanted, so nothing older is
		version = tls.VersionTLS13
	}
	pair := &keyPair{dir: o.CertDir, log: log}
	if _, err := pair.get(nil); err != nil {
		return nil, err
	}
	return &tls.Config{
		MinVersion: version, CipherSuites: suites, GetCertificate: pair.get,
		// One scrape a connection: HTTP/2 would bring nothing but its ways to keep a server busy.
		NextProtos: []string{"http/1.1"},
	}, nil
}

// Version is the number of a TLS version by its name.
func Version(name string) (uint16, error) {
	if name == "" {
		return tls.VersionTLS12, nil
	}
	for _, v := range versions() {
		if v.name == name {
			return v.number, nil
		}
	}
	var known []string
	for _, v := range versions() {
		known = append(known, v.name)
	}
	return 0, fmt.Errorf("%q: want one of %s", name, strings.Join(known, ", "))
}

type version struct {
	name   string
	number uint16
}

func versions() []version {
	return []version{
		{"VersionTLS10", tls.VersionTLS10},
		{"VersionTLS11", tls.VersionTLS11},
		{"VersionTLS12", tls.VersionTLS12},
		{"VersionTLS13", tls.VersionTLS13},
	}
}

// Suites are the numbers of cipher suites by their names, less those of TLS 1.3.
func Suites(names []string) ([]uint16, error) {
	if len(names) == 0 {
		return intermediate(), nil
	}
	known := append(tls.CipherSuites(), tls.InsecureCipherSuites()...)
	var numbers []uint16
	for _, name := range names {
		suite := find(known, name)
		if suite == nil {
			var allowed []string
			for _, s := range known {
				allowed = append(allowed, s.Name)
			}
			return nil, fmt.Errorf("%q: want names among %s", name, strings.Join(allowed, ", "))
		}
		if suite.SupportedVersions[0] < tls.VersionTLS13 {
			numbers = append(numbers, suite.ID)
		}
	}
	return numbers, nil
}

func find(suites []*tls.CipherSuite, name string) *tls.CipherSuite {
	for _, s := range suites {
		if s.Name == name {
			return s
		}
	}
	return nil
}

// intermediate is Mozilla's profile of that name (https://wiki.mozilla.org/Security/Server_Side_TLS), less the suites
// that Go lacks.
func intermediate() []uint16 {
	return []uint16{
		tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256, tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
		tls.TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384, tls.TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
		tls.TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256, tls.TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
	}
}
