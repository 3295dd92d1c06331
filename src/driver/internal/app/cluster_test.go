package app_test

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	pb "github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/certificates/certificatestest"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/waittest"
)

// kubernetes is as much of a cluster's API as a driver without volumes asks for: it has no PersistentVolumes, and does
// not give the node's labels. It gives the option that lets the driver ask it.
func kubernetes(t *testing.T) (serviceAccount string) {
	t.Helper()
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Method != http.MethodGet:
			t.Errorf("the node writes: %s %s", r.Method, r.URL)
		case r.URL.Path == "/api/v1/persistentvolumes":
			_, _ = w.Write([]byte(`{"kind":"PersistentVolumeList","apiVersion":"v1","items":[]}`))
			return
		}
		w.WriteHeader(http.StatusNotFound)
	}))
	t.Cleanup(server.Close)
	dir := t.TempDir()
	writeFile(t, filepath.Join(dir, "token"), "s3cret")
	writeFile(t, filepath.Join(dir, "ca.crt"),
		string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})))
	host, port, err := net.SplitHostPort(server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("KUBERNETES_SERVICE_HOST", host)
	t.Setenv("KUBERNETES_SERVICE_PORT", port)
	return "--service-account=" + dir
}

// TestTheClusterIsSilent: a pool that the node's labels decide on waits for them, and keeps no other from its work.
func TestTheClusterIsSilent(t *testing.T) {
	m := newMachine(t, "storagePools: [{name: fast, path: $POOL/fast}, {name: nvme, path: $POOL/nvme, nodeSelector: "+
		"{disk: nvme}}]")
	m.args = []string{"--standalone=false", kubernetes(t), "--pod-namespace=storage"}
	controller, _ := m.start(t)
	if _, err := controller.GetCapacity(t.Context(), &pb.GetCapacityRequest{}); err != nil { // it serves
		t.Fatal(err)
	}
	becomes := func(want ...string) {
		t.Helper()
		waittest.Until(t, fmt.Sprintf("the pools are %q", want), func() bool {
			var got []string
			for _, p := range m.status(t).Pools {
				got = append(got, strings.TrimSpace(p.State+" "+p.Reason+": "+p.Message))
			}
			return slices.Equal(got, want)
		})
	}
	unknown := "not selected NodeUnknown: waiting for the Kubernetes API to give this node's labels, which decide " +
		"whether " + m.path("pool/nvme") + " is used"
	becomes("present :", unknown)
	m.replacePool(t)
	becomes(fmt.Sprintf("absent PathMissing: %s does not exist; mount the right one, or if the change is meant: "+
		"kubectl hpp pool forget fast --node NODE", m.path("pool/fast")), unknown)
}

// writeCertificate makes a certificate for localhost and gives what trusts it.
func writeCertificate(t *testing.T, dir string) *x509.CertPool {
	t.Helper()
	pair := certificatestest.SelfSigned(t, "localhost", time.Now().Add(-time.Hour))
	for name, data := range pair {
		writeFile(t, filepath.Join(dir, name), string(data))
	}
	trusted := x509.NewCertPool()
	trusted.AppendCertsFromPEM(pair["ca.crt"])
	return trusted
}

func TestMetricsOverTLS(t *testing.T) {
	m := newMachine(t, onePool)
	dir, address := t.TempDir(), freeAddress(t)
	trusted := writeCertificate(t, dir)
	m.args = []string{"--metrics-tls-address=" + address, "--metrics-tls-cert-dir=" + dir}
	controller, _ := m.start(t)
	if _, err := controller.GetCapacity(t.Context(), &pb.GetCapacityRequest{}); err != nil { // it serves
		t.Fatal(err)
	}
	get := func(trusted *x509.CertPool, path string) (int, string) {
		t.Helper()
		transport := &http.Transport{
			TLSClientConfig: &tls.Config{RootCAs: trusted, ServerName: "localhost"}, DisableKeepAlives: true,
			ForceAttemptHTTP2: true,
		}
		return fetch(t, &http.Client{Transport: transport}, "https://"+address+path)
	}
	if code, body := get(trusted, "/metrics"); code != http.StatusOK ||
		!strings.Contains(body, `kubevirt_hpp_pool_path_shared_with_os{pool="local"} `) {
		t.Errorf("/metrics over TLS: %d %s", code, body)
	}
	if code, _ := get(trusted, "/healthz"); code != http.StatusNotFound {
		t.Errorf("/healthz over TLS: %d", code)
	}
	if code, _ := m.get(t, "/metrics"); code != http.StatusNotFound {
		t.Errorf("/metrics in the clear: %d", code)
	}
	if code, body := m.get(t, "/healthz"); code != http.StatusOK {
		t.Errorf("/healthz: %d %s", code, body)
	}
	get(writeCertificate(t, dir), "/metrics") // fails the test if it does not serve the new certificate
}
