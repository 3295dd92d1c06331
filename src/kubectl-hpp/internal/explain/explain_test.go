package explain_test

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/kubectl-hpp/internal/cluster"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/kubectl-hpp/internal/diagnosis"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/kubectl-hpp/internal/explain"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/kubectl-hpp/internal/facts"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/kubectl-hpp/internal/say"
)

const (
	driver   = "hpp.example"
	topology = "topology.hpp.example/node"
	gibi     = 1 << 30
)

// now is when everything is looked at.
func now() time.Time { return time.Date(2026, 11, 26, 8, 0, 0, 0, time.UTC) }

// world is a cluster of three nodes that is well: claim shop/pg of 200Gi in pool nvme, with a pod, on worker-1.
type world struct {
	facts.Facts
	claim *corev1.PersistentVolumeClaim
	pv    *corev1.PersistentVolume
	pod   *corev1.Pod
	class *storagev1.StorageClass
	pools []*nodeapi.PoolStatus // of each node
}

func newWorld() *world {
	w := &world{}
	w.Controller = cluster.Controller{Namespace: "hpp", Pod: "c-1", Driver: driver, TopologyKey: topology}
	w.Now, w.Reported.Version = now(), "0.2.0"
	for _, name := range []string{"worker-1", "worker-2", "worker-3"} {
		n := corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
		n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
		w.Nodes = append(w.Nodes, n)
		w.CSINodes = append(w.CSINodes, storagev1.CSINode{
			ObjectMeta: n.ObjectMeta,
			Spec:       storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{{Name: driver}}},
		})
		w.Reported.Nodes = append(w.Reported.Nodes, nodeapi.NodeStatus{
			Name: name, State: "connected", Version: "0.2.0", Since: now().Add(-time.Hour), Seen: now(),
			Pools: []nodeapi.PoolStatus{{
				Name: "nvme", Path: "/mnt/nvme", State: nodeapi.StatePresent, Backend: "xfs", Enforcement: "strict",
				Seen: now(), Size: 1000 * gibi, Free: 600 * gibi, Promised: 788 * gibi,
				Allocatable: 212 * gibi, Volumes: 4,
			}},
		})
		pod := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "hpp", Name: "driver-" + name}}
		pod.Spec.NodeName = name
		pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
		w.DriverPods = append(w.DriverPods, pod)
	}
	for i := range w.Reported.Nodes {
		w.pools = append(w.pools, &w.Reported.Nodes[i].Pools[0])
	}
	w.addObjects()
	return w
}

func (w *world) addObjects() {
	delayed, grows, name := storagev1.VolumeBindingWaitForFirstConsumer, true, "fast"
	w.Classes = []storagev1.StorageClass{{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Provisioner: driver,
		Parameters:        map[string]string{"storagePool": "nvme"},
		VolumeBindingMode: &delayed, AllowVolumeExpansion: &grows,
	}}
	claim := corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "pg", UID: "1-2"}}
	claim.Spec.StorageClassName, claim.Spec.VolumeName, claim.Status.Phase = &name, "pvc-1-2", corev1.ClaimBound
	size := corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("200Gi")}
	claim.Spec.Resources.Requests = size
	pv := corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pvc-1-2"}}
	pv.Spec.CSI = &corev1.CSIPersistentVolumeSource{
		Driver: driver, VolumeHandle: "pvc-1-2", VolumeAttributes: map[string]string{"storagePool": "nvme"},
	}
	pv.Spec.Capacity, pv.Spec.StorageClassName = size, name
	pv.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimDelete
	pv.Spec.ClaimRef = &corev1.ObjectReference{Namespace: "shop", Name: "pg", UID: "1-2"}
	pv.Status.Phase = corev1.VolumeBound
	place(&pv, "worker-1")
	pod := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "pg-0"}}
	pod.Spec.NodeName, pod.Status.Phase = "worker-1", corev1.PodRunning
	pod.Spec.Volumes = []corev1.Volume{uses("pg")}
	w.Claims, w.Volumes = []corev1.PersistentVolumeClaim{claim}, []corev1.PersistentVolume{pv}
	w.Pods = []corev1.Pod{pod}
	w.Listed = []nodeapi.VolumeStatus{{
		ID: "pvc-1-2", PV: "pvc-1-2", Node: "worker-1", Pool: "nvme", Claim: "shop/pg", Bytes: 200 * gibi,
		Used: 100 * gibi, Enforcement: "strict",
	}}
	w.claim, w.pv, w.pod, w.class = &w.Claims[0], &w.Volumes[0], &w.Pods[0], &w.Classes[0]
}

func uses(claim string) corev1.Volume {
	return corev1.Volume{Name: claim, VolumeSource: corev1.VolumeSource{
		PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim},
	}}
}

func place(pv *corev1.PersistentVolume, node string) {
	pv.Spec.NodeAffinity = &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{
		NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{
			{Key: topology, Operator: corev1.NodeSelectorOpIn, Values: []string{node}},
		}}},
	}}
}

// pend makes the claim one of 500Gi without a volume, and its pod one without a node.
func (w *world) pend() {
	w.Volumes, w.Listed = nil, nil
	w.claim.Spec.VolumeName, w.claim.Status.Phase = "", corev1.ClaimPending
	w.claim.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("500Gi")}
	w.unschedule("0/3 nodes are available: 3 node(s) did not have enough free storage.")
}

// ask is the size that the claim asks for.
func (w *world) ask(size string) {
	w.claim.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(size)}
}

func (w *world) unschedule(why string) {
	w.pod.Spec.NodeName, w.pod.Status.Phase = "", corev1.PodPending
	w.pod.Status.Conditions = []corev1.PodCondition{
		{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Message: why},
	}
}

// tell adds an event about an object.
func (w *world) tell(kind, namespace, name, reason, message string) {
	e := corev1.Event{Reason: reason, Message: message}
	e.InvolvedObject = corev1.ObjectReference{Kind: kind, Namespace: namespace, Name: name}
	w.Events = append(w.Events, e)
}

func (w *world) warn(reason string) {
	w.pools[0].Warnings = []nodeapi.Warning{{Reason: reason, Message: "of: pvc-1-2", Volumes: []string{"pvc-1-2"}}}
}

func (w *world) annotate(value string) {
	w.claim.Annotations = map[string]string{"volume.kubernetes.io/selected-node": value}
}

// disconnect takes the first node away.
func (w *world) disconnect() {
	w.Reported.Nodes[0].State, w.Reported.Nodes[0].Seen = "not connected", now().Add(-6*time.Minute)
	w.Reported.Nodes[0].Pools = nil
}

// row is one case.
type row struct {
	name   string
	change func(*world)
	want   string // reasons, of which those with a ! are trouble
}

// TestExplain: each case has its reason, and says what testdata holds; with UPDATE_GOLDEN=1 that is written anew.
func TestExplain(t *testing.T) {
	var text strings.Builder
	for _, kind := range []struct {
		name    string
		rows    []row
		explain func(*world) say.Answer
	}{
		{"claim", claims(), func(w *world) say.Answer { return explain.Claim(w.Facts, w.claim) }},
		{"pv", volumes(), func(w *world) say.Answer { return explain.Volume(w.Facts, w.pv) }},
		{"pod", pods(), func(w *world) say.Answer { return explain.Pod(w.Facts, w.pod) }},
		{"node", nodes(), func(w *world) say.Answer { return diagnosis.Node(w.Facts, "worker-1") }},
		{"orphan", orphans(), func(w *world) say.Answer { return diagnosis.Orphan(w.Listed[0]) }},
	} {
		for _, r := range kind.rows {
			w := newWorld()
			r.change(w)
			answer := kind.explain(w)
			if got := reasons(answer); got != r.want {
				t.Errorf("%s: %s: %s, want %s", kind.name, r.name, got, r.want)
			}
			text.WriteString("# " + kind.name + ": " + r.name + "\n")
			if err := answer.Write(&text); err != nil {
				t.Fatal(err)
			}
			text.WriteString("\n")
		}
	}
	const file = "testdata/explain.txt"
	if os.Getenv("UPDATE_GOLDEN") != "" {
		if err := os.WriteFile(file, []byte(text.String()), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if diff := cmp.Diff(string(want), text.String()); err != nil || diff != "" {
		t.Errorf("%v: UPDATE_GOLDEN=1 writes it anew: %s", err, diff)
	}
}

func reasons(a say.Answer) string {
	words := []string{a.Reason}
	if a.Wrong {
		words[0] += "!"
	}
	for _, also := range a.Also {
		words = append(words, reasons(also))
	}
	return strings.Join(words, " ")
}

// uid is for objects that replace others of their name.
func uid(w *world, to types.UID) { w.claim.UID = to }
