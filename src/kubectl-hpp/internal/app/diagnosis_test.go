package app

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/client-go/kubernetes/fake"

	fakediscovery "k8s.io/client-go/discovery/fake"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/buildinfo"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
)

const testDriver, gibi = "hpp.example", 1 << 30

func testNow() time.Time { return time.Date(2026, 11, 26, 8, 0, 0, 0, time.UTC) }

// installation is a cluster of three nodes, one of which is not connected, and one of which lacks its disk.
type installation struct {
	api     *fake.Clientset
	status  nodeapi.Status
	volumes []nodeapi.VolumeStatus
	deleted []nodeapi.DeletedVolume
	refused error // of running a command in its pod
}

func object(namespace, name string, labels map[string]string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: labels}
}

func newInstallation() *installation {
	is := &installation{status: nodeapi.Status{Driver: testDriver, Version: buildinfo.Version()}}
	var objects []runtime.Object
	for i, name := range []string{"worker-1", "worker-2", "worker-3"} {
		n := nodeapi.NodeStatus{Name: name, State: "connected", Version: buildinfo.Version(), Seen: testNow()}
		pool := nodeapi.PoolStatus{
			Name: "nvme", Path: "/mnt/nvme", State: nodeapi.StatePresent, Backend: "xfs", Enforcement: "strict",
			Seen: testNow(), Size: 1000 * gibi, Free: 400 * gibi, Promised: 788 * gibi, Allocatable: 212 * gibi,
			Volumes: 9,
		}
		switch i {
		case 1:
			pool.Used, pool.State, pool.Reason = true, nodeapi.StateAbsent, "MarkerMissing"
			pool.Message = "nothing is mounted at /mnt/nvme <script>alert(1)</script>"
		case 2:
			n.State, n.Seen = "not connected", testNow().Add(-6*time.Minute)
			n.Message = "away for 6m0s, or since this controller started"
		}
		if i != 2 {
			n.Pools = []nodeapi.PoolStatus{pool}
		}
		is.status.Nodes = append(is.status.Nodes, n)
		objects = append(objects, nodeObjects(name)...)
	}
	is.volumes = []nodeapi.VolumeStatus{
		{
			ID: "pvc-1", PV: "pvc-1", Node: "worker-1", Pool: "nvme", Claim: "shop/pg-0", Bytes: 200 * gibi,
			Used: 188 * gibi,
		},
		{
			ID: "pvc-2", PV: "pvc-2", Node: "worker-1", Pool: "nvme", Claim: "shop/<b>", Bytes: 100 * gibi,
			Used: 12 * gibi,
		},
		{ID: "pvc-3", Node: "worker-1", Pool: "nvme", Bytes: 50 * gibi, Used: -1, State: "orphan"},
	}
	is.api = fake.NewClientset(append(append(objects, controllerPod()), userObjects()...)...)
	discovery, ok := is.api.Discovery().(*fakediscovery.FakeDiscovery)
	if !ok {
		panic("the fake's discovery is another")
	}
	discovery.FakedServerVersion = &version.Info{GitVersion: "v1.37.1"}
	return is
}

func nodeObjects(name string) []runtime.Object {
	n := &corev1.Node{ObjectMeta: object("", name, nil)}
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	n.Status.NodeInfo = corev1.NodeSystemInfo{
		KernelVersion: "6.8.0-45-generic", OSImage: "Ubuntu 24.04.1 LTS", Architecture: "amd64",
	}
	drivers := []storagev1.CSINodeDriver{{Name: testDriver, NodeID: name}}
	pod := &corev1.Pod{ObjectMeta: object("hpp", "driver-"+name, map[string]string{
		"app.kubernetes.io/component": "csi-driver", "app.kubernetes.io/part-of": "hostpath-provisioner",
	})}
	pod.Spec.NodeName = name
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	csi := &storagev1.CSINode{ObjectMeta: n.ObjectMeta, Spec: storagev1.CSINodeSpec{Drivers: drivers}}
	return []runtime.Object{n, csi, pod}
}

// userObjects are a claim of 500Gi that waits, with its pod and an event of each, and a Secret.
func userObjects() []runtime.Object {
	class, delayed := "fast", storagev1.VolumeBindingWaitForFirstConsumer
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: object("shop", "pg-3", nil)}
	claim.UID, claim.Spec.StorageClassName, claim.Status.Phase = "33", &class, corev1.ClaimPending
	claim.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("500Gi")}
	pod := &corev1.Pod{ObjectMeta: object("shop", "pg-3", nil)}
	pod.UID, pod.Status.Phase = "44", corev1.PodPending
	pod.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{
		PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "pg-3"},
	}}}
	about := corev1.ObjectReference{Kind: "Pod", Namespace: "shop", Name: "pg-3", UID: "44"}
	return []runtime.Object{
		claim, pod,
		&storagev1.StorageClass{
			ObjectMeta: object("", class, nil), Provisioner: testDriver, VolumeBindingMode: &delayed,
			Parameters: map[string]string{"storagePool": "nvme"},
		},
		&corev1.Event{
			ObjectMeta: object("shop", "e-1", nil), InvolvedObject: about, Reason: "FailedScheduling",
			Message: "0/3 nodes",
		},
		&corev1.Secret{ObjectMeta: object("hpp", "secret", nil), Data: map[string][]byte{"token": []byte("hush-hush")}},
	}
}

// run runs a command, and gives what it has printed, and how it ends.
func (is *installation) run(t *testing.T, namespace string, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	config := filepath.Join(t.TempDir(), "config")
	text := "{apiVersion: v1, kind: Config, current-context: production, contexts: [{name: production, context: {}}]}"
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("KUBECONFIG", config)
	var out, problems bytes.Buffer
	p := &plugin{
		IOStreams: genericclioptions.IOStreams{In: strings.NewReader(""), Out: &out, ErrOut: &problems},
		flags:     genericclioptions.NewConfigFlags(true), now: testNow, client: is.api, exec: is.exec,
		objects: dynamicClient(),
	}
	code = p.run(t.Context(), append(args, "--namespace", namespace, "--driver", testDriver))
	return out.String(), problems.String(), code
}

func (is *installation) withoutController() {
	_ = is.api.Tracker().Delete(corev1.SchemeGroupVersion.WithResource("pods"), "hpp", controllerPod().Name)
}

func (is *installation) exec(_ context.Context, command []string) (stdout, stderr []byte, err error) {
	if is.refused != nil {
		return nil, nil, is.refused
	}
	var answer any
	switch asked := strings.Join(command, " "); asked {
	case "/controller status --output json":
		answer = is.status
	case "/controller volume list --output json":
		answer = is.volumes
	case "/controller volume list --deleted --output json":
		answer = is.deleted
	default:
		panic("nobody expected " + asked)
	}
	stdout, err = json.Marshal(answer)
	return stdout, nil, err
}

// golden compares a text with a file of testdata.
func golden(t *testing.T, file, got string) {
	t.Helper()
	path := filepath.Join("testdata", file)
	if os.Getenv("UPDATE_GOLDEN") != "" {
		if err := os.WriteFile(path, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if diff := cmp.Diff(string(want), got); err != nil || diff != "" {
		t.Errorf("%s: %v: UPDATE_GOLDEN=1 writes it anew: %s", file, err, diff)
	}
}

// TestDiagnosis: the commands read, say what is wrong, and end with an error that says so.
func TestDiagnosis(t *testing.T) {
	forbidden := apierrors.NewForbidden(
		schema.GroupResource{Resource: "pods/exec"},
		"hpp-controller-1",
		errors.New("no"),
	)
	for file, c := range map[string]struct {
		args   []string
		change func(*installation)
		want   int
	}{
		"claim.txt":     {args: []string{"explain", "pvc/pg-3"}, want: exitTrouble},
		"pod.txt":       {args: []string{"explain", "pod", "pg-3"}, want: exitTrouble},
		"node.txt":      {args: []string{"explain", "Nodes", "worker-2"}, want: exitTrouble},
		"node-well.txt": {args: []string{"explain", "node/worker-1"}},
		"orphan.txt":    {args: []string{"explain", "pv", "pvc-3"}, want: exitTrouble},
		"doctor.txt":    {args: []string{"doctor"}, want: exitTrouble},
		"report.html":   {args: []string{"report", "--file", "-"}},
		"claim-gone.txt": {
			args: []string{"explain", "pvc", "fill"}, want: exitTrouble, change: func(is *installation) {
				is.deleted = []nodeapi.DeletedVolume{{
					Entry: "pvc-4.1795", Node: "worker-1", ID: "pvc-4", Pool: "nvme", Claim: "shop/fill", Bytes: gibi,
					Deleted: testNow().Add(-time.Hour),
				}, {Entry: "pvc-5.1796", Node: "worker-1", Claim: "blog/fill"}}
			},
		},
		"claim-orphaned.txt": {
			args: []string{"explain", "pvc", "fill"}, want: exitTrouble,
			change: func(is *installation) {
				is.volumes[2].Claim = "shop/fill"
				is.volumes = append(is.volumes,
					nodeapi.VolumeStatus{ID: "csi-1", Claim: "shop/fill"}, // of the pod fill
					nodeapi.VolumeStatus{ID: "pvc-4", Claim: "shop/fill", State: nodeapi.NotWhole})
			},
		},
		"claim-retained.txt": {
			args: []string{"explain", "pvc", "fill"}, want: exitTrouble, change: func(is *installation) {
				pv := &corev1.PersistentVolume{ObjectMeta: object("", "pvc-4", nil)}
				pv.Spec.CSI = &corev1.CSIPersistentVolumeSource{Driver: testDriver, VolumeHandle: "pvc-4"}
				pv.Spec.ClaimRef = &corev1.ObjectReference{Namespace: "shop", Name: "fill"}
				pv.Status.Phase, is.refused = corev1.VolumeReleased, forbidden
				_ = is.api.Tracker().Add(pv)
			},
		},
		"claim-without-exec.txt": {
			args: []string{"explain", "pvc", "pg-3"}, change: func(is *installation) { is.refused = forbidden },
		},
		"claim-without-controller.txt": {
			args: []string{"explain", "pvc", "pg-3"}, want: exitTrouble,
			change: func(is *installation) { is.withoutController() },
		},
	} {
		t.Run(file, func(t *testing.T) {
			is := newInstallation()
			if c.change != nil {
				c.change(is)
			}
			out, problems, code := is.run(t, "shop", c.args...)
			if code != c.want || problems != "" {
				t.Errorf("exit code %d, want %d: %s", code, c.want, problems)
			}
			golden(t, file, out)
			for _, never := range []string{"<script", "hush-hush", "\x1b"} {
				if never == "<script" && !strings.HasSuffix(file, ".html") {
					continue // harmless in a terminal
				}
				if strings.Contains(out, never) {
					t.Errorf("%q is in it", never)
				}
			}
			for _, action := range is.api.Actions() {
				reads := slices.Contains([]string{"get", "list"}, action.GetVerb())
				if !reads || action.GetResource().Resource == "secrets" {
					t.Errorf("nobody expected %s of %s", action.GetVerb(), action.GetResource().Resource)
				}
			}
		})
	}
}

// TestExplainRefuses: what is not there, and what cannot be understood, is said.
func TestExplainRefuses(t *testing.T) {
	for want, args := range map[string][]string{
		"there is no claim in namespace shop named pg-4; there are:":  {"explain", "pvc/pg-4"},
		"there is no node worker-9; there are: worker-1, worker-2, w": {"explain", "node", "worker-9"},
		"there is no PersistentVolume of driver hpp.example pvc-9":    {"explain", "pv", "pvc-9"},
		"get pod x in namespace shop":                                 {"explain", "pod", "x"},
		"wrong command line: explain what?":                           {"explain", "deployment/x"},
		"want pvc, pod, pv or node":                                   {"explain"},
		"--file: open ":                                               {"report", "--file", t.TempDir() + "/no/r.html"},
	} {
		if _, err, code := newInstallation().run(t, "shop", args...); code == 0 || !strings.Contains(err, want) {
			t.Errorf("%v: %d, %s, want %s", args, code, err, want)
		}
	}
}

// TestReportFile: a file is written that only its owner may read.
func TestReportFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "r.html")
	out, problems, code := newInstallation().run(t, "shop", "report", "--file", file)
	is, err := os.Stat(file)
	if code != 0 || err != nil || out != file+" is written\n" || is.Mode().Perm() != 0o600 || is.Size() < 1000 {
		t.Errorf("%q, %s, %v, %v", out, problems, err, is)
	}
}
