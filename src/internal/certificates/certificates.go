// Package certificates makes and verifies serving certificates, and says who makes them in each mode. It knows bytes
// alone: who uses it reads and writes the Secrets.
package certificates

import (
	"bytes"
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"
)

// Modes: who makes the Secret, and who publishes the authorities that clients trust.
const (
	// SelfManaged: the chart makes the Secret, without data; who serves fills it, and publishes the authorities.
	SelfManaged = "self-managed"
	// CertManager: cert-manager makes the Secret.
	CertManager = "cert-manager"
	// OpenShift: OpenShift's service CA does both.
	OpenShift = "openshift"
	// ExistingSecret: the administrator makes the Secret.
	ExistingSecret = "existingSecret"
)

// Keys of the Secret, as a Secret of type kubernetes.io/tls and cert-manager have them, and of the ConfigMap with the
// authorities.
const (
	CertificateKey = "tls.crt"
	PrivateKeyKey  = "tls.key"
	// AuthoritiesKey has all authorities that are to be trusted, as PEM. OpenShift's Secrets lack it.
	AuthoritiesKey = "ca.crt"
	// InjectedKey is where OpenShift's service CA injects its authorities into a ConfigMap.
	InjectedKey = "service-ca.crt"
	// authorityPrivateKey has the key of the first authority, in a self-managed Secret.
	authorityPrivateKey = "ca.key"
)

// Modes are all modes.
func Modes() []string { return []string{SelfManaged, CertManager, OpenShift, ExistingSecret} }

// Source is where a certificate comes from.
type Source struct {
	Mode   string
	Secret string
	// DNSName is <service>.<namespace>.svc.
	DNSName string
	// Maker says who fills a self-managed Secret, and where to look when that does not happen.
	Maker string
}

// Missing says why there is nothing to serve, and what to do.
func (s Source) Missing(fault error) error {
	service, namespace, _ := strings.Cut(strings.TrimSuffix(s.DNSName, ".svc"), ".")
	maker := s.Maker
	switch s.Mode {
	case CertManager:
		maker = "cert-manager makes it: see whether it runs, and `kubectl -n " + namespace + " describe certificate`"
	case OpenShift:
		maker = "OpenShift's service CA makes it for the Service " + service +
			": see its annotations and the project openshift-service-ca"
	case ExistingSecret:
		maker = "it has to be made with tls.crt, tls.key and ca.crt for " + s.DNSName
	}
	return fmt.Errorf("no certificate to serve from the Secret %s/%s: %w; %s", namespace, s.Secret, fault, maker)
}

// Pair is the certificate that a Secret contains.
func Pair(data map[string][]byte) (*tls.Certificate, error) {
	pair, err := tls.X509KeyPair(data[CertificateKey], data[PrivateKeyKey])
	if err != nil {
		return nil, fmt.Errorf("its tls.crt and tls.key are no certificate with its key (%w)", err)
	}
	return &pair, nil
}

// Verify does what a client that trusts the authorities will do at the handshake.
func Verify(pair *tls.Certificate, authorities []byte, dnsName string, now time.Time) error {
	roots, intermediates := x509.NewCertPool(), x509.NewCertPool()
	if !roots.AppendCertsFromPEM(authorities) {
		return errors.New("it contains no certificate in PEM")
	}
	// x509 has one sentence for both, with the present time in it.
	if from := pair.Leaf.NotBefore; now.Before(from) {
		return fmt.Errorf("the certificate is not yet valid, only from %s on: see the clock", from.Format(time.RFC3339))
	}
	if until := pair.Leaf.NotAfter; now.After(until) {
		return fmt.Errorf("the certificate has expired, at %s", until.Format(time.RFC3339))
	}
	for _, der := range pair.Certificate[1:] {
		if certificate, err := x509.ParseCertificate(der); err == nil {
			intermediates.AddCert(certificate)
		}
	}
	_, err := pair.Leaf.Verify(x509.VerifyOptions{
		DNSName: dnsName, Roots: roots, Intermediates: intermediates, CurrentTime: now,
		KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	})
	return err
}

// Merge gives the authorities of several PEM texts in order, each once, less those that have expired.
func Merge(now time.Time, texts ...[]byte) []byte {
	var merged []byte
	for _, text := range texts { // each alone: it may lack the newline at its end
		for _, certificate := range parse(text) {
			authority := encode(typeCertificate, certificate.Raw)
			if certificate.NotAfter.After(now) && !bytes.Contains(merged, authority) {
				merged = append(merged, authority...)
			}
		}
	}
	return merged
}

const typeCertificate = "CERTIFICATE"

// parse gives the certificates of a PEM text, and skips what is none.
func parse(text []byte) []*x509.Certificate {
	var certificates []*x509.Certificate
	for {
		var block *pem.Block
		if block, text = pem.Decode(text); block == nil {
			return certificates
		}
		if certificate, err := x509.ParseCertificate(block.Bytes); err == nil && block.Type == typeCertificate {
			certificates = append(certificates, certificate)
		}
	}
}

func encode(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

const (
	// The authority is renewed while two certificates fit into what is left of it: no certificate outlives its
	// authority, and a new authority is trusted long before it signs.
	authorityLifetime = 10 * 365 * 24 * time.Hour
	authorityMargin   = 2 * servingLifetime
	// A certificate is renewed after two thirds of its life.
	servingLifetime = 365 * 24 * time.Hour
	servingMargin   = servingLifetime / 3
	// skew is how far a client's clock may be behind.
	skew = time.Hour

	// keyBits is the size of RSA keys: RSA, because a TLS profile may allow no suite with ECDSA.
	keyBits = 2048
)

// Issue gives the contents of the self-managed Secret after the next step that is due, and whether there was one.
// There is one step at a time: a new authority is written first, so that clients trust it before it signs anything.
// It signs at once only where nothing valid is served.
func Issue(data map[string][]byte, dnsName string, now time.Time) (map[string][]byte, bool, error) {
	next := maps.Clone(data)
	if next == nil {
		next = map[string][]byte{}
	}
	if authorityDue(next, now) {
		if err := addAuthority(next, now); err != nil {
			return nil, false, fmt.Errorf("make an authority for %s: %w", dnsName, err)
		}
		if serves(next, dnsName, now) {
			return next, true, nil
		}
	}
	if serves(next, dnsName, now.Add(servingMargin)) {
		return next, false, nil
	}
	if err := sign(next, dnsName, now); err != nil {
		return nil, false, fmt.Errorf("make a certificate for %s: %w", dnsName, err)
	}
	return next, true, nil
}

// Renewal is when the next step will be due.
func Renewal(data map[string][]byte) (time.Time, error) {
	authorities := parse(data[AuthoritiesKey])
	if len(authorities) == 0 {
		return time.Time{}, errors.New("its ca.crt contains no certificate")
	}
	pair, err := Pair(data)
	if err != nil {
		return time.Time{}, err
	}
	serving, signing := pair.Leaf.NotAfter.Add(-servingMargin), authorities[0].NotAfter.Add(-authorityMargin)
	if signing.Before(serving) {
		return signing, nil
	}
	return serving, nil
}

// authorityDue reports whether the Secret lacks an authority that can sign: its first, which the key belongs to.
func authorityDue(data map[string][]byte, now time.Time) bool {
	authority, err := tls.X509KeyPair(data[AuthoritiesKey], data[authorityPrivateKey])
	return err != nil || !authority.Leaf.IsCA || now.Add(authorityMargin).After(authority.Leaf.NotAfter)
}

// addAuthority puts a new authority before those that are trusted already and have not expired.
func addAuthority(data map[string][]byte, now time.Time) error {
	made, key, err := create(&x509.Certificate{
		Subject:   pkix.Name{CommonName: fmt.Sprintf("hostpath-provisioner@%d", now.Unix())},
		NotBefore: now.Add(-skew), NotAfter: now.Add(authorityLifetime),
		BasicConstraintsValid: true, IsCA: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}, nil)
	if err != nil {
		return err
	}
	data[AuthoritiesKey], data[authorityPrivateKey] = Merge(now, made, data[AuthoritiesKey]), key
	return nil
}

// serves reports whether the Secret's certificate is one that its authorities verify at a time.
func serves(data map[string][]byte, dnsName string, at time.Time) bool {
	pair, err := Pair(data)
	return err == nil && Verify(pair, data[AuthoritiesKey], dnsName, at) == nil
}

// sign makes a certificate with the newest authority.
func sign(data map[string][]byte, dnsName string, now time.Time) error {
	authority, err := tls.X509KeyPair(data[AuthoritiesKey], data[authorityPrivateKey])
	if err != nil {
		return err
	}
	data[CertificateKey], data[PrivateKeyKey], err = create(&x509.Certificate{
		Subject:   pkix.Name{CommonName: dnsName},
		NotBefore: now.Add(-skew), NotAfter: now.Add(servingLifetime),
		DNSNames:              []string{dnsName, dnsName + ".cluster.local"},
		BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageKeyEncipherment,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}, &authority)
	return err
}

// create makes a certificate with a new key, both as PEM. Without an authority it is its own.
func create(template *x509.Certificate, authority *tls.Certificate) (certificate, private []byte, err error) {
	key, err := rsa.GenerateKey(rand.Reader, keyBits)
	if err != nil {
		return nil, nil, err
	}
	parent, signer := template, crypto.PrivateKey(key)
	if authority != nil {
		parent, signer = authority.Leaf, authority.PrivateKey
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	if err != nil {
		return nil, nil, err
	}
	return encode(typeCertificate, der), encode("RSA PRIVATE KEY", x509.MarshalPKCS1PrivateKey(key)), nil
}
