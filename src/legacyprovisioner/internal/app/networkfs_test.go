package app

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/names"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/kernel/mounttest"
)

func TestNetworkFSOptions(t *testing.T) {
	yes, no := true, false
	const torchbox = "torchbox.com/hostpath"
	for name, test := range map[string]struct {
		args string
		http string
		own  networkFSOptions
		// lease is its namespace and name.
		lease string
	}{
		"as torchbox prints it": {
			args: "-kubeconfig /root/.kube/config",
			own:  networkFSOptions{name: torchbox, id: torchbox, path: "/", guarded: guarded{requireMount: true}},
		},
		"a proxy": {
			args: "-master http://127.0.0.1:8001 -leader-election",
			own: networkFSOptions{
				name: torchbox, id: torchbox, path: "/", master: "http://127.0.0.1:8001",
				guarded: guarded{requireMount: true}, election: &yes,
			},
			lease: "default/torchbox.com-hostpath",
		},
		"in a pod": {
			args: "-host-mounts=/host/mountinfo -http-address=:9896",
			http: ":9896",
			own: networkFSOptions{
				name: torchbox, id: torchbox, path: "/",
				guarded: guarded{requireMount: true, hostMounts: "/host/mountinfo"},
			},
			lease: "default/torchbox.com-hostpath",
		},
		"one of several": {
			args: "--name Example.com/big_nfs --id site-1 --path=/ceph --require-mount=false " +
				"--leader-election-namespace storage",
			own: networkFSOptions{
				name: "Example.com/big_nfs", id: "site-1", path: "/ceph", electionNamespace: "storage",
			},
			lease: "storage/example.com-big-nfs-site-1",
		},
		"empty means the default": {
			args: "-name= -id= -require-mount=false -leader-election=false",
			own:  networkFSOptions{name: torchbox, id: torchbox, path: "/", election: &no},
		},
	} {
		args := append([]string{"-mode=shared"}, strings.Fields(test.args)...)
		got, err := parse(args, environment(map[string]string{"PV_DIR": "", "NODE_NAME": ""}), t.Output())
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		own := got.own.(*networkFSOptions)
		if diff := cmp.Diff(&test.own, own, cmp.AllowUnexported(networkFSOptions{}, guarded{})); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		lease := ""
		if l := own.lease(got); l != nil {
			lease = l.namespace + "/" + l.name
		}
		if lease != test.lease || got.httpAddress != test.http {
			t.Errorf("%s: lease %q, address %q, want %q and %q", name, lease, got.httpAddress, test.lease, test.http)
		}
	}
}

func TestRefusedNetworkFSStarts(t *testing.T) {
	for name, test := range map[string]struct {
		args []string
		want string
	}{
		"in a pod without the node's table": {
			[]string{"--name=a b"},
			"legacyprovisioner: wrong options:\n-name: \"a b\": want a name such as torchbox.com/hostpath\n" +
				"-host-mounts: want the node's mount table: give the pod the node's /proc/1/mountinfo as a hostPath " +
				"of type File, and say here where it is mounted; or -require-mount=false\n",
		},
		"no table": {
			[]string{"--master=http://127.0.0.1:1", "--host-mounts=/does/not/exist"},
			"legacyprovisioner: -host-mounts: open /does/not/exist: no such file or directory\n",
		},
		"no kubeconfig": {
			[]string{"-kubeconfig", "/does/not/exist"},
			"legacyprovisioner: find the Kubernetes API (--kubeconfig, or a service account in the cluster): stat " +
				"/does/not/exist: no such file or directory\n",
		},
	} {
		var stderr bytes.Buffer
		code := Run(append([]string{"--mode", "shared"}, test.args...), environment(nil), &stderr)
		if diff := cmp.Diff(test.want, stderr.String()); diff != "" || code != 1 {
			t.Errorf("%s: code %d; output (-want +got):\n%s", name, code, diff)
		}
	}
	var stderr bytes.Buffer
	if code := Run([]string{"--mode=node", "--name=x"}, environment(nil), &stderr); code != 1 ||
		!strings.HasPrefix(stderr.String(), "flag provided but not defined: -name\nlegacyprovisioner makes ") {
		t.Errorf("a flag of another mode: code %d, %s", code, stderr.String())
	}
	stderr.Reset()
	if code := Run([]string{"--mode=shared", "-h"}, environment(nil), &stderr); code != 0 ||
		strings.Contains(stderr.String(), "PV_DIR") || !strings.Contains(stderr.String(), "-host-mounts") {
		t.Errorf("the help: code %d, %s", code, stderr.String())
	}
}

// TestALifeOnANetworkFilesystem runs everything but the API: a claim as torchbox prints it gets its volume on what is
// mounted, and with the claim the volume goes. Needs root.
func TestALifeOnANetworkFilesystem(t *testing.T) {
	storage, class := t.TempDir(), "cephfs"
	mounttest.Tmpfs(t, storage, "")
	cluster := fake.NewClientset(&storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{Name: class}, Provisioner: names.NetworkFSProvisioner,
		Parameters: map[string]string{"pvDir": storage + "/pvs"},
	})
	yes := true
	s := networkFSOptions{
		name: names.NetworkFSProvisioner, id: names.NetworkFSProvisioner, path: storage,
		guarded: guarded{requireMount: true}, election: &yes,
	}
	address := loopback() + ":9896"
	p, err := s.build(t.Context(), options{kubeconfig: "some", httpAddress: address}, cluster,
		slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	volumes, err := cluster.CoreV1().PersistentVolumes().Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- p.run(ctx) }()

	claim := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: "testpvc", UID: "1234",
			// As Kubernetes' own controller marks it.
			Annotations: map[string]string{"volume.kubernetes.io/storage-provisioner": names.NetworkFSProvisioner},
		},
		Spec: corev1.PersistentVolumeClaimSpec{
			StorageClassName: &class, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany},
			Resources: corev1.VolumeResourceRequirements{
				Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("50Gi")},
			},
		},
	}
	if _, err := cluster.CoreV1().PersistentVolumeClaims("default").Create(
		t.Context(), claim, metav1.CreateOptions{},
	); err != nil {
		t.Fatal(err)
	}
	pv := nextObject[*corev1.PersistentVolume](t, volumes, watch.Added)
	path := filepath.Join(storage, "pvs", "pvc-1234")
	if pv.Spec.HostPath.Path != path || pv.Spec.ClaimRef.UID != "1234" || pv.Spec.StorageClassName != class ||
		pv.Annotations[names.ProvisionedBy] != names.NetworkFSProvisioner {
		t.Errorf("PersistentVolume %+v", pv)
	}
	if err := os.WriteFile(filepath.Join(path, "file"), []byte("data"), 0o600); err != nil {
		t.Error(err)
	}
	for _, probe := range []string{"/healthz", "/readyz"} {
		if code, text := getText(t, "http://"+address+probe); code != http.StatusOK {
			t.Errorf("%s: %d %s", probe, code, text)
		}
	}
	release(t, cluster, volumes, pv)
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	lease, err := cluster.CoordinationV1().Leases("default").Get(t.Context(), "torchbox.com-hostpath",
		metav1.GetOptions{})
	if err != nil || *lease.Spec.HolderIdentity != "" {
		t.Errorf("lease %+v, error %v, want it given up", lease, err)
	}
}

// contender is one of several instances, and when it works.
type contender struct {
	*provisioner
	working chan struct{}
	ended   chan error
}

func contend(ctx context.Context, cluster *fake.Clientset) *contender {
	c := &contender{
		provisioner: &provisioner{parts: parts{
			client: cluster, lease: &lease{namespace: "storage", name: "name"}, log: slog.New(slog.DiscardHandler),
		}},
		working: make(chan struct{}), ended: make(chan error, 1),
	}
	go func() {
		c.ended <- c.runLed(ctx, func(ctx context.Context) {
			close(c.working)
			<-ctx.Done()
			time.Sleep(time.Minute) // what is under way ends
		})
	}()
	return c
}

func (c *contender) works() bool {
	select {
	case <-c.working:
		return true
	default:
		return false
	}
}

// TestOneOfSeveralWorks, and the next one begins only after its work has ended.
func TestOneOfSeveralWorks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cluster := fake.NewClientset()
		first, stopFirst := context.WithCancel(t.Context())
		second, stopSecond := context.WithCancel(t.Context())
		a := contend(first, cluster)
		time.Sleep(time.Second)
		b := contend(second, cluster)
		time.Sleep(2 * time.Minute)
		if !a.works() || b.works() {
			t.Fatalf("the first works: %t, the second: %t", a.works(), b.works())
		}
		stopFirst()
		time.Sleep(30 * time.Second)
		if b.works() {
			t.Error("the second works while the first is still at it")
		}
		if err := <-a.ended; err != nil {
			t.Error(err)
		}
		time.Sleep(10 * time.Second)
		if !b.works() {
			t.Error("the second does not work after the first")
		}
		stopSecond()
		if err := <-b.ended; err != nil {
			t.Error(err)
		}
	})
}

// TestALostLeaseEndsTheWork, and one that waits for its turn ends at once.
func TestALostLeaseEndsTheWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cluster, away := fake.NewClientset(), atomic.Bool{}
		cluster.PrependReactor("*", "leases", func(clienttesting.Action) (bool, runtime.Object, error) {
			return away.Load(), nil, errors.New("the API is away")
		})
		a := contend(t.Context(), cluster)
		time.Sleep(time.Minute)
		waits, stop := context.WithCancel(t.Context())
		b := contend(waits, cluster)
		time.Sleep(time.Second)
		stop()
		if err := <-b.ended; err != nil || b.works() {
			t.Errorf("stopped before its turn: %v, it works: %t", err, b.works())
		}
		away.Store(true)
		if err := <-a.ended; err == nil || err.Error() != "the lease is lost, and another instance may be working" {
			t.Errorf("error %v", err)
		}
	})
}
