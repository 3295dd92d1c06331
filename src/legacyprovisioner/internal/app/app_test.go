package app

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/names"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/waittest"
)

func environment(change map[string]string) func(string) string {
	return func(name string) string {
		if value, ok := change[name]; ok {
			return value
		}
		return map[string]string{"PV_DIR": "/var/hpvolumes", "NODE_NAME": "here"}[name]
	}
}

func TestOptions(t *testing.T) {
	for name, test := range map[string]struct {
		args []string
		env  map[string]string
		want options
		own  nodeOptions
	}{
		"defaults": {
			nil, nil,
			options{mode: "node", httpAddress: ":9896", logLevel: "info", logFormat: "json"},
			nodeOptions{directory: "/var/hpvolumes", node: "here", namingPrefix: "false", capacity: "requested"},
		},
		"all": {
			[]string{"--mode=node", "-kubeconfig", "/k", "--http-address=", "--log-level=debug", "--log-format=text"},
			// As kubevirt's operator wrote them: a slash at the end, and capitals.
			map[string]string{
				"PV_DIR": "/data/", "NODE_NAME": "n.example.com", "USE_NAMING_PREFIX": "True",
				"PV_CAPACITY": "filesystem",
			},
			options{mode: "node", kubeconfig: "/k", logLevel: "debug", logFormat: "text"},
			nodeOptions{directory: "/data", node: "n.example.com", namingPrefix: "true", capacity: "filesystem"},
		},
		"the mode as two words": {
			[]string{"--log-level=warn", "-mode", "node"},
			nil,
			options{mode: "node", httpAddress: ":9896", logLevel: "warn", logFormat: "json"},
			nodeOptions{directory: "/var/hpvolumes", node: "here", namingPrefix: "false", capacity: "requested"},
		},
	} {
		got, err := parse(test.args, environment(test.env), t.Output())
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if own := *got.own.(*nodeOptions); own != test.own {
			t.Errorf("%s: %+v, want %+v", name, own, test.own)
		}
		if got.own = nil; got != test.want {
			t.Errorf("%s: %+v, want %+v", name, got, test.want)
		}
	}
}

func TestWrongOptions(t *testing.T) {
	var stderr bytes.Buffer
	code := Run([]string{"--mode=node", "--http-address=9896", "--log-level=loud"}, environment(map[string]string{
		"PV_DIR": "hpvolumes", "NODE_NAME": "", "USE_NAMING_PREFIX": "maybe", "PV_CAPACITY": "all",
	}), &stderr)
	want := `legacyprovisioner: wrong options:
--http-address: "9896": want host:port, :port or nothing
--log-level or --log-format: log level "loud": want debug, info, warn or error
PV_DIR: "hpvolumes": want the absolute path of a directory for the volumes, such as /var/hpvolumes
NODE_NAME: "": want the node's name in the cluster
USE_NAMING_PREFIX: "maybe": want true or false
PV_CAPACITY: "all": want requested or filesystem
`
	if diff := cmp.Diff(want, stderr.String()); diff != "" || code != 1 {
		t.Errorf("code %d; output (-want +got):\n%s", code, diff)
	}
}

func TestRefusedStarts(t *testing.T) {
	blocked := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(blocked, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		args      []string
		directory string
		want      string
	}{
		"an argument": {
			[]string{"node"}, t.TempDir(), "legacyprovisioner: unknown argument \"node\": there are only flags\n",
		},
		"no such mode": {
			[]string{"--name=x", "--mode=nodes"},
			t.TempDir(),
			"legacyprovisioner: --mode: \"nodes\": want one of everyNode, everyNodeManager, node, shared\n",
		},
		"the root": {nil, "/", "legacyprovisioner: wrong options:\nPV_DIR: \"/\": want the absolute path of a " +
			"directory for the volumes, such as /var/hpvolumes\n"},
		"a file": {
			nil, blocked, "legacyprovisioner: make the directory of the volumes (PV_DIR): mkdir " + blocked +
				": not a directory\n",
		},
		"no kubeconfig": {
			[]string{"--kubeconfig=/does/not/exist"},
			t.TempDir(),
			"legacyprovisioner: find the Kubernetes API (--kubeconfig, or a service account in the cluster): stat " +
				"/does/not/exist: no such file or directory\n",
		},
	} {
		var stderr bytes.Buffer
		code := Run(test.args, environment(map[string]string{"PV_DIR": test.directory}), &stderr)
		if diff := cmp.Diff(test.want, stderr.String()); diff != "" || code != 1 {
			t.Errorf("%s: code %d; output (-want +got):\n%s", name, code, diff)
		}
	}
}

func TestHelp(t *testing.T) {
	var stderr bytes.Buffer
	if code := Run([]string{"-h"}, environment(nil), &stderr); code != 0 {
		t.Errorf("code %d, want 0", code)
	}
	for _, word := range []string{
		"PV_DIR", "NODE_NAME", "USE_NAMING_PREFIX", "PV_CAPACITY", "-mode", "-kubeconfig",
		"-http-address", "-log-level", "-log-format",
	} {
		if !strings.Contains(stderr.String(), word) {
			t.Errorf("the help does not name %s", word)
		}
	}
}

// TestAVolumesLife runs everything but the API: a claim that names the node gets its volume,
// and with the claim the volume goes.
func TestAVolumesLife(t *testing.T) {
	waiting, class := storagev1.VolumeBindingWaitForFirstConsumer, "hostpath"
	directory := filepath.Join(t.TempDir(), "made", "at start")
	cluster := fake.NewClientset(
		&corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: "here", Labels: map[string]string{corev1.LabelHostname: "here"}},
		},
		&storagev1.StorageClass{
			ObjectMeta: metav1.ObjectMeta{Name: class}, Provisioner: names.LegacyProvisioner,
			VolumeBindingMode: &waiting,
		},
	)
	if err := os.MkdirAll(directory, 0o755); err != nil {
		t.Fatal(err)
	}
	n := nodeOptions{directory: directory, node: "here", namingPrefix: "true", capacity: capacityRequested}
	address := loopback() + ":9896"
	p, err := n.build(t.Context(), options{httpAddress: address}, cluster, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	volumes, err := cluster.CoreV1().PersistentVolumes().Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	claims, err := cluster.CoreV1().PersistentVolumeClaims("shop").Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- p.run(ctx) }()

	claim := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: "data", UID: "1234", Annotations: map[string]string{names.ProvisionOnNode: "here"},
		},
		Spec: corev1.PersistentVolumeClaimSpec{
			StorageClassName: &class, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources: corev1.VolumeResourceRequirements{
				Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Mi")},
			},
		},
	}
	if _, err := cluster.CoreV1().PersistentVolumeClaims("shop").Create(
		t.Context(), claim, metav1.CreateOptions{},
	); err != nil {
		t.Fatal(err)
	}
	<-claims.ResultChan()
	selected := nextObject[*corev1.PersistentVolumeClaim](t, claims, watch.Modified)
	if got := selected.Annotations["volume.kubernetes.io/selected-node"]; got != "here" {
		t.Fatalf("selected node %q, want here", got)
	}
	// What Kubernetes' own controller does once a node is selected.
	selected.Annotations["volume.kubernetes.io/storage-provisioner"] = names.LegacyProvisioner
	if _, err := cluster.CoreV1().PersistentVolumeClaims("shop").Update(
		t.Context(), selected, metav1.UpdateOptions{},
	); err != nil {
		t.Fatal(err)
	}
	pv := nextObject[*corev1.PersistentVolume](t, volumes, watch.Added)
	path := filepath.Join(directory, "data-pvc-1234")
	if pv.Spec.HostPath.Path != path || pv.Spec.ClaimRef.UID != "1234" || pv.Spec.StorageClassName != class {
		t.Errorf("PersistentVolume with path %s, claim %s, class %s",
			pv.Spec.HostPath.Path, pv.Spec.ClaimRef.UID, pv.Spec.StorageClassName)
	}
	if err := os.WriteFile(filepath.Join(path, "file"), []byte("data"), 0o600); err != nil {
		t.Error(err)
	}
	checkProbes(t, "http://"+address, directory)

	release(t, cluster, volumes, pv)
	checkMetrics(t, "http://"+address+"/metrics")
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// loopback is an address of the test's own.
func loopback() string {
	return fmt.Sprintf("127.%d.%d.%d", 1+rand.IntN(250), 1+rand.IntN(250), 1+rand.IntN(250))
}

// release gives a volume free, and waits until it and its directory are gone.
func release(t *testing.T, cluster kubernetes.Interface, volumes watch.Interface, pv *corev1.PersistentVolume) {
	t.Helper()
	pv.Status.Phase = corev1.VolumeReleased
	if _, err := cluster.CoreV1().PersistentVolumes().UpdateStatus(t.Context(), pv,
		metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	nextObject[*corev1.PersistentVolume](t, volumes, watch.Modified)
	nextObject[*corev1.PersistentVolume](t, volumes, watch.Deleted)
	if _, err := os.Stat(pv.Spec.HostPath.Path); !os.IsNotExist(err) {
		t.Errorf("the directory is left (%v)", err)
	}
}

// nextObject waits for the next change of an object.
func nextObject[T any](t *testing.T, changes watch.Interface, kind watch.EventType) T {
	t.Helper()
	change := <-changes.ResultChan()
	object, ok := change.Object.(T)
	if !ok || change.Type != kind {
		t.Fatalf("%s %T, want %s %T", change.Type, change.Object, kind, object)
	}
	return object
}

// checkProbes reads what the running process serves.
func checkProbes(t *testing.T, address, directory string) {
	t.Helper()
	if code, text := getText(t, address+"/healthz"); code != http.StatusOK || text != "provisioner: ok\n" {
		t.Errorf("/healthz: %d %s", code, text)
	}
	if code, text := getText(t, address+"/readyz"); code != http.StatusOK || text != "provisioner: ok\nvolumes: ok\n" {
		t.Errorf("/readyz: %d %s", code, text)
	}
	if code, text := getText(t, address+"/metrics"); code != http.StatusOK ||
		!strings.Contains(text, "\nhpp_legacy_build_info{") {
		t.Errorf("/metrics: %d %s", code, text)
	}
	away := directory + " is away"
	if err := os.Rename(directory, away); err != nil {
		t.Fatal(err)
	}
	want := "provisioner: ok\nvolumes: open the directory of the volumes: open " + directory +
		": no such file or directory\n"
	if code, text := getText(t, address+"/readyz"); code != http.StatusServiceUnavailable || text != want {
		t.Errorf("/readyz without its directory: %d %s", code, text)
	}
	if err := os.Rename(away, directory); err != nil {
		t.Fatal(err)
	}
}

// checkMetrics waits for them: the library counts a volume a moment after it has saved it.
func checkMetrics(t *testing.T, url string) {
	t.Helper()
	for _, line := range []string{
		`controller_persistentvolumeclaim_provision_total{class="hostpath",source=""} 1`,
		`controller_persistentvolume_delete_total{class="hostpath"} 1`,
		`hpp_legacy_build_info{version="0.0.0-dev"} 1`, "go_goroutines ", "process_cpu_seconds_total ",
	} {
		waittest.Until(t, "there is the line "+line, func() bool {
			_, text := getText(t, url)
			return strings.Contains(text, "\n"+line)
		})
	}
}

func getText(t *testing.T, url string) (int, string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	var body bytes.Buffer
	if _, err := body.ReadFrom(response.Body); err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, body.String()
}

// TestTakenAddress is said before anything runs.
func TestTakenAddress(t *testing.T) {
	other := httptest.NewServer(http.NotFoundHandler())
	defer other.Close()
	address := other.Listener.Addr().String()
	n := nodeOptions{directory: t.TempDir(), node: "here"}
	_, err := n.build(t.Context(), options{httpAddress: address}, fake.NewClientset(), slog.New(slog.DiscardHandler))
	want := fmt.Sprintf(
		"--http-address: listen for health probes and metrics: listen tcp %s: bind: address already in use", address,
	)
	if err == nil || err.Error() != want {
		t.Errorf("error %v, want %s", err, want)
	}
}
