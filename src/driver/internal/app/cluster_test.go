package app_test

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	pb "github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/certificates/certificatestest"
)

// kubernetes is as much of a cluster's API as a driver without volumes asks for. What is applied to pods' status
// arrives in reports, after as many failures as asked for.
func kubernetes(t *testing.T, failures int) (kubeconfig string, reports <-chan corev1.Pod) {
	t.Helper()
	applied := make(chan corev1.Pod)
	mux := http.NewServeMux()
	answer := func(body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write([]byte(body))
		}
	}
	mux.HandleFunc("GET /api/v1/persistentvolumes",
		answer(`{"kind":"PersistentVolumeList","apiVersion":"v1","items":[]}`))
	mux.HandleFunc("POST /api/v1/namespaces/default/events", answer(`{"kind":"Event","apiVersion":"v1"}`))
	mux.HandleFunc("PATCH /api/v1/namespaces/storage/pods/csi-x7k2p/status",
		func(w http.ResponseWriter, r *http.Request) {
			if failures > 0 {
				failures--
				w.WriteHeader(http.StatusInternalServerError)
				return
			}
			var pod corev1.Pod
			if err := json.NewDecoder(r.Body).Decode(&pod); err != nil {
				w.WriteHeader(http.StatusBadRequest)
				return
			}
			answer(`{"kind":"Pod","apiVersion":"v1"}`)(w, r)
			select {
			case applied <- pod:
			case <-t.Context().Done():
			}
		})
	server := httptest.NewServer(mux) // all else is not found: the node's labels stay unknown
	t.Cleanup(server.Close)
	kubeconfig = filepath.Join(t.TempDir(), "kubeconfig")
	writeFile(t, kubeconfig, fmt.Sprintf(`{"clusters":[{"name":"c","cluster":{"server":%q}}],
		"contexts":[{"name":"x","context":{"cluster":"c"}}],"current-context":"x"}`, server.URL))
	return kubeconfig, applied
}

func TestPoolsAreReportedOnThePod(t *testing.T) {
	m := newMachine(t, "storagePools: [{name: fast, path: $POOL/fast}, {name: nvme, path: $POOL/nvme, nodeSelector: "+
		"{disk: nvme}}]")
	kubeconfig, reports := kubernetes(t, 2)
	m.args = []string{
		"--standalone=false", "--kubeconfig=" + kubeconfig, "--report-pools", "--pod-name=csi-x7k2p",
		"--pod-namespace=storage",
	}
	m.start(t)
	type condition struct {
		Status          corev1.ConditionStatus
		Reason, Message string
	}
	// Both pools are looked at by goroutines of their own, so there may be one report for each.
	wait := func(want map[corev1.PodConditionType]condition) {
		t.Helper()
		for {
			got := map[corev1.PodConditionType]condition{}
			for _, c := range (<-reports).Status.Conditions {
				got[c.Type] = condition{c.Status, c.Reason, c.Message}
				if c.LastTransitionTime.IsZero() {
					t.Errorf("%s has no date", c.Type)
				}
			}
			if len(got) == len(want) {
				if diff := cmp.Diff(want, got); diff != "" {
					t.Error(diff)
				}
				return
			}
		}
	}
	const fast, nvme = "pool.hostpathprovisioner.kubevirt.io/fast", "pool.hostpathprovisioner.kubevirt.io/nvme"
	unknown := condition{
		"False", "PoolAbsent",
		"NodeUnknown: waiting for the Kubernetes API to give this node's labels, which decide whether " +
			m.path("pool/nvme") + " is used",
	}
	wait(map[corev1.PodConditionType]condition{
		fast: {"True", "PoolPresent", m.path("pool/fast") + " can be used; enforcement of sizes: none"}, nvme: unknown,
	})
	m.replacePool(t)
	wait(map[corev1.PodConditionType]condition{
		fast: {"False", "PoolAbsent", fmt.Sprintf("PathMissing: %s does not exist; mount the right one, or if the "+
			"change is meant: driver pool forget fast", m.path("pool/fast"))},
		nvme: unknown,
	})
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
