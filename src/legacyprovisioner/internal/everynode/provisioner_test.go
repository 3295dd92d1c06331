package everynode

import (
	"crypto/tls"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/sig-storage-lib-external-provisioner/v13/controller"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/legacyprovisioner/internal/everynode/wire"
)

func message(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// TestProvision: every manager is asked, and the volume is kubeboost's but for the type of its hostPath.
func TestProvision(t *testing.T) {
	w := start(t, "a", "b")
	retain := corev1.PersistentVolumeReclaimRetain
	pv, state, err := w.Provision(t.Context(), options(func(o *controller.ProvisionOptions) {
		o.StorageClass.ReclaimPolicy = &retain
		o.StorageClass.Annotations = map[string]string{identity + "-reuse-policy": "SamePVCName"}
		o.PVC.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce, corev1.ReadOnlyMany}
	}))
	if err != nil || state != controller.ProvisioningFinished {
		t.Fatalf("state %s, error %v", state, err)
	}
	for node, m := range w.managers {
		if diff := cmp.Diff(request(http.MethodPost), m.asked()); diff != "" {
			t.Errorf("requests to node %s (-want +got):\n%s", node, diff)
		}
	}
	mode, kind := corev1.PersistentVolumeFilesystem, corev1.HostPathDirectory
	want := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: pvName, Annotations: map[string]string{
			"pv.kubernetes.io/provisioned-by":                                  identity,
			"kubeboost.github.com/hostpath-multihost-provisioner-identity":     identity,
			"kubeboost.github.com/hostpath-multihost-provisioner-reuse-policy": "SamePVCName",
		}},
		Spec: corev1.PersistentVolumeSpec{
			Capacity: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Mi")},
			PersistentVolumeSource: corev1.PersistentVolumeSource{
				HostPath: &corev1.HostPathVolumeSource{Path: path, Type: &kind},
			},
			AccessModes: []corev1.PersistentVolumeAccessMode{
				corev1.ReadWriteOnce, corev1.ReadOnlyMany,
			},
			PersistentVolumeReclaimPolicy: retain,
			VolumeMode:                    &mode,
		},
	}
	if diff := cmp.Diff(want, pv); diff != "" {
		t.Errorf("PersistentVolume (-want +got):\n%s", diff)
	}
	if event := w.event(); event != "" {
		t.Errorf("event %q", event)
	}
}

// TestReusePolicyOfWhatIsDeleted: a volume of a class that deletes is for nobody else, also when it is saved later.
func TestReusePolicyOfWhatIsDeleted(t *testing.T) {
	w := start(t, "a")
	remove := corev1.PersistentVolumeReclaimDelete
	for _, policy := range []*corev1.PersistentVolumeReclaimPolicy{nil, &remove} {
		pv, _, err := w.Provision(t.Context(), options(func(o *controller.ProvisionOptions) {
			o.StorageClass.ReclaimPolicy = policy
			o.StorageClass.Annotations = map[string]string{identity + "-reuse-policy": "Always"}
		}))
		if err != nil || pv.Annotations[identity+"-reuse-policy"] != "Never" {
			t.Errorf("annotations %v, error %v", pv.Annotations, err)
		}
	}
}

// TestProvisionWithoutEveryone: a node that is down does not hold a claim up, and an event says what it will do. One
// that is ready and fails does, and nothing that others have made is forgotten meanwhile.
func TestProvisionWithoutEveryone(t *testing.T) {
	w := start(t, "a", "b", "c")
	w.down(t, "b")
	w.register(t, "late", "") // its pod has never run
	if _, state, err := w.Provision(t.Context(), options(nil)); err != nil || state != controller.ProvisioningFinished {
		t.Errorf("state %s, error %v", state, err)
	}
	want := "Normal NodesAway nodes without a manager that is ready make the directory when they have one, " +
		"and pods wait for it there: b, late"
	if got := w.event(); got != want {
		t.Errorf("event\n%s\nwant\n%s", got, want)
	}
	if got := w.managers["b"].asked(); got != nil {
		t.Errorf("node b was asked for %q", got)
	}
	w.managers["c"].answer(http.StatusInternalServerError)
	pv, state, err := w.Provision(t.Context(), options(nil))
	want = "make the directory: node c: its manager answers 500 Internal Server Error: the disk is full"
	if pv != nil || state != controller.ProvisioningInBackground || message(err) != want {
		t.Errorf("%v, state %s, error %v, want %s", pv, state, err, want)
	}
	w.down(t, "a")
	w.down(t, "c")
	_, state, err = w.Provision(t.Context(), options(nil))
	want = "no node has a manager that is ready: see the pods of DaemonSet storage/managers"
	if state != controller.ProvisioningFinished || message(err) != want {
		t.Errorf("state %s, error %v, want %s", state, err, want)
	}
}

// TestOnlyTheManagerIsTold: whoever answers at the address of a manager without its key sees no token.
func TestOnlyTheManagerIsTold(t *testing.T) {
	w := start(t, "a", "b")
	certificate, _, err := wire.Issue(time.Now()) // as the managers', but nobody has registered it
	if err != nil {
		t.Fatal(err)
	}
	seen := &manager{}
	w.listen(t, "127.0.0.100", certificate, seen)
	w.pod(t, "b", "127.0.0.100", corev1.ConditionTrue)
	_, state, err := w.Provision(t.Context(), options(nil))
	if state != controller.ProvisioningInBackground ||
		!strings.Contains(message(err), "node b: tls: failed to verify") {
		t.Errorf("state %s, error %v", state, err)
	}
	if got := seen.asked(); got != nil {
		t.Errorf("a stranger was shown %q", got)
	}
	w.register(t, "b", "nonsense")
	_, _, err = w.Provision(t.Context(), options(nil))
	if want := "make the directory: node b: what its manager has registered is no certificate"; message(err) != want {
		t.Errorf("error %v, want %s", err, want)
	}
}

// TestNobodyIsFollowed: a manager that leads elsewhere is not obeyed.
func TestNobodyIsFollowed(t *testing.T) {
	w := start(t)
	elsewhere := &manager{}
	certificate, public, err := wire.Issue(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	w.listen(t, "127.0.0.101", certificate, elsewhere)
	redirect := http.RedirectHandler("https://127.0.0.101:"+w.Port, http.StatusTemporaryRedirect)
	w.listen(t, "127.0.0.100", certificate, redirect)
	w.register(t, "a", string(public))
	w.pod(t, "a", "127.0.0.100", corev1.ConditionTrue)
	_, _, err = w.Provision(t.Context(), options(nil))
	if !strings.Contains(message(err), "node a: its manager answers 307 Temporary Redirect") {
		t.Errorf("error %v", err)
	}
	if got := elsewhere.asked(); got != nil {
		t.Errorf("another was asked for %q", got)
	}
}

// TestOnlyNewTLS: no manager is asked in a protocol that shows its certificate to listeners.
func TestOnlyNewTLS(t *testing.T) {
	certificate, public, err := wire.Issue(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	trust, err := wire.Trust(public)
	if err != nil || trust.MinVersion != tls.VersionTLS13 || wire.Serve(certificate).MinVersion != tls.VersionTLS13 {
		t.Errorf("%+v, error %v", trust, err)
	}
}

func TestRefusals(t *testing.T) {
	w := start(t, "a")
	for want, change := range map[string]func(*controller.ProvisionOptions){
		"StorageClass hostpath-multihost has parameters (pvDir), and provisioner " + identity +
			" takes none; remove them from the class": func(o *controller.ProvisionOptions) {
			o.StorageClass.Parameters = map[string]string{"pvDir": "/tmp"}
		},
		"StorageClass hostpath-multihost has mountOptions (ro), and the kubelet starts no pod that has a hostPath " +
			"volume with mount options; remove them from the class, or use a class of the CSI driver": func(
			o *controller.ProvisionOptions,
		) {
			o.StorageClass.MountOptions = []string{"ro"}
		},
		"the claim has a selector, which no volume that is made for it can match; remove it": func(
			o *controller.ProvisionOptions,
		) {
			o.PVC.Spec.Selector = &metav1.LabelSelector{}
		},
		"the claim wants to begin as a copy of PersistentVolumeClaim other, and this provisioner cannot copy; leave " +
			"dataSource and dataSourceRef out": func(
			o *controller.ProvisionOptions,
		) {
			o.PVC.Spec.DataSource = &corev1.TypedLocalObjectReference{Kind: "PersistentVolumeClaim", Name: "other"}
		},
		"StorageClass hostpath-multihost: annotation " + identity + `-reuse-policy: "Sometimes": want Never, ` +
			"SamePVCName or Always": func(o *controller.ProvisionOptions) {
			o.StorageClass.Annotations = map[string]string{identity + "-reuse-policy": "Sometimes"}
		},
	} {
		pv, state, err := w.Provision(t.Context(), options(change))
		if pv != nil || state != controller.ProvisioningFinished || message(err) != want {
			t.Errorf("%v, state %s, error\n%v\nwant\n%s", pv, state, err, want)
		}
	}
	if got := w.managers["a"].asked(); got != nil {
		t.Errorf("a manager was asked for %q", got)
	}
}

// TestLongNames: what Linux takes as one name ends in the volume's, as removal needs it.
func TestLongNames(t *testing.T) {
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{
		Namespace: strings.Repeat("n", 63), Name: strings.Repeat("c", 253),
	}}
	long := wire.Path("/var/kubernetes", claim, pvName)
	name, err := wire.Name("/var/kubernetes", long, pvName)
	if err != nil || len(name) != 255 || !strings.HasPrefix(name, claim.Namespace+"-cc") {
		t.Errorf("name %q of %d bytes, error %v", name, len(name), err)
	}
}

// TestManyNodes are not all named.
func TestManyNodes(t *testing.T) {
	faults, all := map[string]error{}, []string{}
	for node := range strings.SplitSeq("l k j i h g f e d c b a", " ") {
		faults[node] = http.ErrServerClosed
		all = append(all, node)
	}
	if got, want := listNodes(all), "a, b, c, d, e, f, g, h, i, j and 2 more"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if got := message(summary(faults)); !strings.HasPrefix(got, "node a: http: Server closed; node b: ") ||
		!strings.HasSuffix(got, "node j: http: Server closed; and 2 more nodes") {
		t.Error(got)
	}
}
