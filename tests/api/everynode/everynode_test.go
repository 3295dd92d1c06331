// Package everynode tests the provisioner of volumes that are on every node against a real API server and the real
// claim binder: the provisioner and a manager for each of three nodes as processes, with the rights that the chart
// gives them. Each manager sees a directory of its own at the one path.
package everynode

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/names"
	"github.com/hostpath-provisioner/hostpath-provisioner/tests/api/harness"
	"github.com/hostpath-provisioner/hostpath-provisioner/tests/chart/helmcli"
)

const (
	provisionerName = harness.Release + "-hostpath-provisioner-every-node"
	managerName     = provisionerName + "-manager"
	managerLabel    = "every-node-manager"
	seedClass       = "hostpath-multihost"
	goneAfter       = "3s"
)

// world is a control plane with nodes that have a manager each, and a provisioner.
type world struct {
	*harness.Server
	t       *testing.T // what a test starts serves the next one too
	nodes   *harness.Nodes
	base    string // where the volumes are on every node
	disks   map[string]string
	manager string // the binary

	managers    map[string]*harness.Process
	health      map[string]string
	provisioner *harness.Process
	token       string // the provisioner's, for the managers
}

func TestEveryNode(t *testing.T) {
	s := harness.Start(t)
	w := &world{
		Server: s, t: t, nodes: s.StartNodes(t), base: filepath.Join(t.TempDir(), "kubernetes"),
		disks: map[string]string{}, managers: map[string]*harness.Process{}, health: map[string]string{},
	}
	if err := os.Mkdir(w.base, 0o755); err != nil {
		t.Fatal(err)
	}
	classes := `[{"name":"` + seedClass + `","default":true},{"name":"retains","reclaimPolicy":"Retain"},` +
		`{"name":"same","reclaimPolicy":"Retain","reusePolicy":"SamePVCName"},` +
		`{"name":"always","reclaimPolicy":"Retain","reusePolicy":"Always"},` +
		`{"name":"never","reclaimPolicy":"Retain","reusePolicy":"Never"},{"name":"unknown"}]`
	out, err := s.Helm(t).Run(t, helmcli.Values{
		Set: map[string]string{
			"legacyProvisioner.everyNode.enabled": "true", "legacyProvisioner.everyNode.path": w.base,
			"legacyProvisioner.everyNode.nodeGoneAfter": goneAfter,
		},
		JSON: map[string]string{"legacyProvisioner.everyNode.storageClasses": classes},
	}, "install", harness.Release, helmcli.ChartDir(t))
	if err != nil {
		t.Fatalf("helm install: %v\n%s", err, out)
	}
	w.manager = s.Build(t, "./src/legacyprovisioner")
	w.startProvisioner(t)
	for _, node := range []string{"node-1", "node-2", "node-3"} {
		w.join(t, node)
	}
	for _, test := range []struct {
		name string
		run  func(*testing.T, *world)
	}{
		{"as kubeboost prints it", asPrinted},
		{"access modes", accessModes},
		{"strangers", strangers},
		{"only what asks for it is removed", onlyWhatAsks},
		{"a node that is down at claim time", downAtClaimTime},
		{"a node that joins", joins},
		{"a node that is down at the deletion", downAtDeletion},
		{"a volume that is saved while it waits", saved},
		{"a node that is deleted for good", deletedForGood},
		{"a volume that is deleted by hand", deletedByHand},
		{"a volume of kubeboost's", takenOver},
		{"retained", retained},
		{"reused by a claim of the same name", reusedBySame},
		{"reused by any claim", reusedByAny},
		{"never reused", neverReused},
		{"an unknown policy", unknownPolicy},
		{"another instance takes over", takesOver},
	} {
		t.Run(test.name, func(t *testing.T) { test.run(t, w) })
	}
}

// startProvisioner runs the provisioner as its Deployment says, with a pod that its token is bound to.
func (w *world) startProvisioner(t *testing.T) {
	t.Helper()
	deployment := harness.Get(t, w.Server, &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{
		Namespace: harness.Namespace, Name: provisionerName,
	}})
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: harness.Namespace, Name: "provisioner"},
		Spec:       deployment.Spec.Template.Spec,
	}
	w.Create(t, pod)
	w.token = filepath.Join(t.TempDir(), "token")
	token := w.Token(t, provisionerName, names.EveryNodeManager, pod)
	if err := os.WriteFile(w.token, []byte(token), 0o600); err != nil {
		t.Fatal(err)
	}
	w.provisioner = w.runProvisioner(t)
}

// runProvisioner starts a process of it.
func (w *world) runProvisioner(t *testing.T) *harness.Process {
	t.Helper()
	container := harness.Get(t, w.Server, &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{
		Namespace: harness.Namespace, Name: provisionerName,
	}}).Spec.Template.Spec.Containers[0]
	return w.Run(w.t, w.manager, []string{"POD_NAMESPACE=" + harness.Namespace}, append(slices.Clone(container.Args),
		"--kubeconfig="+w.KubeconfigOf(t, provisionerName), "--token-file="+w.token,
		"--http-address=127.0.0.1:"+strconv.Itoa(harness.FreePort(t)))...)
}

// join adds a node, and starts its manager.
func (w *world) join(t *testing.T, node string) {
	t.Helper()
	w.disks[node] = w.t.TempDir()
	w.nodes.Join(t, node)
	w.start(t, node)
}

// address is where the manager of a node listens: with the port of the contract on an address of its own.
func address(node string) string { return "127.0.77." + strings.TrimPrefix(node, "node-") }

// start runs the manager of a node as the DaemonSet says, with the node's disk at the path that all have.
func (w *world) start(t *testing.T, node string) {
	t.Helper()
	container := harness.Get(t, w.Server, &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{
		Namespace: harness.Namespace, Name: managerName,
	}}).Spec.Template.Spec.Containers[0]
	w.health[node] = "127.0.0.1:" + strconv.Itoa(harness.FreePort(t))
	args := append([]string{
		"--mount", "--propagation=private", "/bin/sh", "-c", `mount --bind "$1" "$2" && shift 2 && exec "$@"`, "sh",
		w.disks[node], w.base, w.manager,
	}, container.Args...)
	w.managers[node] = w.Run(w.t, "/usr/bin/unshare", []string{
		"NODE_NAME=" + node, "POD_NAMESPACE=" + harness.Namespace,
	}, append(args, "--kubeconfig="+w.KubeconfigOf(t, managerName), "--listen="+address(node)+":"+names.EveryNodePort,
		"--http-address="+w.health[node])...)
	harness.Eventually(t, "the manager of "+node+" is ready", func(ctx context.Context) error {
		if err := w.managers[node].Running(); err != nil {
			return err
		}
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+w.health[node]+"/readyz", http.NoBody)
		if err != nil {
			return err
		}
		answer, err := http.DefaultClient.Do(request)
		if err != nil {
			return err
		}
		if answer.StatusCode != http.StatusOK {
			err = errors.New(answer.Status)
		}
		return errors.Join(err, answer.Body.Close())
	})
	w.nodes.Return(t, node)
	w.pod(t, node, true)
}

// pod says in the status of a manager's pod what the kubelet would.
func (w *world) pod(t *testing.T, node string, ready bool) {
	t.Helper()
	harness.Eventually(t, "the pod of "+node+" says how it is", func(ctx context.Context) error {
		pods, err := w.Pods(ctx, managerLabel)
		if err != nil {
			return err
		}
		for i := range pods {
			pod := &pods[i]
			if pod.Spec.NodeName != node || pod.Status.Phase != corev1.PodRunning {
				continue
			}
			if ready && pod.Status.Conditions[0].Status != corev1.ConditionTrue {
				return errors.New("it is not ready")
			}
			pod.Status.PodIP, pod.Status.PodIPs = address(node), []corev1.PodIP{{IP: address(node)}}
			if !ready {
				for j := range pod.Status.Conditions {
					pod.Status.Conditions[j].Status = corev1.ConditionFalse
				}
			}
			return w.Client.Status().Update(ctx, pod)
		}
		return errors.New("there is none that runs")
	})
}

// down ends the manager of a node as a failing machine would.
func (w *world) down(t *testing.T, node string) {
	t.Helper()
	w.nodes.Die(t, node)
	w.managers[node].Kill(t)
	w.pod(t, node, false)
}

// claim is one as kubeboost prints it, in a class.
func claim(class string) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "hostpath-multihost-test-claim"},
		Spec: corev1.PersistentVolumeClaimSpec{
			StorageClassName: &class, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany},
			Resources: corev1.VolumeResourceRequirements{
				Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Mi")},
			},
		},
	}
}

// bound waits until a claim has its volume.
func (w *world) bound(t *testing.T, c *corev1.PersistentVolumeClaim) *corev1.PersistentVolume {
	t.Helper()
	harness.Until(t, w.Server, "the claim is bound", c, func(c *corev1.PersistentVolumeClaim) error {
		if c.Status.Phase != corev1.ClaimBound {
			return fmt.Errorf("it is %s", c.Status.Phase)
		}
		return nil
	})
	return harness.Get(t, w.Server, &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: c.Spec.VolumeName}})
}

// made makes a claim of a class, waits for its volume, and writes on every node.
func (w *world) made(t *testing.T, class string) (*corev1.PersistentVolumeClaim, *corev1.PersistentVolume) {
	t.Helper()
	c := claim(class)
	w.Create(t, c)
	pv := w.bound(t, c)
	for node := range w.disks {
		if w.managers[node].Running() == nil {
			w.write(t, node, pv)
		}
	}
	return c, pv
}

// on is a volume's directory on a node.
func (w *world) on(node string, pv *corev1.PersistentVolume) string {
	return filepath.Join(w.disks[node], filepath.Base(pv.Spec.HostPath.Path))
}

func (w *world) write(t *testing.T, node string, pv *corev1.PersistentVolume) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(w.on(node, pv), "file"), []byte(node), 0o600); err != nil {
		t.Errorf("write on %s: %v", node, err)
	}
}

// has waits until a node's disk has exactly these directories of the volumes.
func (w *world) has(t *testing.T, node string, volumes ...*corev1.PersistentVolume) {
	t.Helper()
	var want []string
	for _, pv := range volumes {
		want = append(want, filepath.Base(pv.Spec.HostPath.Path))
	}
	slices.Sort(want)
	harness.Eventually(t, "the disk of "+node, func(context.Context) error {
		entries, err := os.ReadDir(w.disks[node])
		var got []string
		for _, entry := range entries {
			got = append(got, entry.Name())
		}
		if err != nil || !slices.Equal(got, want) {
			return fmt.Errorf("it has %q, want %q (%w)", got, want, err)
		}
		return nil
	})
}

// keeps fails when a node has no data of a volume.
func (w *world) keeps(t *testing.T, node string, pv *corev1.PersistentVolume) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(w.on(node, pv), "file"))
	if err != nil || string(text) != node {
		t.Errorf("data on %s: %q, error %v", node, text, err)
	}
}

// ended deletes a claim, and waits until its volume is gone everywhere.
func (w *world) ended(t *testing.T, c *corev1.PersistentVolumeClaim, pv *corev1.PersistentVolume) {
	t.Helper()
	w.Delete(t, c)
	w.Gone(t, pv)
	for node := range w.disks {
		w.has(t, node)
	}
}

// removed removes by hand what a retained volume left, and the volume.
func (w *world) removed(t *testing.T, pv *corev1.PersistentVolume) {
	t.Helper()
	w.Delete(t, pv)
	w.Gone(t, pv)
	for node := range w.disks {
		w.keeps(t, node, pv)
		if err := os.RemoveAll(w.on(node, pv)); err != nil {
			t.Fatal(err)
		}
	}
}

// released waits until a volume's claim is gone.
func (w *world) released(t *testing.T, pv *corev1.PersistentVolume) *corev1.PersistentVolume {
	t.Helper()
	return harness.Until(t, w.Server, "the volume is released", pv, func(v *corev1.PersistentVolume) error {
		if v.Status.Phase != corev1.VolumeReleased {
			return fmt.Errorf("it is %s", v.Status.Phase)
		}
		return nil
	})
}

// event waits for an event about an object whose message has a text in it.
func (w *world) event(t *testing.T, about client.Object, reason, text string) {
	t.Helper()
	harness.Eventually(t, "event "+reason, func(ctx context.Context) error {
		var list corev1.EventList
		if err := w.Client.List(ctx, &list); err != nil {
			return err
		}
		var found []string
		for _, event := range list.Items {
			if event.InvolvedObject.UID == about.GetUID() && event.Reason == reason {
				found = append(found, event.Message)
			}
		}
		if !slices.ContainsFunc(found, func(message string) bool { return strings.Contains(message, text) }) {
			return fmt.Errorf("there are\n%q\nwant\n%q", found, text)
		}
		return nil
	})
}
