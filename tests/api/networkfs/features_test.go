package networkfs

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/names"
	"github.com/hostpath-provisioner/hostpath-provisioner/tests/api/harness"
)

func asPrinted(t *testing.T, w *world) {
	claim := w.claim(t, "") // the class is the cluster's default
	pv := w.bound(t, claim, names.NetworkFSProvisioner)
	if pv.Spec.StorageClassName != seeds ||
		pv.Spec.PersistentVolumeReclaimPolicy != corev1.PersistentVolumeReclaimDelete ||
		!slices.Equal(pv.Spec.AccessModes, []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}) {
		t.Errorf("volume %+v", pv.Spec)
	}
	write(t, pv.Spec.HostPath.Path, "deep", "file")
	w.deleted(t, claim, pv)
}

// waiting: the test is the scheduler.
func waiting(t *testing.T, w *world) {
	claim := w.claim(t, waits)
	harness.Change(t, w.Server, claim, func(c *corev1.PersistentVolumeClaim) {
		c.Annotations = map[string]string{selectedNode: "any"}
	})
	w.deleted(t, claim, w.bound(t, claim, names.NetworkFSProvisioner))
}

func retained(t *testing.T, w *world) {
	claim := w.claim(t, retains)
	pv := w.bound(t, claim, names.NetworkFSProvisioner)
	w.Delete(t, claim)
	harness.Until(t, w.Server, "the volume is released", pv, func(v *corev1.PersistentVolume) error {
		if v.Status.Phase != corev1.VolumeReleased {
			return fmt.Errorf("it is %s", v.Status.Phase)
		}
		return nil
	})
	w.holds(t, w.pvDir, pv.Name)
	w.Delete(t, pv)
	w.Gone(t, pv)
	w.holds(t, w.pvDir, pv.Name)
	if err := os.Remove(pv.Spec.HostPath.Path); err != nil {
		t.Fatal(err)
	}
}

func accessModes(t *testing.T, w *world) {
	for _, modes := range [][]corev1.PersistentVolumeAccessMode{
		{corev1.ReadWriteOnce},
		{corev1.ReadOnlyMany},
		{corev1.ReadWriteOnce, corev1.ReadWriteMany},
		{corev1.ReadWriteOncePod},
	} {
		claim := claimOf(seeds)
		claim.Spec.AccessModes = modes
		w.Create(t, claim)
		pv := w.bound(t, claim, names.NetworkFSProvisioner)
		if !slices.Equal(pv.Spec.AccessModes, modes) {
			t.Errorf("access modes %v, want %v", pv.Spec.AccessModes, modes)
		}
		w.deleted(t, claim, pv)
	}
}

// torchboxs is a volume as torchbox's provisioner left it, with its claim.
func (w *world) torchboxs(t *testing.T, name, id string) (*corev1.PersistentVolumeClaim, *corev1.PersistentVolume) {
	t.Helper()
	write(t, w.pvDir, name, "file")
	pv := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{
			"torchbox.com/hostpath-provisioner-id": id, "pv.kubernetes.io/provisioned-by": "torchbox.com/hostpath",
		}},
		Spec: corev1.PersistentVolumeSpec{
			AccessModes:                   []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany},
			Capacity:                      corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("50Gi")},
			PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimDelete, StorageClassName: seeds,
			PersistentVolumeSource: corev1.PersistentVolumeSource{
				HostPath: &corev1.HostPathVolumeSource{Path: w.pvDir + "/" + name},
			},
		},
	}
	w.Create(t, pv)
	claim := claimOf(seeds)
	claim.Spec.VolumeName = name
	w.Create(t, claim)
	harness.Until(t, w.Server, "the claim is bound", claim, func(c *corev1.PersistentVolumeClaim) error {
		if c.Status.Phase != corev1.ClaimBound {
			return fmt.Errorf("it is %s", c.Status.Phase)
		}
		return nil
	})
	return claim, pv
}

func takenOver(t *testing.T, w *world) {
	claim, pv := w.torchboxs(t, "pvc-145c785e-ab83-11e7-9432-4201ac1fd019", "torchbox.com/hostpath")
	w.deleted(t, claim, pv)
}

// foreign: the volume of an instance with an identity of its own stays. A claim of ours that is deleted after it is
// served, so that the provisioner has seen both.
func foreign(t *testing.T, w *world) {
	claim, pv := w.torchboxs(t, "pvc-of-another", "another")
	ours := w.claim(t, seeds)
	volume := w.bound(t, ours, names.NetworkFSProvisioner)
	w.Delete(t, claim)
	w.Delete(t, ours)
	w.Gone(t, volume)
	w.holds(t, w.pvDir, pv.Name)
	w.Delete(t, pv)
	w.Gone(t, pv)
	if err := os.RemoveAll(pv.Spec.HostPath.Path); err != nil {
		t.Fatal(err)
	}
}

func badInput(t *testing.T, w *world) {
	block := corev1.PersistentVolumeBlock
	for name, test := range map[string]struct {
		parameters map[string]string
		options    []string
		change     func(*corev1.PersistentVolumeClaim)
		want       string
	}{
		"relative": {parameters: map[string]string{"pvDir": "ceph/pvs"}, want: `StorageClass relative: parameter ` +
			`pvDir: "ceph/pvs": want the absolute path of a directory on the storage, without . and .., ` +
			`such as /ceph/pvs`},
		"missing": {want: "StorageClass missing: parameter pvDir is missing; it names the directory on the storage " +
			"where volumes are made, such as /ceph/pvs"},
		"unknown": {parameters: map[string]string{"pvDir": w.pvDir, "path": "x"}, want: "StorageClass unknown has " +
			`the parameter "path", and provisioner torchbox.com/hostpath knows pvDir and cephFSQuota`},
		"quota": {parameters: map[string]string{"pvDir": w.pvDir, "cephFSQuota": "true"}, want: "set the quota of " +
			"the volume on CephFS (ceph.quota.max_bytes; the class says cephFSQuota: true, and the client needs the " +
			"capability p): operation not supported"},
		"options": {
			parameters: map[string]string{"pvDir": w.pvDir}, options: []string{"noatime"},
			want: "StorageClass options has mountOptions (noatime), and the kubelet starts no pod that has a " +
				"hostPath volume with mount options; remove them from the class, or use a class of the CSI driver",
		},
		"block": {
			parameters: map[string]string{"pvDir": w.pvDir},
			change:     func(c *corev1.PersistentVolumeClaim) { c.Spec.VolumeMode = &block },
			want:       "torchbox.com/hostpath does not support block volume provisioning",
		},
		"selector": {
			parameters: map[string]string{"pvDir": w.pvDir},
			change: func(c *corev1.PersistentVolumeClaim) {
				c.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}
			},
			want: "the claim has a selector, which no volume that is made for it can match; remove it",
		},
		"copy": {
			parameters: map[string]string{"pvDir": w.pvDir},
			change: func(c *corev1.PersistentVolumeClaim) {
				c.Spec.DataSource = &corev1.TypedLocalObjectReference{Kind: "PersistentVolumeClaim", Name: "other"}
			},
			want: "the claim wants to begin as a copy of PersistentVolumeClaim other, and this provisioner cannot " +
				"copy; leave dataSource and dataSourceRef out",
		},
	} {
		class := &storagev1.StorageClass{
			ObjectMeta: metav1.ObjectMeta{Name: name}, Provisioner: names.NetworkFSProvisioner,
			Parameters: test.parameters, MountOptions: test.options,
		}
		w.Create(t, class)
		claim := claimOf(name)
		if test.change != nil {
			test.change(claim)
		}
		w.Create(t, claim)
		w.said(t, claim.UID, "ProvisioningFailed: "+test.want)
		w.holds(t, w.pvDir)
		w.Delete(t, claim)
		w.Delete(t, class)
	}
}

// unmounted: nothing is made on this machine's own disk, and nothing taken for deleted; what is mounted later is seen.
func unmounted(t *testing.T, w *world) {
	old := w.claim(t, seeds)
	pv := w.bound(t, old, names.NetworkFSProvisioner)
	write(t, pv.Spec.HostPath.Path, "file")
	// As a node that loses its storage does; what is open on it goes on.
	hidden := w.storage + "-hidden"
	if err := os.Mkdir(hidden, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount(w.storage, hidden, "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(hidden, unix.MNT_DETACH) })
	if err := unix.Unmount(w.storage, 0); err != nil {
		t.Fatal(err)
	}
	const sentence = " is on the filesystem of the node's /: the storage is not mounted there, and nothing is made " +
		"or removed until it is"
	claim := w.claim(t, seeds)
	w.said(t, claim.UID, "ProvisioningFailed: "+w.pvDir+
		" is not there, and "+w.storage+sentence)
	// Somebody has made the directory by hand.
	write(t, w.pvDir, pv.Name, "of this machine")
	w.said(t, claim.UID, "ProvisioningFailed: "+w.pvDir+sentence)
	w.Delete(t, old)
	w.said(t, pv.UID, "VolumeFailedDelete: "+w.pvDir+sentence)
	w.holds(t, w.pvDir, pv.Name)
	w.holds(t, w.pvDir+"/"+pv.Name, "of this machine")
	if err := os.RemoveAll(w.pvDir); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount(hidden, w.storage, "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	volume := w.bound(t, claim, names.NetworkFSProvisioner)
	w.Gone(t, pv)
	w.deleted(t, claim, volume)
}

// exchanged: mounted, but not what it was.
func exchanged(t *testing.T, w *world) {
	old := w.claim(t, seeds)
	pv := w.bound(t, old, names.NetworkFSProvisioner)
	if err := unix.Mount("none", w.storage, "tmpfs", 0, ""); err != nil { // over it
		t.Fatal(err)
	}
	claim := w.claim(t, seeds)
	w.said(t, claim.UID, "ProvisioningFailed: "+w.pvDir+
		" has none of the 1 volumes that the cluster has there (such as "+pv.Name+"), so it is not their storage, and "+
		"nothing is made or removed: mount the right one, or delete their PersistentVolumes")
	if err := unix.Unmount(w.storage, 0); err != nil {
		t.Fatal(err)
	}
	volume := w.bound(t, claim, names.NetworkFSProvisioner)
	w.Delete(t, old)
	w.Gone(t, pv)
	w.deleted(t, claim, volume)
}

// killed: what is mounted inside of the volume holds the removal up, and then the machine fails. The next process goes
// on, although by then a pod had the directory made again.
func killed(t *testing.T, w *world) {
	claim := w.claim(t, seeds)
	pv := w.bound(t, claim, names.NetworkFSProvisioner)
	path, half := pv.Spec.HostPath.Path, filepath.Join(w.pvDir, ".deleted-"+pv.Name)
	write(t, path, "kept", "file")
	write(t, path, "other", "file")
	if err := unix.Mount("none", path+"/kept", "tmpfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(half+"/kept", unix.MNT_DETACH) })
	w.Delete(t, claim)
	w.said(t, pv.UID,
		"VolumeFailedDelete: remove the volume's directory: open "+half+"/kept: invalid cross-device link")
	w.running.Kill(t)
	w.holds(t, w.pvDir, filepath.Base(half))
	w.holds(t, half, "kept")
	if err := unix.Unmount(half+"/kept", 0); err != nil {
		t.Fatal(err)
	}
	write(t, path, "made again")
	w.running = w.start()
	w.gone(t, pv)
}

// two of them do not work at once, and the second goes on when the first is stopped.
func two(t *testing.T, w *world) {
	second := w.start()
	claim := w.claim(t, seeds)
	pv := w.bound(t, claim, names.NetworkFSProvisioner)
	if strings.Contains(second.Log(), "leading") {
		t.Errorf("both lead:\n%s", second.Log())
	}
	w.running.Stop(t)
	w.running = second
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{
		Namespace: harness.Namespace, Name: "torchbox.com-hostpath",
	}}
	w.deleted(t, claim, pv)
	if !strings.Contains(second.Log(), "leading") {
		t.Errorf("the second does not say that it leads:\n%s", second.Log())
	}
	if holder := harness.Get(t, w.Server, lease).Spec.HolderIdentity; holder == nil || *holder == "" {
		t.Error("nobody holds the lease")
	}
}

// unprivileged: CAP_DAC_OVERRIDE lets another user than root make volumes, and remove what others left in them; what is
// in a directory where only owners may remove takes CAP_FOWNER too.
func unprivileged(t *testing.T, w *world) {
	const name = "example.com/unprivileged"
	class := &storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{Name: "unprivileged"}, Provisioner: name,
		Parameters: map[string]string{"PVDIR": w.pvDir},
	}
	w.Create(t, class)
	first := w.asNobody(t, name, "+dac_override")
	claim := w.claim(t, class.Name)
	pv := w.bound(t, claim, name)
	private := pv.Spec.HostPath.Path + "/private"
	write(t, private, "file")
	must(t, os.Chmod(private, 0o000), os.Chown(private, 1234, 1234), os.Chown(pv.Spec.HostPath.Path, 1234, 1234))
	w.deleted(t, claim, pv)

	claim = w.claim(t, class.Name)
	pv = w.bound(t, claim, name)
	sticky := pv.Spec.HostPath.Path + "/sticky"
	write(t, sticky, "file")
	must(t, os.Chmod(sticky, 0o777|os.ModeSticky))
	w.Delete(t, claim)
	w.said(t, pv.UID, "VolumeFailedDelete: remove the volume's directory: remove "+w.pvDir+"/.deleted-"+pv.Name+
		"/sticky/file: operation not permitted")
	first.Stop(t)
	w.asNobody(t, name, "+dac_override,+fowner")
	w.gone(t, pv)
	w.Delete(t, class)
}

// asNobody runs a provisioner as another user than root with some capabilities, as torchbox prints it.
func (w *world) asNobody(t *testing.T, name, capabilities string) *harness.Process {
	t.Helper()
	return w.Run(t, "/usr/bin/setpriv", nil, "--reuid=65534", "--regid=65534", "--clear-groups",
		"--bounding-set=-all,"+capabilities, "--inh-caps=-all,"+capabilities, "--ambient-caps=-all,"+capabilities,
		w.binary, "-mode=shared", "-kubeconfig", w.Kubeconfig, "-name", name)
}

func must(t *testing.T, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

// master: through a proxy as `kubectl proxy` is one, without a kubeconfig.
func master(t *testing.T, w *world) {
	const name = "example.com/proxied"
	server, err := url.Parse(w.Config.Host)
	if err != nil {
		t.Fatal(err)
	}
	transport, err := rest.TransportFor(w.Config)
	if err != nil {
		t.Fatal(err)
	}
	proxy := httptest.NewServer(&httputil.ReverseProxy{
		Transport: transport, FlushInterval: -1, ErrorHandler: func(http.ResponseWriter, *http.Request, error) {},
		Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(server) },
	})
	t.Cleanup(proxy.CloseClientConnections)
	process := w.Run(t, w.binary, nil, "-mode=shared", "-master", proxy.URL, "-name", name)
	class := &storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{Name: "proxied"}, Provisioner: name,
		Parameters: map[string]string{"pvDir": w.pvDir},
	}
	w.Create(t, class)
	claim := w.claim(t, class.Name)
	w.deleted(t, claim, w.bound(t, claim, name))
	w.Delete(t, class)
	process.Stop(t)
}
