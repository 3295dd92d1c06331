package certificates

import (
	"bytes"
	"crypto/tls"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/certificates/certificatestest"
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
	delete(other, authorityPrivateKey)

	t.Run("from nothing", func(t *testing.T) {
		if !serves(fresh, host, start()) || !serves(fresh, host, start().Add(-skew/2)) {
			t.Error("the certificate is not valid now, or not for a clock that is behind")
		}
		if len(parse(fresh[AuthoritiesKey])) != 1 {
			t.Error("want one authority")
		}
	})
	t.Run("nothing is due", func(t *testing.T) {
		for _, at := range []time.Time{start(), start().Add(time.Hour), leafNears.Add(-time.Minute)} {
			if _, stepped, err := Issue(fresh, host, at); stepped || err != nil {
				t.Errorf("a step at %s (%v)", at, err)
			}
		}
	})
	t.Run("certificate nears its end", func(t *testing.T) {
		next := step(t, fresh, leafNears.Add(time.Minute))
		if same(next, fresh, CertificateKey) || !same(next, fresh, AuthoritiesKey) ||
			!serves(next, host, leafNears.Add(servingLifetime-day)) {
			t.Error("want a new certificate of the old authority")
		}
	})
	t.Run("another host", func(t *testing.T) {
		if next, stepped, err := Issue(fresh, "other.hpp.svc", start()); err != nil || !stepped ||
			!serves(next, "other.hpp.svc", start()) {
			t.Errorf("no certificate for the other host (%v)", err)
		}
	})
	t.Run("authority nears its end", func(t *testing.T) {
		leaf := step(t, fresh, authorityNears.Add(-day))
		next := step(t, leaf, authorityNears.Add(day))
		if !same(next, leaf, CertificateKey) || len(parse(next[AuthoritiesKey])) != 2 ||
			!serves(next, host, authorityNears.Add(day)) {
			t.Error("want a new authority beside the old one, and the certificate as it was")
		}
		last := step(t, next, authorityNears.Add(servingLifetime))
		newest := encode(typeCertificate, parse(last[AuthoritiesKey])[0].Raw)
		if Verify(pairOf(t, last), newest, host, authorityNears.Add(servingLifetime)) != nil {
			t.Error("the next certificate is not of the new authority")
		}
	})
	t.Run("an authority that has ended is forgotten", func(t *testing.T) {
		next := step(t, fresh, start().Add(authorityLifetime))
		if got := parse(next[AuthoritiesKey]); len(got) != 1 || !serves(next, host, start().Add(authorityLifetime)) {
			t.Errorf("%d authorities are trusted, want the new one", len(got))
		}
	})
	t.Run("authority without its key, as cert-manager leaves it", func(t *testing.T) {
		next := step(t, other, start())
		if !same(next, fresh, CertificateKey) || len(parse(next[AuthoritiesKey])) != 2 {
			t.Error("want a new authority beside the old one, and the certificate as it was")
		}
	})
	t.Run("rubbish", func(t *testing.T) {
		next := step(
			t,
			map[string][]byte{
				AuthoritiesKey:      []byte("x"),
				authorityPrivateKey: []byte("x"),
				CertificateKey:      nil,
				"more":              []byte("y"),
			},
			start(),
		)
		if !serves(next, host, start()) || string(next["more"]) != "y" {
			t.Error("want a certificate, and foreign keys as they were")
		}
	})
}

func TestRenewalIsWhenAStepIsDue(t *testing.T) {
	data := step(t, step(t, nil, start().AddDate(-7, -6, 0)), start()) // the authority is due before the certificate
	for range 4 {
		due, err := Renewal(data)
		if err != nil {
			t.Fatal(err)
		}
		if _, stepped, err := Issue(data, host, due.Add(-time.Minute)); stepped || err != nil {
			t.Fatalf("a step before %s (%v)", due, err)
		}
		data = step(t, data, due.Add(time.Minute))
	}
	for _, spoilt := range []string{AuthoritiesKey, CertificateKey} {
		other := maps.Clone(data)
		other[spoilt] = []byte("x")
		if _, err := Renewal(other); err == nil {
			t.Errorf("no error for a Secret without %s", spoilt)
		}
	}
}

func TestVerify(t *testing.T) {
	good, foreign, own := step(t, nil, start()), step(t, nil, start()), certificatestest.SelfSigned(t, host, start())
	for name, test := range map[string]struct {
		data        map[string][]byte
		authorities []byte
		host        string
		at          time.Time
		want        string // the sentence's begin; "" for none
	}{
		"verified":       {good, good[AuthoritiesKey], host, start(), ""},
		"beside another": {good, slices.Concat(foreign[AuthoritiesKey], good[AuthoritiesKey]), host, start(), ""},
		"its own":        {own, own[AuthoritiesKey], host, start(), ""},
		"in the cluster": {good, good[AuthoritiesKey], host + ".cluster.local", start(), ""},
		"of another": {
			good, foreign[AuthoritiesKey], host, start(),
			"x509: certificate signed by unknown authority",
		},
		"no authority": {good, nil, host, start(), "it contains no certificate in PEM"},
		"for another name": {
			good, good[AuthoritiesKey], "x", start(),
			"x509: certificate is valid for operator.hpp.svc, ",
		},
		"clock behind": {
			good, good[AuthoritiesKey], host, start().Add(-day),
			"the certificate is not yet valid, only from 2026-11-21T11:00:00Z on: see the clock",
		},
		"expired": {
			good, good[AuthoritiesKey], host, start().Add(servingLifetime + day),
			"the certificate has expired, at 2027-11-21T12:00:00Z",
		},
	} {
		t.Run(name, func(t *testing.T) {
			err := Verify(pairOf(t, test.data), test.authorities, test.host, test.at)
			if (test.want == "") != (err == nil) || err != nil && !strings.HasPrefix(err.Error(), test.want) {
				t.Errorf("got %v, want %q", err, test.want)
			}
		})
	}
}

func TestMerge(t *testing.T) {
	first, second := step(t, nil, start())[AuthoritiesKey], step(t, nil, start().Add(day))[AuthoritiesKey]
	both := slices.Concat(first, second)
	for name, test := range map[string]struct {
		at    time.Time
		texts [][]byte
		want  []byte
	}{
		"nothing":        {start(), [][]byte{nil, []byte("rubbish")}, nil},
		"once each":      {start(), [][]byte{first, second, both}, both},
		"first ones":     {start(), [][]byte{second, both}, slices.Concat(second, first)},
		"less what ends": {start().Add(authorityLifetime), [][]byte{both}, second},
		"less the rest": {
			start(),
			[][]byte{slices.Concat([]byte("# mine\n"), first, []byte("\n# his\n"), second)},
			both,
		},
		"no newline": {start(), [][]byte{bytes.TrimSpace(first), []byte("x"), second}, both},
		"no keys":    {start(), [][]byte{encode("RSA PRIVATE KEY", []byte("x")), first}, first},
		"no others":  {start(), [][]byte{encode(typeCertificate, []byte("x")), first}, first},
	} {
		t.Run(name, func(t *testing.T) {
			if got := Merge(test.at, test.texts...); !bytes.Equal(got, test.want) {
				t.Errorf("got\n%swant\n%s", got, test.want)
			}
		})
	}
}

func TestMissingSaysWhoMakesIt(t *testing.T) {
	const before = "no certificate to serve from the Secret hpp/certificate: it is not there; "
	for mode, want := range map[string]string{
		SelfManaged: "I do",
		CertManager: "cert-manager makes it: see whether it runs, and `kubectl -n hpp describe certificate`",
		OpenShift: "OpenShift's service CA makes it for the Service operator: see its annotations and the project " +
			"openshift-service-ca",
		ExistingSecret: "it has to be made with tls.crt, tls.key and ca.crt for operator.hpp.svc",
	} {
		fault := errors.New("it is not there")
		got := Source{Mode: mode, Secret: "certificate", DNSName: host, Maker: "I do"}.Missing(fault)
		if got.Error() != before+want || !errors.Is(got, fault) {
			t.Errorf("got %s, want %s", got, before+want)
		}
	}
}

// step is one that has to be due.
func step(t *testing.T, data map[string][]byte, at time.Time) map[string][]byte {
	t.Helper()
	next, stepped, err := Issue(data, host, at)
	if err != nil || !stepped {
		t.Fatalf("no step (%v)", err)
	}
	return next
}

func same(a, b map[string][]byte, key string) bool { return slices.Equal(a[key], b[key]) }

func pairOf(t *testing.T, data map[string][]byte) *tls.Certificate {
	t.Helper()
	pair, err := Pair(data)
	if err != nil {
		t.Fatal(err)
	}
	return pair
}
