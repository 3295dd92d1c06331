package manager

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/record"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/names"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/waittest"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/legacyprovisioner/internal/everynode/wire"
)

const (
	pvName = "pvc-0b1f1d0c-1111-4222-8333-444455556666"
	dir    = "shop-data-" + pvName
	good   = "the provisioner's"
)

// node is a manager that runs, and the cluster that it sees.
type node struct {
	*Manager
	cluster *fake.Clientset
	events  *record.FakeRecorder
	address string
	reviews int
	stop    func()
}

// review is the API's answer about a token: who has it, for which audience, in which pod.
func (n *node) review(action clienttesting.Action) (bool, runtime.Object, error) {
	n.reviews++
	create := action.(clienttesting.CreateAction)
	review := create.GetObject().(*authenticationv1.TokenReview)
	user, pod := "system:serviceaccount:storage:provisioner", "provisioner-0"
	switch review.Spec.Token {
	case good:
	case "another account's":
		user = "system:serviceaccount:shop:default"
	case "another namespace's":
		user = "system:serviceaccount:shop:provisioner"
	case "a person's":
		user, pod = "admin", ""
	case "of no pod":
		pod = ""
	case "for another audience":
		review.Status.Audiences = []string{"https://kubernetes.default.svc"}
	default:
		review.Status.Error = "it is not one of ours: " + review.Spec.Token
		return true, review, nil
	}
	if review.Status.Audiences == nil {
		review.Status.Audiences = review.Spec.Audiences
	}
	review.Status.Authenticated = true
	review.Status.User.Username = user
	if pod != "" {
		review.Status.User.Extra = map[string]authenticationv1.ExtraValue{podName: {pod}}
	}
	return true, review, nil
}

// start runs a manager on a cluster with those objects.
func start(t *testing.T, objects ...runtime.Object) *node {
	t.Helper()
	n := &node{
		cluster: fake.NewClientset(append(objects, &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: "storage", Name: "managers"},
		})...),
		events: record.NewFakeRecorder(100),
	}
	n.cluster.PrependReactor("create", "tokenreviews", n.review)
	n.run(t, t.TempDir())
	return n
}

// run starts a process of the manager on that directory.
func (n *node) run(t *testing.T, base string) {
	t.Helper()
	factory := informers.NewSharedInformerFactory(n.cluster, 0)
	var err error
	n.Manager, err = New(Config{
		Client: n.cluster, Volumes: factory.Core().V1().PersistentVolumes().Informer(), Node: "here", Base: base,
		Provisioner: names.EveryNodeProvisioner, Namespace: "storage", Account: "provisioner", Registry: "managers",
		Recorder: n.events, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	n.address = listener.Addr().String()
	ctx, cancel := context.WithCancel(t.Context())
	factory.Start(ctx.Done())
	ended := make(chan error, 1)
	go func() { ended <- n.Run(ctx, listener) }()
	stopped := false
	n.stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		factory.Shutdown()
	}
	t.Cleanup(n.stop)
	waittest.Until(t, "the manager is ready", func() bool { return n.Ready(ctx) == nil })
}

// send makes a request as the provisioner does.
func (n *node) send(t *testing.T, method, token string, fields url.Values) (int, string) {
	t.Helper()
	registry, err := n.cluster.CoreV1().ConfigMaps("storage").Get(t.Context(), "managers", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	trust, err := wire.Trust([]byte(registry.Data["here"]))
	if err != nil {
		t.Fatal(err)
	}
	target, body := "https://"+n.address+wire.Directories, fields.Encode()
	if method != http.MethodPost {
		target, body = target+"?"+body, ""
	}
	request, err := http.NewRequestWithContext(t.Context(), method, target, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	transport := &http.Transport{TLSClientConfig: trust, DisableKeepAlives: true}
	answer, err := (&http.Client{Transport: transport}).Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer.StatusCode, strings.TrimSpace(string(text))
}

// fields are those of both requests for the volume.
func (n *node) fields() url.Values {
	return url.Values{wire.PathField: {filepath.Join(n.Base, dir)}, wire.VolumeField: {pvName}}
}

// persistentVolume is one in a phase, as the provisioner makes it.
func (n *node) persistentVolume(phase corev1.PersistentVolumePhase) *corev1.PersistentVolume {
	kind := corev1.HostPathDirectory
	return &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: pvName, UID: "1", Annotations: map[string]string{
			names.ProvisionedBy: names.EveryNodeProvisioner,
			names.EveryNodeIdentity(names.EveryNodeProvisioner): names.EveryNodeProvisioner,
		}},
		Spec: corev1.PersistentVolumeSpec{
			PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimDelete,
			PersistentVolumeSource: corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{
				Path: filepath.Join(n.Base, dir), Type: &kind,
			}},
		},
		Status: corev1.PersistentVolumeStatus{Phase: phase},
	}
}

func (n *node) create(t *testing.T, pv *corev1.PersistentVolume) {
	t.Helper()
	if _, err := n.cluster.CoreV1().PersistentVolumes().Create(t.Context(), pv, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

func (n *node) update(t *testing.T, pv *corev1.PersistentVolume) {
	t.Helper()
	if _, err := n.cluster.CoreV1().PersistentVolumes().Update(t.Context(), pv, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// expect wants an answer, and these entries in the directory of the volumes.
func (n *node) expect(t *testing.T, what string, status int, text string, left ...string) func(int, string) {
	t.Helper()
	return func(gotStatus int, gotText string) {
		t.Helper()
		if gotStatus != status || gotText != text {
			t.Errorf("%s: %d %q, want %d %q", what, gotStatus, gotText, status, text)
		}
		n.hasEntries(t, what, left...)
	}
}

// hasEntries wants these entries in the directory of the volumes.
func (n *node) hasEntries(t *testing.T, what string, want ...string) {
	t.Helper()
	if got := listDirectory(t, n.Base); !slices.Equal(got, want) {
		t.Errorf("%s: there is %q, want %q", what, got, want)
	}
}

func listDirectory(t *testing.T, path string) []string {
	t.Helper()
	entries, err := os.ReadDir(path)
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, entry := range entries {
		all = append(all, entry.Name())
	}
	return all
}

// fillDirectory makes a directory with data.
func fillDirectory(t *testing.T, path string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Join(path, "deep"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(path, "deep", "file"), []byte("data"), 0o400); err != nil {
		t.Fatal(err)
	}
}
