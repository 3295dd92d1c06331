package operator

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/docs"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/v1beta1"
	"github.com/hostpath-provisioner/hostpath-provisioner/tests/api/harness"
)

// intermediate are the suites of Mozilla's intermediate profile that Go has, as JSON.
func intermediate() string {
	return `["TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256","TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",` +
		`"TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384","TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384",` +
		`"TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256","TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256"]`
}

// hello is what a client offers; nil suites are Go's own.
type hello struct {
	version uint16
	suites  []uint16
}

// tlsPolicy dials both servers: what counts is what a handshake comes to.
func tlsPolicy(t *testing.T, w *world) {
	// The certificate that the operator makes has an RSA key.
	const weak, strong = tls.TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA, tls.TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384
	w.Create(t, withPools("local", "/var/hpvolumes"))
	w.condition(t, v1beta1.Available, metav1.ConditionTrue)
	old, tls12 := hello{version: tls.VersionTLS10}, hello{version: tls.VersionTLS12}
	tls13 := hello{version: tls.VersionTLS13}
	weak12, strong12 := hello{tls.VersionTLS12, []uint16{weak}}, hello{tls.VersionTLS12, []uint16{strong}}

	w.handshakes(t, "without OpenShift's APIServer", map[*hello]bool{
		&old: false, &weak12: false, &strong12: true, &tls12: true, &tls13: true,
	})
	w.driverTLS(t, "VersionTLS12")

	cluster := &configv1.APIServer{ObjectMeta: metav1.ObjectMeta{Name: "cluster"}}
	cluster.Spec.TLSSecurityProfile = &configv1.TLSSecurityProfile{
		Type: configv1.TLSProfileModernType, Modern: &configv1.ModernTLSProfile{},
	}
	w.Create(t, cluster)
	w.handshakes(t, "Modern", map[*hello]bool{&old: false, &strong12: false, &tls12: false, &tls13: true})
	w.driverTLS(t, "VersionTLS13")

	harness.Change(t, w.Server, cluster, func(a *configv1.APIServer) {
		a.Spec.TLSSecurityProfile = &configv1.TLSSecurityProfile{
			Type: configv1.TLSProfileOldType, Old: &configv1.OldTLSProfile{},
		}
	})
	w.handshakes(t, "Old", map[*hello]bool{&old: true, &weak12: true, &tls13: true})

	harness.Change(t, w.Server, cluster, func(a *configv1.APIServer) {
		a.Spec.TLSSecurityProfile = &configv1.TLSSecurityProfile{
			Type: configv1.TLSProfileCustomType,
			Custom: &configv1.CustomTLSProfile{
				TLSProfileSpec: configv1.TLSProfileSpec{
					MinTLSVersion: configv1.VersionTLS12, Ciphers: []string{"ECDHE-RSA-AES256-GCM-SHA384"},
				},
			},
		}
	})
	other12 := hello{tls.VersionTLS12, []uint16{tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256}}
	w.handshakes(t, "Custom", map[*hello]bool{&old: false, &other12: false, &strong12: true, &tls13: true})

	// What the administrator set wins over the cluster's policy.
	w.operator.Restart(t, "TLS_MIN_VERSION_OVERRIDE=VersionTLS13")
	w.handshakes(t, "override of the version", map[*hello]bool{&strong12: false, &tls13: true})
	w.operator.Restart(t, "TLS_CIPHERS_OVERRIDE=TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
		"TLS_MIN_VERSION_OVERRIDE=VersionTLS12")
	w.handshakes(t, "override of the suites", map[*hello]bool{&strong12: false, &other12: true, &tls13: true})
	w.operator.Restart(t)

	w.Delete(t, cluster)
	w.handshakes(t, "the policy is gone", map[*hello]bool{&old: false, &other12: true, &strong12: true, &tls13: true})
	w.metrics(t, "kubevirt_hpp_cr_ready 1")
}

// handshakes waits until both servers take what they should take, and nothing else.
func (w *world) handshakes(t *testing.T, when string, wanted map[*hello]bool) {
	t.Helper()
	for _, address := range []string{w.operator.Webhook, w.operator.Metrics} {
		harness.Eventually(t, when+": "+address, func(ctx context.Context) error {
			var problems []error
			for offer, want := range wanted {
				err := offer.dial(ctx, address)
				if (err == nil) != want || isTimeout(err) {
					problems = append(problems,
						fmt.Errorf("offered %s %v: accepted %v (%w)", tls.VersionName(offer.version), offer.suites,
							err == nil, err))
				}
			}
			return errors.Join(problems...)
		})
	}
}

// dial makes a handshake. One that is not answered must not take all the time that the next ones have.
func (h hello) dial(ctx context.Context, address string) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	dialer := &tls.Dialer{Config: &tls.Config{
		MinVersion: h.version, MaxVersion: h.version, CipherSuites: h.suites, InsecureSkipVerify: true,
	}}
	connection, err := dialer.DialContext(ctx, "tcp", address)
	if err == nil {
		err = connection.Close()
	}
	return err
}

// isTimeout reports whether nobody has answered, which is no refusal.
func isTimeout(err error) bool {
	var timeout net.Error
	return errors.Is(err, context.DeadlineExceeded) || errors.As(err, &timeout) && timeout.Timeout()
}

// driverTLS waits until the driver's metrics are to be served with this least version.
func (w *world) driverTLS(t *testing.T, version string) {
	t.Helper()
	harness.Until(t, w.Server, "the driver's TLS", daemonSet(driverName), func(set *appsv1.DaemonSet) error {
		for _, container := range set.Spec.Template.Spec.Containers {
			if slices.ContainsFunc(container.Args,
				func(arg string) bool { return strings.HasSuffix(arg, "="+version) }) {
				return nil
			}
		}
		return fmt.Errorf("no argument says %s", version)
	})
}

// metrics waits for a line of the operator's /metrics, which has what docs/reference/metrics.md lists.
func (w *world) metrics(t *testing.T, line string) {
	t.Helper()
	client := &http.Client{
		Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true},
	}
	harness.Eventually(t, "metric "+line, func(ctx context.Context) error {
		text, err := harness.Fetch(ctx, client, "https://"+w.operator.Metrics+"/metrics")
		if err != nil {
			return err
		}
		if !strings.Contains("\n"+text, "\n"+line+"\n") {
			return fmt.Errorf("no such line in %d bytes", len(text))
		}
		return docs.CheckMetrics(docs.Exposed(text), "The operator")
	})
}
