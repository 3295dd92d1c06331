package app

import (
	"bytes"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/names"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/operator/internal/gates"
)

// start runs the program with wrong arguments: it must say so before it looks for a cluster.
func start(t *testing.T, environment map[string]string, args ...string) string {
	t.Helper()
	var out, errs bytes.Buffer
	if code := Run(args, func(name string) string { return environment[name] }, &out, &errs); code != 1 {
		t.Errorf("%v: code %d", args, code)
	}
	return errs.String()
}

func TestWrongOptions(t *testing.T) {
	t.Parallel()
	for flag, c := range map[string]struct{ value, want string }{
		"namespace":             {"", `--namespace: "": want the operator's namespace, or set POD_NAMESPACE`},
		"release-name":          {"A b", `--release-name: "A b": want the name of a Helm release`},
		"base-config":           {"", `--base-config: "": want the name of a ConfigMap`},
		"driver-name":           {strings.Repeat("a", 64), "want at most 63 of a-z, 0-9, - and ."},
		"service":               {"9", `--service: "9": want the name of a Service`},
		"webhook-configuration": {"_", "want the name of a ValidatingWebhookConfiguration"},
		"webhook-port":          {"70000", "--webhook-port: 70000: want 1 to 65535"},
		"certificates": {"none", `--certificates: "none": want one of self-managed, cert-manager, ` +
			`openshift, existingSecret`},
		"certificate-secret": {"", "want the name of a Secret"},
		"metrics-address":    {"8443", "want host:port, :port or 0"},
		"health-address":     {"0", "want host:port or :port"},
		"takeover-interval":  {"0s", "--takeover-interval: 0s: want a positive duration"},
		"finalizer-grace":    {"-1s", "--finalizer-grace: -1s: want a positive duration"},
		"log-level":          {"loud", "want debug, info, warn or error"},
		"log-format":         {"xml", "want json or text"},
	} {
		if got := start(t, map[string]string{"POD_NAMESPACE": "hpp"}, "--"+flag+"="+c.value); !strings.Contains(got,
			c.want) ||
			strings.Count(got, "\n") != 2 {
			t.Errorf("--%s=%s says %q, want only %q", flag, c.value, got, c.want)
		}
	}
	got := start(t, map[string]string{"POD_NAMESPACE": "hpp", "TLS_MIN_VERSION_OVERRIDE": "1.2"})
	if !strings.Contains(got, "TLS_MIN_VERSION_OVERRIDE") {
		t.Errorf("a wrong override says %q", got)
	}
	if got := start(t, nil, "surplus"); !strings.Contains(got, "surplus") {
		t.Errorf("an argument says %q", got)
	}
}

func TestNoCluster(t *testing.T) {
	t.Parallel()
	got := start(t, map[string]string{"POD_NAMESPACE": "hpp"}, "--kubeconfig=/nowhere")
	if !strings.Contains(got, "find the cluster (--kubeconfig)") {
		t.Errorf("says %q", got)
	}
}

func TestSplit(t *testing.T) {
	t.Parallel()
	if diff := cmp.Diff([]string{"A", "B"}, split(" A,,B ,")); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// The gates must come to the same answer from what the cache keeps as from the whole objects.
func TestStrippedObjectsDecideAlike(t *testing.T) {
	t.Parallel()
	op := &operator{options: options{driverName: names.Driver}}
	affinity := &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
		MatchExpressions: []corev1.NodeSelectorRequirement{
			{Key: "k", Operator: corev1.NodeSelectorOpIn, Values: []string{"n"}},
		},
	}}}}
	volumes := []corev1.PersistentVolume{
		{ObjectMeta: metav1.ObjectMeta{Name: "ours"}, Spec: corev1.PersistentVolumeSpec{
			ClaimRef: &corev1.ObjectReference{Namespace: "a", Name: "b"}, NodeAffinity: affinity,
			PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{
				Driver: names.Driver, VolumeAttributes: map[string]string{names.StoragePoolParameter: "p", "x": "y"},
			}},
		}},
		{ObjectMeta: metav1.ObjectMeta{Name: "a pool's"}, Spec: corev1.PersistentVolumeSpec{
			ClaimRef: &corev1.ObjectReference{Namespace: "hpp", Name: names.PoolClaimPrefix + "b-n"},
			PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{
				Driver: names.Driver, VolumeAttributes: map[string]string{names.StoragePoolParameter: "p"},
			}},
		}},
		{ObjectMeta: metav1.ObjectMeta{Name: "kept"}, Spec: corev1.PersistentVolumeSpec{
			PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain,
			PersistentVolumeSource: corev1.PersistentVolumeSource{
				CSI: &corev1.CSIPersistentVolumeSource{Driver: names.Driver},
			},
		}, Status: corev1.PersistentVolumeStatus{Phase: corev1.VolumeReleased}},
		{
			ObjectMeta: metav1.ObjectMeta{
				Name:        "legacy",
				Annotations: map[string]string{names.ProvisionedBy: names.LegacyProvisioner},
			},
			Spec: corev1.PersistentVolumeSpec{
				PersistentVolumeSource: corev1.PersistentVolumeSource{
					HostPath: &corev1.HostPathVolumeSource{Path: "/x"},
				}, NodeAffinity: affinity,
			},
		},
		{ObjectMeta: metav1.ObjectMeta{Name: "somebody's"}, Spec: corev1.PersistentVolumeSpec{
			PersistentVolumeSource: corev1.PersistentVolumeSource{
				CSI: &corev1.CSIPersistentVolumeSource{Driver: "other"},
			},
		}},
	}
	var slim []corev1.PersistentVolume
	for i := range volumes {
		stripped, err := op.stripVolume(&volumes[i])
		if err != nil {
			t.Fatal(err)
		}
		pv, ok := stripped.(*corev1.PersistentVolume)
		if !ok {
			t.Fatalf("a volume was made a %T", stripped)
		}
		slim = append(slim, *pv)
	}
	found := gates.Volumes(volumes, names.Driver, "hpp")
	if diff := cmp.Diff(found, gates.Volumes(slim, names.Driver, "hpp")); diff != "" || len(found) != 3 {
		t.Errorf("%d volumes (-whole +stripped):\n%s", len(found), diff)
	}
}

// What places the mounters of a pool's claims is kept, and what a heartbeat changes is not.
func TestStrippedNode(t *testing.T) {
	t.Parallel()
	turned := metav1.Now()
	labels := map[string]string{corev1.LabelHostname: "h", "disk": "fast"}
	spec := corev1.NodeSpec{
		Taints: []corev1.Taint{{Key: "k", Effect: corev1.TaintEffectNoSchedule}}, Unschedulable: true,
	}
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: labels, Annotations: map[string]string{"a": "b"}},
		Spec:       spec,
		Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{
			{Type: corev1.NodeMemoryPressure, Status: corev1.ConditionFalse},
			{
				Type:               corev1.NodeReady,
				Status:             corev1.ConditionTrue,
				LastTransitionTime: turned,
				LastHeartbeatTime:  metav1.Now(),
			},
		}},
	}
	node.Spec.PodCIDR, node.Spec.ProviderID = "10.0.0.0/24", "cloud://n"
	stripped, err := stripNode(node)
	if err != nil {
		t.Fatal(err)
	}
	want := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: labels},
		Spec:       spec,
		Status: corev1.NodeStatus{
			Conditions: []corev1.NodeCondition{
				{Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastTransitionTime: turned},
			},
		},
	}
	if diff := cmp.Diff(want, stripped); diff != "" {
		t.Errorf("of a node there is left (-want +got):\n%s", diff)
	}
}

func TestStrippedClaim(t *testing.T) {
	t.Parallel()
	labels := map[string]string{names.PoolClaimLabel: "local-hpp"}
	status := corev1.PersistentVolumeClaimStatus{
		Phase: corev1.ClaimBound, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		Capacity:   corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("10Gi")},
		Conditions: []corev1.PersistentVolumeClaimCondition{{Type: corev1.PersistentVolumeClaimResizing}},
	}
	claim := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "hpp", Name: "hpp-pool-local-n", Labels: labels, Annotations: map[string]string{"a": "b"},
		},
		Spec: corev1.PersistentVolumeClaimSpec{
			StorageClassName: new("fast"), VolumeName: "pv", AccessModes: status.AccessModes,
			VolumeMode: new(corev1.PersistentVolumeBlock),
		},
		Status: status,
	}
	claim.Status.AllocatedResources = status.Capacity
	stripped, err := stripClaim(claim)
	if err != nil {
		t.Fatal(err)
	}
	want := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "hpp", Name: "hpp-pool-local-n", Labels: labels},
		Spec: corev1.PersistentVolumeClaimSpec{
			StorageClassName: new("fast"), VolumeName: "pv", AccessModes: status.AccessModes,
			VolumeMode: new(corev1.PersistentVolumeBlock),
		},
		Status: status,
	}
	if diff := cmp.Diff(want, stripped); diff != "" {
		t.Errorf("of a claim there is left (-want +got):\n%s", diff)
	}
}
