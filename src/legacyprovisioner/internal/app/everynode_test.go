package app

import (
	"bytes"
	"context"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/names"
)

// everyNodeEnvironment is what the chart gives provisioner and managers.
func everyNodeEnvironment(name string) string {
	return map[string]string{"POD_NAMESPACE": "storage", "NODE_NAME": "here"}[name]
}

func TestEveryNodeOptions(t *testing.T) {
	usual := together{
		name: names.EveryNodeProvisioner, path: "/var/kubernetes", namespace: "storage",
		managers: "hostpath-multihost-manager",
	}
	other := together{name: "example.com/every", path: "/srv", namespace: "storage", managers: "set"}
	for name, test := range map[string]struct {
		args     []string
		provides everyNodeOptions
		manages  everyNodeManagerOptions
	}{
		"defaults": {
			nil,
			everyNodeOptions{usual, "/var/run/secrets/hostpath-provisioner/token", 10 * time.Minute},
			everyNodeManagerOptions{together: usual, node: "here", account: "account", listen: ":8080"},
		},
		"all": {
			[]string{"-name=example.com/every", "--path=/srv", "--managers=set"},
			everyNodeOptions{other, "/token", time.Hour},
			everyNodeManagerOptions{together: other, node: "here", account: "account", listen: "127.0.0.1:80"},
		},
	} {
		args := append([]string{"--mode=everyNode"}, test.args...)
		if test.args != nil {
			args = append(args, "--token-file=/token", "--node-gone-after=1h")
		}
		got, err := parse(args, everyNodeEnvironment, t.Output())
		if err != nil || *got.own.(*everyNodeOptions) != test.provides {
			t.Errorf("%s: %+v, error %v, want %+v", name, got.own, err, test.provides)
		}
		args = append([]string{"--mode=everyNodeManager", "--provisioner-account=account"}, test.args...)
		if test.args != nil {
			args = append(args, "--listen=127.0.0.1:80")
		}
		got, err = parse(args, everyNodeEnvironment, t.Output())
		if err != nil || *got.own.(*everyNodeManagerOptions) != test.manages {
			t.Errorf("%s: %+v, error %v, want %+v", name, got.own, err, test.manages)
		}
	}
}

func TestWrongEveryNodeOptions(t *testing.T) {
	const shared = `--name: "every node": want a name such as ` +
		`kubeboost.github.com/hostpath-multihost-provisioner, of ` +
		`which the part after the slash has at most 50 characters
--name: "every node": want a slash in it
--path: "kubernetes": want the clean absolute path of a directory for the volumes, such as /var/kubernetes
--managers: "": want the name of the managers' DaemonSet
POD_NAMESPACE: "": want the namespace of provisioner and managers
`
	for mode, want := range map[string]string{
		"everyNode": `--token-file: "token": want an absolute path
--node-gone-after: 0s: want more than 0
`,
		"everyNodeManager": `--provisioner-account: "": want the name of the provisioner's ServiceAccount
--listen: "8080": want host:port or :port
NODE_NAME: "": want the node's name in the cluster
`,
	} {
		args := []string{"--mode=" + mode, "--name=every node", "--path=kubernetes", "--managers="}
		if mode == "everyNode" {
			args = append(args, "--token-file=token", "--node-gone-after=0")
		} else {
			args = append(args, "--listen=8080")
		}
		var stderr bytes.Buffer
		code := Run(args, func(string) string { return "" }, &stderr)
		if diff := cmp.Diff("legacyprovisioner: wrong options:\n"+shared+want, stderr.String()); diff != "" ||
			code != 1 {
			t.Errorf("%s: code %d; output (-want +got):\n%s", mode, code, diff)
		}
	}
}

// everyNodeCluster has one node, with a pod of the managers at an address of this machine.
func everyNodeCluster(address string) *fake.Clientset {
	labels := map[string]string{"app": "manager"}
	immediate := storagev1.VolumeBindingImmediate
	cluster := fake.NewClientset(
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "here"}},
		&appsv1.DaemonSet{
			ObjectMeta: metav1.ObjectMeta{Namespace: "storage", Name: "hostpath-multihost-manager"},
			Spec:       appsv1.DaemonSetSpec{Selector: &metav1.LabelSelector{MatchLabels: labels}},
			Status:     appsv1.DaemonSetStatus{DesiredNumberScheduled: 1},
		},
		&corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "storage", Name: "manager", Labels: labels},
			Spec:       corev1.PodSpec{NodeName: "here"},
			Status: corev1.PodStatus{PodIP: address, Conditions: []corev1.PodCondition{
				{Type: corev1.PodReady, Status: corev1.ConditionTrue},
			}},
		},
		&storagev1.StorageClass{
			ObjectMeta:  metav1.ObjectMeta{Name: "hostpath-multihost"},
			Provisioner: names.EveryNodeProvisioner, VolumeBindingMode: &immediate,
		},
	)
	cluster.PrependReactor("create", "tokenreviews", func(a clienttesting.Action) (bool, runtime.Object, error) {
		create := a.(clienttesting.CreateAction)
		review := create.GetObject().(*authenticationv1.TokenReview)
		review.Status = authenticationv1.TokenReviewStatus{
			Authenticated: review.Spec.Token == "secret", Audiences: review.Spec.Audiences,
			User: authenticationv1.UserInfo{
				Username: "system:serviceaccount:storage:provisioner",
				Extra: map[string]authenticationv1.ExtraValue{
					"authentication.kubernetes.io/pod-name": {"provisioner-0"},
				},
			},
		}
		return true, review, nil
	})
	return cluster
}

// TestAVolumeOnEveryNode runs provisioner and manager, everything but the API.
func TestAVolumeOnEveryNode(t *testing.T) {
	// Of its own, since the port is that of the contract.
	address := loopback()
	base := t.TempDir()
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	cluster, log := everyNodeCluster(address), slog.New(slog.DiscardHandler)
	volumes, err := cluster.CoreV1().PersistentVolumes().Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	shared := together{
		name: names.EveryNodeProvisioner, path: base, namespace: "storage", managers: "hostpath-multihost-manager",
	}
	p, err := (&everyNodeOptions{shared, token, time.Minute}).build(
		t.Context(), options{httpAddress: address + ":9896"}, cluster, log,
	)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 2)
	go func() { ended <- p.run(ctx) }()
	go func() {
		manages := &everyNodeManagerOptions{
			together: shared, node: "here", account: "provisioner", listen: address + ":" + names.EveryNodePort,
		}
		ended <- manages.run(ctx, options{httpAddress: "127.0.0.1:0"}, cluster, log)
	}()
	class := "hostpath-multihost"
	claim := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "data", UID: "1234", Annotations: map[string]string{
			"volume.kubernetes.io/storage-provisioner": names.EveryNodeProvisioner,
		}},
		Spec: corev1.PersistentVolumeClaimSpec{
			StorageClassName: &class, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany},
		},
	}
	if _, err := cluster.CoreV1().PersistentVolumeClaims("shop").Create(
		t.Context(), claim, metav1.CreateOptions{},
	); err != nil {
		t.Fatal(err)
	}
	pv := nextObject[*corev1.PersistentVolume](t, volumes, watch.Added)
	path := filepath.Join(base, "shop-data-pvc-1234")
	if pv.Spec.HostPath.Path != path || len(pv.Finalizers) != 1 {
		t.Errorf("PersistentVolume with path %s, finalizers %v", pv.Spec.HostPath.Path, pv.Finalizers)
	}
	if err := os.WriteFile(filepath.Join(path, "file"), []byte("data"), 0o600); err != nil {
		t.Error(err)
	}
	if code, text := getText(t, "http://"+address+":9896/readyz"); code != http.StatusOK {
		t.Errorf("/readyz: %d %s", code, text)
	}
	pv.Status.Phase = corev1.VolumeReleased
	if _, err := cluster.CoreV1().PersistentVolumes().UpdateStatus(t.Context(), pv,
		metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	nextObject[*corev1.PersistentVolume](t, volumes, watch.Modified)
	nextObject[*corev1.PersistentVolume](t, volumes, watch.Deleted)
	if _, err := os.Stat(path); !os.IsNotExist(err) {
		t.Errorf("the directory is left (%v)", err)
	}
	cancel()
	for range 2 {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}
