package everynode

import (
	"cmp"
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/record"
	"sigs.k8s.io/sig-storage-lib-external-provisioner/v13/controller"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/names"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/legacyprovisioner/internal/everynode/wire"
)

const (
	pvName   = "pvc-0b1f1d0c-1111-4222-8333-444455556666"
	path     = "/var/kubernetes/shop-data-" + pvName
	identity = "kubeboost.github.com/hostpath-multihost-provisioner"
)

// world is a cluster with a provisioner, and with managers that this test plays.
type world struct {
	*Provisioner
	cluster  *fake.Clientset
	events   *record.FakeRecorder
	managers map[string]*manager // by node
}

// manager is what answers on a node.
type manager struct {
	mu       sync.Mutex
	requests []string // method, path, volume, token
	status   int      // of the answers, 200 if 0
}

func (m *manager) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.requests = append(m.requests, fmt.Sprintln(r.Method, r.URL.Path, r.FormValue(wire.PathField),
		r.FormValue(wire.VolumeField), r.Header.Get("Authorization")))
	if status := cmp.Or(m.status, http.StatusOK); status != http.StatusOK {
		http.Error(w, "the disk is full", status)
	}
}

// asked gives the requests since the last call.
func (m *manager) asked() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := m.requests
	m.requests = nil
	return all
}

func (m *manager) answer(status int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.status = status
}

// start makes a world in which those nodes have managers that are ready.
func start(t *testing.T, nodes ...string) *world {
	t.Helper()
	w := &world{
		cluster: fake.NewClientset(
			&appsv1.DaemonSet{
				ObjectMeta: metav1.ObjectMeta{Namespace: "storage", Name: "managers"},
				Spec: appsv1.DaemonSetSpec{
					Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "manager"}},
				},
				Status: appsv1.DaemonSetStatus{DesiredNumberScheduled: int32(len(nodes))},
			},
			&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "storage", Name: "managers"}},
		),
		events: record.NewFakeRecorder(100), managers: map[string]*manager{},
	}
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte("secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(free.Addr().String())
	t.Cleanup(func() { _ = free.Close() }) // nobody else takes the port meanwhile
	factory := informers.NewSharedInformerFactory(w.cluster, 0)
	w.Provisioner, err = New(Config{
		Client: w.cluster, Volumes: factory.Core().V1().PersistentVolumes().Informer(), Provisioner: identity,
		Base: "/var/kubernetes", Namespace: "storage", Managers: "managers", Port: port, TokenFile: token,
		GoneAfter: 10 * time.Minute, Recorder: w.events, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	factory.Start(ctx.Done())
	t.Cleanup(func() { cancel(); factory.Shutdown() })
	for _, node := range nodes {
		w.join(t, node)
	}
	return w
}

// join adds a node with a manager that is ready.
func (w *world) join(t *testing.T, node string) {
	t.Helper()
	address := fmt.Sprintf("127.0.0.%d", 2+len(w.managers))
	certificate, public, err := wire.Issue(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	w.managers[node] = &manager{}
	w.listen(t, address, certificate, w.managers[node])
	w.register(t, node, string(public))
	w.node(t, node)
	w.pod(t, node, address, corev1.ConditionTrue)
}

func (w *world) listen(t *testing.T, address string, certificate tls.Certificate, handler http.Handler) {
	t.Helper()
	listener, err := net.Listen("tcp", net.JoinHostPort(address, w.Port))
	if err != nil {
		t.Fatal(err)
	}
	quiet := slog.NewLogLogger(slog.DiscardHandler, 0)
	server := &http.Server{Handler: handler, TLSConfig: wire.Serve(certificate), ErrorLog: quiet}
	go func() { _ = server.ServeTLS(listener, "", "") }()
	t.Cleanup(func() { _ = server.Close() })
}

func (w *world) node(t *testing.T, name string) {
	t.Helper()
	if _, err := w.cluster.CoreV1().Nodes().Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}},
		metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// pod makes the manager's pod of a node, or changes it.
func (w *world) pod(t *testing.T, node, address string, ready corev1.ConditionStatus) {
	t.Helper()
	pods := w.cluster.CoreV1().Pods("storage")
	if err := pods.Delete(t.Context(), "manager-"+node, metav1.DeleteOptions{}); err != nil && address == "" {
		t.Fatal(err)
	}
	if _, err := pods.Create(t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "manager-" + node, Labels: map[string]string{"app": "manager"}},
		Spec:       corev1.PodSpec{NodeName: node},
		Status: corev1.PodStatus{PodIP: address, Conditions: []corev1.PodCondition{
			{Type: corev1.PodReady, Status: ready},
		}},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// down makes the manager of a node not ready.
func (w *world) down(t *testing.T, node string) {
	t.Helper()
	w.pod(t, node, "", corev1.ConditionFalse)
}

// leave deletes the pod of a node, and its Node object.
func (w *world) leave(t *testing.T, node string) {
	t.Helper()
	if err := w.cluster.CoreV1().Nodes().Delete(t.Context(), node, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	w.deselect(t, node)
}

// deselect deletes the pod of a node, of which the DaemonSet wants none any more.
func (w *world) deselect(t *testing.T, node string) {
	t.Helper()
	if err := w.cluster.CoreV1().Pods("storage").Delete(t.Context(), "manager-"+node,
		metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	w.desire(t, -1)
}

// desire changes how many pods the DaemonSet wants.
func (w *world) desire(t *testing.T, more int32) {
	t.Helper()
	sets := w.cluster.AppsV1().DaemonSets("storage")
	set, err := sets.Get(t.Context(), "managers", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	set.Status.DesiredNumberScheduled += more
	if _, err := sets.UpdateStatus(t.Context(), set, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// register writes what a manager writes.
func (w *world) register(t *testing.T, node, certificate string) {
	t.Helper()
	maps := w.cluster.CoreV1().ConfigMaps("storage")
	registry, err := maps.Get(t.Context(), "managers", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if registry.Data == nil {
		registry.Data = map[string]string{}
	}
	registry.Data[node] = certificate
	if _, err := maps.Update(t.Context(), registry, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// registered are the nodes in the ConfigMap.
func (w *world) registered(t *testing.T) []string {
	t.Helper()
	registry, err := w.cluster.CoreV1().ConfigMaps("storage").Get(t.Context(), "managers", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for node := range registry.Data {
		all = append(all, node)
	}
	slices.Sort(all)
	return all
}

// request is what a manager is asked for.
func request(method string) []string {
	return []string{fmt.Sprintln(method, "/directories", path, pvName, "Bearer secret")}
}

// event is the next event, "" if there is none.
func (w *world) event() string {
	select {
	case event := <-w.events.Events:
		return event
	default:
		return ""
	}
}

// options are those for an ordinary claim.
func options(change func(*controller.ProvisionOptions)) controller.ProvisionOptions {
	class := "hostpath-multihost"
	o := controller.ProvisionOptions{
		StorageClass: &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: class}, Provisioner: identity},
		PVName:       pvName,
		PVC: &corev1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "data", UID: "0b1f1d0c-1111-4222-8333-444455556666"},
			Spec: corev1.PersistentVolumeClaimSpec{
				StorageClassName: &class, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany},
				Resources: corev1.VolumeResourceRequirements{
					Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Mi")},
				},
			},
		},
	}
	if change != nil {
		change(&o)
	}
	return o
}

// released is the PersistentVolume of a claim that is gone, as kubeboost's provisioner made it, in the cluster.
func (w *world) released(t *testing.T) *corev1.PersistentVolume {
	t.Helper()
	claim := &corev1.ObjectReference{Namespace: "shop", Name: "data", UID: "claim-1", ResourceVersion: "5"}
	return w.putVolume(t, &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: pvName, UID: "1", ResourceVersion: "7", Annotations: map[string]string{
			names.ProvisionedBy: identity, identity + "-identity": identity,
		}},
		Spec: corev1.PersistentVolumeSpec{
			PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimDelete,
			PersistentVolumeSource: corev1.PersistentVolumeSource{
				HostPath: &corev1.HostPathVolumeSource{Path: path},
			},
			ClaimRef: claim,
		},
		Status: corev1.PersistentVolumeStatus{Phase: corev1.VolumeReleased},
	})
}

func (w *world) putVolume(t *testing.T, pv *corev1.PersistentVolume) *corev1.PersistentVolume {
	t.Helper()
	made, err := w.cluster.CoreV1().PersistentVolumes().Create(t.Context(), pv, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return made
}

func (w *world) getVolume(t *testing.T) *corev1.PersistentVolume {
	t.Helper()
	pv, err := w.cluster.CoreV1().PersistentVolumes().Get(t.Context(), pvName, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return pv
}

// waitsForNodes is which nodes the PersistentVolume waits for.
func (w *world) waitsForNodes(t *testing.T) string {
	t.Helper()
	return w.getVolume(t).Annotations[identity+"-waits-for"]
}
