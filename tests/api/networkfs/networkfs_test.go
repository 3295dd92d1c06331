// Package networkfs tests the provisioner of storage that all nodes have mounted, against a real API server and the
// real claim binder: as the chart runs it, with the rights that the chart gives it, and out of the cluster. The storage
// is a tmpfs. Needs root.
package networkfs

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/names"
	"github.com/hostpath-provisioner/hostpath-provisioner/tests/api/harness"
	"github.com/hostpath-provisioner/hostpath-provisioner/tests/chart/helmcli"
)

// The classes of the chart's instance, beside the seed's.
const (
	seeds   = "cephfs"
	waits   = "waits"
	retains = "retains"
)

const selectedNode = "volume.kubernetes.io/selected-node"

// world is a control plane, and storage that is mounted on this machine.
type world struct {
	*harness.Server
	// storage is where it is mounted, and pvDir the directory of the classes, below it.
	storage, pvDir string
	binary         string
	args           []string // as the chart's pod has them, with access to the cluster
	running        *harness.Process
	top            *testing.T
}

// start runs the provisioner as the pod does, until the whole test ends.
func (w *world) start() *harness.Process {
	w.top.Helper()
	return w.Run(w.top, w.binary, nil, w.args...)
}

func TestNetworkFSProvisioner(t *testing.T) {
	w := &world{top: t, Server: harness.Start(t), storage: filepath.Join(t.TempDir(), "ceph")}
	w.pvDir = w.storage + "/pvs"
	if err := os.Mkdir(w.storage, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("none", w.storage, "tmpfs", 0, ""); err != nil {
		t.Fatalf("mount a tmpfs (this test needs root): %v", err)
	}
	t.Cleanup(func() {
		for unix.Unmount(w.storage, unix.MNT_DETACH) == nil {
			continue // a test that failed may have left one over it
		}
	})
	w.installChart(t)
	w.installClasses(t)
	w.binary = w.buildForAll(t)
	w.running = w.start()
	// One after the other, up to the first that fails: some take the storage or the provisioner away.
	for _, test := range []struct {
		name string
		do   func(*testing.T, *world)
	}{
		{"class and claim as torchbox prints them", asPrinted},
		{"a class that waits for a consumer", waiting},
		{"retained", retained},
		{"every access mode", accessModes},
		{"a volume that torchbox's provisioner made", takenOver},
		{"another identity's volume", foreign},
		{"bad input", badInput},
		{"not mounted", unmounted},
		{"another filesystem", exchanged},
		{"killed in the middle of a delete", killed},
		{"two of them", two},
		{"out of the cluster, with a kubeconfig, under another name, not as root", unprivileged},
		{"out of the cluster, with -master", master},
	} {
		if !t.Run(test.name, func(t *testing.T) { test.do(t, w) }) {
			w.running.Show(t)
			break
		}
	}
}

// installChart installs the chart with an instance, and takes from its Deployment how to run it.
func (w *world) installChart(t *testing.T) {
	t.Helper()
	instances := `[{"name":"` + names.NetworkFSProvisioner + `","path":"` + w.storage + `","storageClasses":[` +
		`{"name":"` + waits + `","pvDir":"` + w.pvDir + `","volumeBindingMode":"WaitForFirstConsumer"},` +
		`{"name":"` + retains + `","pvDir":"` + w.pvDir + `","reclaimPolicy":"Retain"}]}]`
	out, err := w.Helm(t).Run(t, helmcli.Values{JSON: map[string]string{
		"legacyProvisioner.shared.enabled": "true", "legacyProvisioner.shared.instances": instances,
	}}, "install", harness.Release, helmcli.ChartDir(t))
	if err != nil {
		t.Fatalf("helm install: %v\n%s", err, out)
	}
	pod := harness.Get(t, w.Server, &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{
		Namespace: harness.Namespace, Name: harness.Release + "-hostpath-provisioner-shared-torchbox-com-hostpath",
	}}).Spec.Template.Spec
	w.args = append(slices.Clone(pod.Containers[0].Args), "--kubeconfig="+w.KubeconfigOf(t, pod.ServiceAccountName),
		// What a pod has from its place.
		"--host-mounts=/proc/1/mountinfo", "--http-address=", "--leader-election",
		"--leader-election-namespace="+harness.Namespace)
}

// installClasses makes the class as torchbox prints it, but for the directory.
func (w *world) installClasses(t *testing.T) {
	t.Helper()
	w.Create(t, &storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{Name: seeds, Annotations: map[string]string{
			"storageclass.kubernetes.io/is-default-class": "true",
		}},
		Provisioner: "torchbox.com/hostpath", Parameters: map[string]string{"pvDir": w.pvDir},
	})
}

// buildForAll builds the binary where every user may run it.
func (w *world) buildForAll(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "provisioner-") //nolint:usetesting // nobody else may enter the test's own
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	binary := filepath.Join(dir, "legacyprovisioner")
	if err := os.Rename(w.Build(t, "./src/legacyprovisioner"), binary); err != nil {
		t.Fatal(err)
	}
	return binary
}

// claimOf is the claim that torchbox prints, in a class; "" is the default one.
func claimOf(class string) *corev1.PersistentVolumeClaim {
	claim := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", GenerateName: "testpvc-", Annotations: map[string]string{}},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany},
			Resources: corev1.VolumeResourceRequirements{
				Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("50Gi")},
			},
		},
	}
	if class != "" {
		claim.Spec.StorageClassName = &class
	}
	return claim
}

func (w *world) claim(t *testing.T, class string) *corev1.PersistentVolumeClaim {
	t.Helper()
	claim := claimOf(class)
	w.Create(t, claim)
	return claim
}

// bound waits until a claim has its volume, and checks the volume and its directory.
func (w *world) bound(t *testing.T, claim *corev1.PersistentVolumeClaim, name string) *corev1.PersistentVolume {
	t.Helper()
	harness.Until(t, w.Server, "the claim is bound", claim, func(c *corev1.PersistentVolumeClaim) error {
		if c.Status.Phase != corev1.ClaimBound {
			return fmt.Errorf("it is %s; %q", c.Status.Phase, w.messages(t.Context(), c.UID))
		}
		return nil
	})
	pv := harness.Get(t, w.Server, &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: claim.Spec.VolumeName}})
	path := w.pvDir + "/pvc-" + string(claim.UID)
	switch {
	case pv.Spec.HostPath == nil || pv.Spec.HostPath.Path != path || *pv.Spec.HostPath.Type != corev1.HostPathDirectory:
		t.Errorf("volume %s at %+v, want it at %s", pv.Name, pv.Spec.HostPath, path)
	case pv.Spec.NodeAffinity != nil:
		t.Errorf("affinity %+v, want none", pv.Spec.NodeAffinity)
	case pv.Spec.Capacity.Storage().String() != "50Gi":
		t.Errorf("capacity %s, want the 50Gi that were asked for", pv.Spec.Capacity.Storage())
	case pv.Annotations[names.ProvisionedBy] != name ||
		pv.Annotations[names.NetworkFSIdentity] != names.NetworkFSProvisioner:
		t.Errorf("annotations %v", pv.Annotations)
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o777 {
		t.Errorf("directory %s: %v, %v; want mode 0777", path, info, err)
	}
	return pv
}

// deleted deletes a claim and waits until its volume and directory are gone.
func (w *world) deleted(t *testing.T, claim *corev1.PersistentVolumeClaim, pv *corev1.PersistentVolume) {
	t.Helper()
	w.Delete(t, claim)
	w.gone(t, pv)
}

// gone waits until a volume and its directory are gone.
func (w *world) gone(t *testing.T, pv *corev1.PersistentVolume) {
	t.Helper()
	w.Gone(t, pv)
	w.holds(t, w.pvDir)
}

// holds compares what is in a directory.
func (w *world) holds(t *testing.T, path string, want ...string) {
	t.Helper()
	entries, err := os.ReadDir(path)
	if err != nil {
		t.Error(err)
	}
	var got []string
	for _, entry := range entries {
		got = append(got, entry.Name())
	}
	if !slices.Equal(got, want) {
		t.Errorf("in %s there is %v, want %v", path, got, want)
	}
}

// messages are those of the warnings about an object.
func (w *world) messages(ctx context.Context, of any) (found []string) {
	var list corev1.EventList
	if err := w.Client.List(ctx, &list); err != nil {
		return []string{err.Error()}
	}
	for _, event := range list.Items {
		if event.InvolvedObject.UID == of && event.Type == corev1.EventTypeWarning {
			found = append(found, event.Reason+": "+event.Message)
		}
	}
	return found
}

// said waits for a warning about an object.
func (w *world) said(t *testing.T, of any, want string) {
	t.Helper()
	harness.Eventually(t, "event "+want, func(ctx context.Context) error {
		found := w.messages(ctx, of)
		if !slices.Contains(found, want) {
			return fmt.Errorf("there are\n%q", found)
		}
		return nil
	})
}

func write(t *testing.T, path ...string) {
	t.Helper()
	file := filepath.Join(path...)
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(strings.Repeat("data\n", 10)), 0o400); err != nil {
		t.Fatal(err)
	}
}
