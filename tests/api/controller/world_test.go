// Package controller_test tests the built controller, with the built driver for several nodes, against a real API
// server. Arguments, accounts and rights are those that the chart gives them.
package controller_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	pb "github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/docs"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/names"
	"github.com/hostpath-provisioner/hostpath-provisioner/tests/api/harness"
	"github.com/hostpath-provisioner/hostpath-provisioner/tests/chart/helmcli"
)

const (
	full        = harness.Release + "-hostpath-provisioner"
	service     = full + "-controller"
	host        = service + "." + harness.Namespace + ".svc"
	caConfigMap = full + "-controller-authorities"
	poolName    = "local"
	topologyKey = "topology.hostpath.csi/node"
	immediate   = "immediate"
)

// addresses are those of the controller's Service, one for each replica.
func addresses() [2]string { return [...]string{"127.0.0.1", "127.0.0.2"} }

// world is a control plane with an installed chart.
type world struct {
	*harness.Server
	whole    *testing.T        // programs that several tests use end with it
	binaries map[string]string // by the name of their containers
	hosts    string            // an /etc/hosts in which the Service has its addresses
	port     int

	controllerPod, driverPod corev1.PodSpec
	controllerRights         string // a kubeconfig
	// nodeAccount is the directory that a node's driver finds in its pod, nodeEnvironment where the API is.
	nodeAccount     string
	nodeEnvironment []string

	pods                map[string]*corev1.Pod // of the DaemonSet, by node
	controller, replica *program
	nodes               map[string]*program
}

// program is a controller or the driver of a node that runs.
type program struct {
	*harness.Process
	pb.ControllerClient
	pb.IdentityClient
	dir, http string
}

func TestController(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Fatal("the drivers mount, and each has an /etc/hosts of its own in a mount namespace: run it as root")
	}
	w := install(t)
	for _, node := range []string{"node-1", "node-2", "node-3", "node-4"} {
		w.Create(t, &storagev1.CSINode{
			ObjectMeta: metav1.ObjectMeta{Name: node},
			Spec:       storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{{Name: names.Driver, NodeID: node}}},
		})
		w.nodes[node] = w.node(t, node, w.token(t, node))
	}
	for _, test := range []struct {
		name string
		run  func(*testing.T, *world)
	}{
		{"connect", connect},
		{"reported", reported},
		{"held", held},
		{"choose", choose},
		{"scheduler", scheduler},
		{"growth", growth},
		{"one-handle", oneHandle},
		{"sanity", sanity}, // before nodes go that may return: they have to be asked for a volume without a PV
		{"metrics", documented},
		{"restored", restored}, // what it deletes stays in the trash of the node with the most room
		{"moved", moved},
		{"tokens", tokens},
		{"trouble", func(t *testing.T, w *world) {
			for name, test := range map[string]func(*testing.T, *world){
				"misled": misled, "foreign-ca": foreignCA, "gone": gone, "frozen": frozen,
			} {
				t.Run(name, func(t *testing.T) {
					t.Parallel()
					test(t, w)
				})
			}
		}},
	} {
		if !t.Run(test.name, func(t *testing.T) { test.run(t, w) }) {
			break // those that follow build on it
		}
	}
}

// documented compares what a controller that has worked for its nodes exports with docs/reference/metrics.md. It has
// found a volume when its nodes connected, and made one.
func documented(t *testing.T, w *world) {
	t.Helper()
	found := w.bound(t, "node-2")
	w.controller.Kill(t)
	w.controller = w.startController(addresses()[0])
	w.controller.connected(t, slices.Sorted(maps.Keys(w.nodes))...)
	made := w.bound(t, "node-1")
	harness.Eventually(t, "the controller's metrics are those of the page", func(ctx context.Context) error {
		page, err := harness.Fetch(ctx, http.DefaultClient, "http://"+w.controller.http+"/metrics")
		if err != nil {
			return err
		}
		return docs.CheckMetrics(docs.Exposed(page), "The controller", "A node and the controller")
	})
	w.deleted(t, found.Name)
	w.deleted(t, made.Name)
}

// install installs the chart, with nodes on which the DaemonSet has pods.
func install(t *testing.T) *world {
	t.Helper()
	s := harness.Start(t)
	w := &world{
		Server: s, whole: t, port: harness.FreePort(t), hosts: filepath.Join(t.TempDir(), "hosts"),
		pods: map[string]*corev1.Pod{}, nodes: map[string]*program{},
	}
	hosts := fmt.Sprintf("%[1]s %[3]s\n%[2]s %[3]s\n", addresses()[0], addresses()[1], host)
	if err := os.WriteFile(w.hosts, []byte(hosts), 0o600); err != nil {
		t.Fatal(err)
	}
	values := helmcli.Values{Set: map[string]string{"controller.port": strconv.Itoa(w.port)}}
	if out, err := s.Helm(t).Run(t, values, "install", harness.Release, helmcli.ChartDir(t)); err != nil {
		t.Fatalf("helm install: %v\n%s", err, out)
	}
	nodes := []string{"node-1", "node-2", "node-3", "node-4", "node-5"}
	s.StartNodes(t, nodes...)
	meta := func(name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: harness.Namespace, Name: name}
	}
	w.controllerPod = harness.Get(t, s, &appsv1.Deployment{ObjectMeta: meta(service)}).Spec.Template.Spec
	w.driverPod = harness.Get(t, s, &appsv1.DaemonSet{ObjectMeta: meta(full + "-csi")}).Spec.Template.Spec
	w.controllerRights = s.KubeconfigOf(t, w.controllerPod.ServiceAccountName)
	w.nodeAccount, w.nodeEnvironment = s.PodAccount(t, w.driverPod.ServiceAccountName)
	w.binaries = map[string]string{
		"controller": s.Build(t, "./src/controller"), "driver": s.Build(t, "./src/driver"),
	}
	w.Create(t, &storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{Name: immediate}, Provisioner: names.Driver,
		VolumeBindingMode: new(storagev1.VolumeBindingImmediate),
	})
	harness.Eventually(t, "each node has its pod", func(ctx context.Context) error {
		pods, err := s.Pods(ctx, "csi-driver")
		for i := range pods {
			w.pods[pods[i].Spec.NodeName] = &pods[i]
		}
		delete(w.pods, "")
		if err == nil && len(w.pods) < len(nodes) {
			err = fmt.Errorf("there are %d", len(w.pods))
		}
		return err
	})
	return w
}

// token is what the kubelet gives the driver's pod on a node.
func (w *world) token(t *testing.T, node string) string {
	t.Helper()
	return w.Token(t, w.driverPod.ServiceAccountName, harness.ControllerAudience, w.pods[node])
}

// node starts the driver of a node, with a pool on a tmpfs: the one of node-1 is the largest.
func (w *world) node(t *testing.T, name, token string, options ...string) *program {
	t.Helper()
	dir, size := t.TempDir(), "768m"
	if name == "node-1" {
		size = "1g"
	}
	pool := filepath.Join(dir, "pool")
	err := errors.Join(
		os.Mkdir(pool, 0o700), os.Mkdir(filepath.Join(dir, "kubelet"), 0o700),
		os.WriteFile(filepath.Join(dir, "token"), []byte(token), 0o600),
		unix.Mount("tmpfs", pool, "tmpfs", 0, "size="+size),
		// No pool is first used on a tmpfs: this one has been.
		os.MkdirAll(filepath.Join(pool, "csi/.hpp"), 0o700),
		os.WriteFile(filepath.Join(pool, "csi/.hpp/pool.json"), []byte(`{"version":2,"id":"of-`+name+`"}`), 0o600),
	)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(pool, 0); err != nil {
			t.Errorf("unmount the pool of %s: %v", name, err)
		}
	})
	return w.startNode(t, name, dir, options...)
}

// startNode starts the driver of a node in its directory.
func (w *world) startNode(t *testing.T, name, dir string, options ...string) *program {
	t.Helper()
	options = append([]string{
		"--service-account=" + w.nodeAccount, "--node-name=" + name, "--pod-name=csi-" + name, "--host-root=/",
		"--kubelet-dir=" + filepath.Join(dir, "kubelet"), "--registration=false",
		"--controller-token=" + filepath.Join(dir, "token"),
	}, options...)
	return w.run(t, w.driverPod.Containers[0], dir, options...)
}

// startController starts a controller at one of the Service's addresses.
func (w *world) startController(address string, options ...string) *program {
	w.whole.Helper()
	return w.run(w.whole, w.controllerPod.Containers[0], w.whole.TempDir(), append([]string{
		"--kubeconfig=" + w.controllerRights,
		"--pod-name=controller-" + strings.ReplaceAll(address, ".", "-"), "--node-gone-after=2s",
		"--certificate-interval=1s",
		"--tunnel-address=" + net.JoinHostPort(address, strconv.Itoa(w.port)),
	}, options...)...)
}

// run starts the program that a container, controller or driver, is called after, in a directory of its own. Of an
// option that is repeated the last counts.
func (w *world) run(t *testing.T, of corev1.Container, dir string, options ...string) *program {
	t.Helper()
	p := &program{dir: dir, http: net.JoinHostPort("127.0.0.1", strconv.Itoa(harness.FreePort(t)))}
	const pools = "storagePools:\n- name: %s\n  path: %s/pool\n  requireMount: false\n  overcommit: 1\n"
	err := errors.Join(
		os.MkdirAll(filepath.Join(dir, "state"), 0o700), // it may be there from before
		os.WriteFile(filepath.Join(dir, "config"), fmt.Appendf(nil, pools, poolName, dir), 0o600),
	)
	if err != nil {
		t.Fatal(err)
	}
	if w.binaries[of.Name] == "" {
		t.Fatalf("the first container is %s", of.Name)
	}
	p.Process = w.Run(t, "unshare", w.nodeEnvironment, slices.Concat([]string{
		"--mount", "--propagation=slave", "sh", "-ec", `mount --bind "$0" /etc/hosts; exec "$@"`, w.hosts,
		w.binaries[of.Name],
	}, of.Args, []string{
		"--pod-namespace=" + harness.Namespace, "--endpoint=unix://" + p.socket(),
		"--config=" + filepath.Join(dir, "config"),
		"--state-dir=" + filepath.Join(dir, "state"), "--http-address=" + p.http,
	}, options)...)
	conn, err := grpc.NewClient("unix://"+p.socket(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	p.ControllerClient, p.IdentityClient = pb.NewControllerClient(conn), pb.NewIdentityClient(conn)
	return p
}

func (p *program) socket() string { return filepath.Join(p.dir, "csi.sock") }

// has reports whether the directory of a volume is on a node.
func (p *program) has(id string) bool {
	_, err := os.Stat(filepath.Join(p.dir, "pool", "csi", id))
	return err == nil
}

// says waits until a program has logged something.
func (p *program) says(t *testing.T, sentence string) {
	t.Helper()
	harness.Eventually(t, "the log says "+sentence, func(context.Context) error {
		if err := p.Running(); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(p.Log(), sentence) {
			return errors.New("it does not")
		}
		return nil
	})
}

// connected waits until nodes are connected to a controller, and until that serves the sidecars.
func (p *program) connected(t *testing.T, nodes ...string) {
	t.Helper()
	harness.Eventually(t, fmt.Sprintf("%v are connected", nodes), func(ctx context.Context) error {
		if err := p.Running(); err != nil {
			t.Fatal(err)
		}
		page, err := harness.Fetch(ctx, http.DefaultClient, "http://"+p.http+"/metrics")
		if err != nil {
			return err
		}
		for _, node := range nodes {
			if line := fmt.Sprintf("hpp_controller_node_connected{node=%q} 1\n", node); !strings.Contains(page, line) {
				return fmt.Errorf("no metric %s", line)
			}
		}
		answer, err := p.Probe(ctx, &pb.ProbeRequest{})
		if err == nil && !answer.GetReady().GetValue() {
			err = errors.New("not ready")
		}
		return err
	})
}
