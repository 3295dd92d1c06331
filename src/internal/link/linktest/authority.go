package linktest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"testing"
	"time"
)

// Authority signs certificates.
type Authority struct {
	PEM         []byte
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
}

// NewAuthority makes one.
func NewAuthority(t testing.TB) *Authority {
	t.Helper()
	a := &Authority{certificate: &x509.Certificate{
		SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(100 * time.Hour), IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign,
	}}
	der, key := issue(t, a.certificate, a.certificate, nil)
	parsed, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	a.certificate, a.key, a.PEM = parsed, key, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	return a
}

func issue(t testing.TB, wanted, parent *x509.Certificate, signer *ecdsa.PrivateKey) ([]byte, *ecdsa.PrivateKey) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	if signer == nil {
		signer = key
	}
	der, err := x509.CreateCertificate(rand.Reader, wanted, parent, &key.PublicKey, signer)
	if err != nil {
		t.Fatal(err)
	}
	return der, key
}

// Issue makes the certificate of an IP address or a DNS name, valid from then on.
func (a *Authority) Issue(t testing.TB, host string, from time.Time) *tls.Certificate {
	t.Helper()
	wanted := &x509.Certificate{SerialNumber: big.NewInt(2), NotBefore: from, NotAfter: from.Add(time.Hour)}
	if ip := net.ParseIP(host); ip != nil {
		wanted.IPAddresses = []net.IP{ip}
	} else {
		wanted.DNSNames = []string{host}
	}
	der, key := issue(t, wanted, a.certificate, a.key)
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// Token is one that fleettest.Review takes. Its end is in seconds since 1970.
func Token(node string, expires int64) string {
	payload := fmt.Appendf(nil, `{"node":%q,"exp":%d}`, node, expires)
	return "e30." + base64.RawURLEncoding.EncodeToString(payload) + ".signature"
}
