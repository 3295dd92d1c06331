package certificates

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"maps"
	"time"

	"github.com/openshift/library-go/pkg/crypto"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
)

const (
	caCertKey = "ca.crt"
	caKeyKey  = "ca.key"

	// The authority is renewed while two certificates fit into what is left of it: no certificate outlives its
	// authority, and a new authority is trusted long before it signs.
	authorityLifetime = 10 * 365 * 24 * time.Hour
	authorityMargin   = 2 * servingLifetime
	// A certificate is renewed after two thirds of its life.
	servingLifetime = 365 * 24 * time.Hour
	servingMargin   = servingLifetime / 3
	// skew is how far the API server's clock may be behind.
	skew = time.Hour

	// keyBits is the size of RSA keys: RSA, because a TLS profile may allow no suite with ECDSA.
	keyBits = 2048
)

// issue gives the contents of the self-managed Secret after the next step that is due, and whether there was one.
// There is one step at a time: a new authority is written first, so that the API server trusts it before it signs
// anything. It signs at once only where nothing valid is served.
func issue(data map[string][]byte, dnsName string, now time.Time) (map[string][]byte, bool, error) {
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

// renewal is when the next step will be due.
func renewal(data map[string][]byte) (time.Time, error) {
	authority, err := crypto.CertsFromPEM(data[caCertKey])
	if err != nil {
		return time.Time{}, err
	}
	pair, err := tls.X509KeyPair(data[corev1.TLSCertKey], data[corev1.TLSPrivateKeyKey])
	if err != nil {
		return time.Time{}, err
	}
	serving, signing := pair.Leaf.NotAfter.Add(-servingMargin), authority[0].NotAfter.Add(-authorityMargin)
	if signing.Before(serving) {
		return signing, nil
	}
	return serving, nil
}

// authorityDue reports whether the Secret lacks an authority that can sign. Its first certificate is the one that
// the key belongs to.
func authorityDue(data map[string][]byte, now time.Time) bool {
	authority, err := tls.X509KeyPair(data[caCertKey], data[caKeyKey])
	return err != nil || !authority.Leaf.IsCA || now.Add(authorityMargin).After(authority.Leaf.NotAfter)
}

// addAuthority puts a new authority before those that are trusted already and have not expired.
func addAuthority(data map[string][]byte, now time.Time) error {
	// Called unsafe for the clock that it lets one choose: here the wall's, less the skew.
	made, err := crypto.UnsafeMakeSelfSignedCAConfigForDurationAtTime(
		fmt.Sprintf("hostpath-provisioner@%d", now.Unix()), func() time.Time { return now.Add(-skew) },
		authorityLifetime)
	if err != nil {
		return err
	}
	trusted := made.Certs
	if old, err := crypto.CertsFromPEM(data[caCertKey]); err == nil {
		for _, certificate := range old {
			if certificate.NotAfter.After(now) {
				trusted = append(trusted, certificate)
			}
		}
	}
	if data[caCertKey], err = crypto.EncodeCertificates(trusted...); err != nil {
		return err
	}
	data[caKeyKey], err = crypto.EncodeKey(made.Key)
	return err
}

// serves reports whether the Secret's certificate is one that its authorities verify at a time.
func serves(data map[string][]byte, dnsName string, at time.Time) bool {
	pair, err := tls.X509KeyPair(data[corev1.TLSCertKey], data[corev1.TLSPrivateKeyKey])
	return err == nil && verify(&pair, data[caCertKey], dnsName, at) == nil
}

// sign makes a certificate with the newest authority.
func sign(data map[string][]byte, dnsName string, now time.Time) error {
	authority, err := crypto.GetCAFromBytes(data[caCertKey], data[caKeyKey])
	if err != nil {
		return err
	}
	authority.Config.Certs = authority.Config.Certs[:1]
	lifetime := func(template *x509.Certificate) error {
		template.NotBefore, template.NotAfter = now.Add(-skew), now.Add(servingLifetime)
		return nil
	}
	made, err := authority.NewServerCertificate(sets.New(dnsName, dnsName+".cluster.local"),
		crypto.RSAKeyPairGenerator{Bits: keyBits}, crypto.WithExtensions(lifetime))
	if err != nil {
		return err
	}
	data[corev1.TLSCertKey], data[corev1.TLSPrivateKeyKey], err = made.GetPEMBytes()
	return err
}
