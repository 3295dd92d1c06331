// Package servingtls makes the TLS configuration of a server from files that somebody else renews, and from the names
// of versions and cipher suites that Kubernetes uses.
package servingtls

import (
	"cmp"
	"crypto/tls"
	"fmt"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/logging"
)

// Options are the files and the policy; all but CertDir may be empty.
type Options struct {
	// CertDir has tls.crt and tls.key, as a Secret of type kubernetes.io/tls is mounted.
	CertDir string
	// MinVersion is VersionTLS10 to VersionTLS13, "" for VersionTLS12.
	MinVersion string
	// CipherSuites are IANA names; none means those of Mozilla's intermediate profile. They are for TLS 1.2 and older:
	// Go does not let the suites of TLS 1.3 be chosen.
	CipherSuites []string
}

// New reads the certificate and returns a configuration that reads it again at each handshake, of which there is one a
// scrape.
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

// keyPair is a certificate and its key on disk.
type keyPair struct {
	dir string
	log *slog.Logger

	mu      sync.Mutex
	current *tls.Certificate
	fault   string // what was last wrong with the files, so that it is said once
}

// get gives the pair that is on disk, or if that cannot be used the last one that could: the kubelet replaces both
// files at once, other people do not.
func (p *keyPair) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	pair, err := tls.LoadX509KeyPair(filepath.Join(p.dir, "tls.crt"), filepath.Join(p.dir, "tls.key"))
	if err == nil {
		p.current, p.fault = &pair, ""
		return p.current, nil
	}
	err = fmt.Errorf("read the certificate in %s: %w", p.dir, err)
	if p.current == nil {
		return nil, err
	}
	if p.fault != err.Error() {
		p.fault = err.Error()
		p.log.Warn("serving the certificate from before", logging.KeyError, err)
	}
	return p.current, nil
}

// Version is the number of a TLS version by its name.
func Version(name string) (uint16, error) {
	versions := map[string]uint16{
		"VersionTLS10": tls.VersionTLS10, "VersionTLS11": tls.VersionTLS11,
		"VersionTLS12": tls.VersionTLS12, "VersionTLS13": tls.VersionTLS13,
	}
	if version, ok := versions[cmp.Or(name, "VersionTLS12")]; ok {
		return version, nil
	}
	return 0, fmt.Errorf("%q: want one of %s", name, strings.Join(slices.Sorted(maps.Keys(versions)), ", "))
}

// Suites are the numbers of cipher suites by their names, less those of TLS 1.3.
func Suites(names []string) (numbers []uint16, err error) {
	if len(names) == 0 {
		return intermediate(), nil
	}
	suites := append(tls.CipherSuites(), tls.InsecureCipherSuites()...)
	var known []string
	for _, s := range suites {
		known = append(known, s.Name)
	}
	for _, name := range names {
		i := slices.Index(known, name)
		if i < 0 {
			return nil, fmt.Errorf("%q: want names among %s", name, strings.Join(known, ", "))
		}
		if suites[i].SupportedVersions[0] < tls.VersionTLS13 {
			numbers = append(numbers, suites[i].ID)
		}
	}
	return numbers, nil
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
