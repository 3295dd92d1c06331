package controller_test

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hostpath-provisioner/hostpath-provisioner/tests/api/harness"
)

// sidecar is one of upstream's sidecars, such as csi-resizer:v2.3.0, which the cluster program compiles once.
func sidecar(t *testing.T, image string) string {
	t.Helper()
	name, _, _ := strings.Cut(image, ":")
	command := exec.CommandContext(t.Context(), "go", "run", "./cluster", "assets", name)
	command.Dir = filepath.Join("..", "..")
	folder, err := command.Output()
	if err != nil {
		t.Fatalf("%s: %v", command, err)
	}
	return filepath.Join(strings.TrimSpace(string(folder)), name)
}

// layout is a set of processes that provision together, for all nodes that there are.
type layout struct {
	*world
	dir, rights string
	port, http  int
	controller  *harness.Process
	all         []*harness.Process
	sidecars    map[string]*harness.Process // of the controller
	killed      bool                        // the controller was: its sidecars may end, too
	revived     int                         // how often one of them was started anew
}

// start prepares one.
func (w *world) start(t *testing.T) *layout {
	t.Helper()
	w.forget(t)
	l := &layout{
		world: w, dir: t.TempDir(), rights: w.KubeconfigOf(t, w.account), sidecars: map[string]*harness.Process{},
	}
	l.port, l.http = harness.FreePort(t), harness.FreePort(t)
	err := errors.Join(
		os.Mkdir(l.path("tokens"), 0o700), os.Mkdir(l.path("sockets"), 0o700),
		os.WriteFile(l.path("config"), []byte("storagePools:\n- name: local\n  path: /var/local\n"), 0o600),
		os.WriteFile(l.path("hosts"), []byte("127.0.0.1 "+service+"."+harness.Namespace+".svc\n"), 0o600),
	)
	for _, pod := range w.pods {
		token := w.Token(t, pod.Spec.ServiceAccountName, harness.ControllerAudience, pod)
		err = errors.Join(err, os.WriteFile(l.path("tokens", pod.Name), []byte(token), 0o600))
	}
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func (l *layout) path(parts ...string) string {
	return filepath.Join(append([]string{l.dir}, parts...)...)
}

// running is nil while all processes run. A sidecar ends when it has lost its controller: after a kill of that it is
// started anew, as by a kubelet.
func (l *layout) running(t *testing.T) (err error) {
	t.Helper()
	for _, p := range l.all {
		err = errors.Join(err, p.Running())
	}
	for name, p := range l.sidecars {
		ended := p.Running()
		if ended != nil && l.killed && l.revived < 10 {
			l.revived++
			ended = nil
			l.startSidecar(t, name)
		}
		err = errors.Join(err, ended)
	}
	return err
}

// until waits without a word about speed.
func (l *layout) until(t *testing.T, what string, reached func() (bool, error)) {
	t.Helper()
	for deadline := time.Now().Add(waitTimeout); ; time.Sleep(100 * time.Millisecond) {
		ok, err := reached()
		if ok && err == nil {
			return
		}
		if ended := l.running(t); ended != nil || time.Now().After(deadline) {
			t.Fatalf("%s: %v", what, errors.Join(ended, err))
		}
	}
}

// run starts a container's program with the container's arguments; of those that are repeated the last counts.
func (l *layout) run(t *testing.T, name, pod string, args ...string) *harness.Process {
	t.Helper()
	environment := []string{
		"POD_NAMESPACE=" + harness.Namespace, "NAMESPACE=" + harness.Namespace, "POD_NAME=" + pod, "NODE_NAME=" + pod,
	}
	for _, variable := range l.containers[name].Env {
		if variable.Value != "" { // such as GOMEMLIMIT
			environment = append(environment, variable.Name+"="+variable.Value)
		}
	}
	return l.Run(t, l.programs[name], environment, append(args, "--kubeconfig="+l.rights)...)
}

// startSidecar starts one of the controller's.
func (l *layout) startSidecar(t *testing.T, name string) {
	t.Helper()
	args := slices.Concat(l.containers[name].Args, []string{
		"--csi-address=" + l.path("csi.sock"), "--leader-election-namespace=" + harness.Namespace,
	})
	if name == "csi-provisioner" { // nobody owns what it publishes: there is no pod
		args = append(args, "--capacity-ownerref-level=-1")
	}
	l.sidecars[name] = l.run(t, name, "controller", args...)
}

// kill ends the controller as a failing machine would, and starts it anew.
func (l *layout) kill(t *testing.T) {
	t.Helper()
	l.killed = true
	l.controller.Kill(t)
	l.all = slices.DeleteFunc(l.all, func(p *harness.Process) bool { return p == l.controller })
	l.drive(t)
}

// drive starts the controller.
func (l *layout) drive(t *testing.T) {
	t.Helper()
	l.controller = l.run(t, "controller", "controller", append(l.containers["controller"].Args,
		"--endpoint=unix://"+l.path("csi.sock"), "--config="+l.path("config"), "--state-dir="+l.dir,
		fmt.Sprintf("--http-address=127.0.0.1:%d", l.http),
		fmt.Sprintf("--tunnel-address=127.0.0.1:%d", l.port))...)
	l.all = append(l.all, l.controller)
	l.until(t, "the controller answers", func() (bool, error) { _, err := l.connected(t); return err == nil, err })
}

// connected counts nodes.
func (l *layout) connected(t *testing.T) (n int, err error) {
	t.Helper()
	page, err := harness.Fetch(t.Context(), http.DefaultClient, fmt.Sprintf("http://127.0.0.1:%d/metrics", l.http))
	for line := range strings.Lines(page) {
		if strings.HasPrefix(line, "hpp_controller_node_connected{") && strings.HasSuffix(line, " 1\n") {
			n++
		}
	}
	return n, err
}

// join waits until all nodes are connected.
func (l *layout) join(t *testing.T) {
	t.Helper()
	l.until(t, "all nodes are connected", func() (bool, error) {
		n, err := l.connected(t)
		return n == len(l.pods), err
	})
}

// published waits until the capacity of all nodes is.
func (l *layout) published(t *testing.T) {
	t.Helper()
	l.until(t, "the capacity of all nodes is published", func() (bool, error) {
		var all storagev1.CSIStorageCapacityList
		err := l.client.List(t.Context(), &all, client.InNamespace(harness.Namespace))
		n := 0
		for _, c := range all.Items {
			if c.StorageClassName == class { // the chart has others
				n++
			}
		}
		return n == len(l.pods), err
	})
}

// startNodes starts the nodes, which find the controller's Service on this machine.
func (l *layout) startNodes(t *testing.T, args ...string) {
	t.Helper()
	l.all = append(l.all, l.Run(t, "unshare", nil, append([]string{
		"--mount", "--propagation=slave", "sh", "-ec", `mount --bind "$0" /etc/hosts; exec "$@"`, l.path("hosts"),
		l.programs["nodes"], "-dir=" + l.dir,
	}, args...)...))
}

// control starts the controller's pod and nodes, and gives the time until all of these were connected.
func (l *layout) control(t *testing.T, volumes int) (took time.Duration) {
	t.Helper()
	l.drive(t)
	meta := metav1.ObjectMeta{Namespace: harness.Namespace, Name: service + "-authorities"}
	ca := harness.Until(t, l.Server, "the authorities are there", &corev1.ConfigMap{ObjectMeta: meta},
		func(c *corev1.ConfigMap) error {
			if c.Data["ca.crt"] == "" {
				return errors.New("the ConfigMap is empty")
			}
			return nil
		})
	if err := os.WriteFile(l.path("ca.crt"), []byte(ca.Data["ca.crt"]), 0o600); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	l.startNodes(t, fmt.Sprintf("-controller=%s.%s.svc:%d", service, harness.Namespace, l.port),
		"-volumes="+strconv.Itoa(volumes))
	l.join(t)
	took = time.Since(began)
	for _, name := range []string{"csi-provisioner", "csi-resizer"} {
		l.startSidecar(t, name)
	}
	l.published(t)
	return took
}

// beside starts a csi-provisioner for each node, as the chart did before there was a controller.
func (l *layout) beside(t *testing.T) {
	t.Helper()
	l.startNodes(t)
	for _, pod := range l.pods {
		socket := l.path("sockets", pod.Name+".sock")
		l.until(t, "a node serves", func() (bool, error) { _, err := os.Stat(socket); return err == nil, err })
		l.all = append(l.all, l.run(t, "csi-provisioner", pod.Name, "--csi-address="+socket, "--node-deployment",
			"--node-deployment-base-delay=1s", "--strict-topology", "--extra-create-metadata", "--enable-capacity",
			"--capacity-ownerref-level=-1", "--capacity-for-immediate-binding", "--capacity-poll-interval=5s",
			"--kube-api-qps=20", "--kube-api-burst=40", "--kube-api-capacity-qps=2", "--kube-api-capacity-burst=10"))
	}
	l.published(t)
}
