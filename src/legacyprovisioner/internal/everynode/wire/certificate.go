package wire

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/names"
)

const (
	// lifetime is longer than a process lives, with which the certificate ends.
	lifetime = 10 * 365 * 24 * time.Hour
	// skew is how far the provisioner's clock may be behind.
	skew = time.Hour
)

// Issue makes a manager's certificate, and the same as PEM for the ConfigMap. Nobody signs it: the provisioner trusts
// the one that it finds in the ConfigMap under the node's name, and only the managers' account may write there.
func Issue(now time.Time) (tls.Certificate, []byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, nil, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(now.UnixNano()), Subject: pkix.Name{CommonName: names.EveryNodeManager},
		DNSNames: []string{names.EveryNodeManager}, NotBefore: now.Add(-skew), NotAfter: now.Add(lifetime),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return tls.Certificate{}, nil, err
	}
	public := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, public, nil
}

// Serve is a manager's side of TLS.
func Serve(certificate tls.Certificate) *tls.Config {
	return &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS13}
}

// Trust is the provisioner's side, for the one manager that has registered this certificate.
func Trust(public []byte) (*tls.Config, error) {
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(public) {
		return nil, errors.New("what its manager has registered is no certificate")
	}
	return &tls.Config{RootCAs: roots, ServerName: names.EveryNodeManager, MinVersion: tls.VersionTLS13}, nil
}
