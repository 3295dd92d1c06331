package everynode

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"
	"sigs.k8s.io/sig-storage-lib-external-provisioner/v13/controller"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/waittest"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/legacyprovisioner/internal/everynode/wire"
)

// delete tries to delete the volume, and wants an error, whole ("" for none).
func (w *world) delete(t *testing.T, what, want string) {
	t.Helper()
	if err := w.Delete(t.Context(), w.getVolume(t)); message(err) != want {
		t.Errorf("%s: error\n%v\nwant\n%s", what, err, want)
	}
}

// askedAre wants exactly those nodes to have been asked to remove the directory.
func (w *world) askedAre(t *testing.T, what string, nodes ...string) {
	t.Helper()
	for node, m := range w.managers {
		var want []string
		if slices.Contains(nodes, node) {
			want = request(http.MethodDelete)
		}
		if diff := cmp.Diff(want, m.asked()); diff != "" {
			t.Errorf("%s: requests to node %s (-want +got):\n%s", what, node, diff)
		}
	}
}

const waiting = "the volume's directory is not yet removed on "

func TestDelete(t *testing.T) {
	w := start(t, "a", "b")
	if !w.ShouldDelete(t.Context(), w.released(t)) {
		t.Error("not taken for one of its own")
	}
	for range 2 {
		w.delete(t, "both are there", "")
		w.askedAre(t, "both are there", "a", "b")
	}
}

// TestDeleteWaits for a node that is down, and asks the others only once: they may be away when it returns, and a new
// leader knows as much.
func TestDeleteWaits(t *testing.T) {
	w := start(t, "a", "b", "c")
	w.released(t)
	w.down(t, "b")
	w.managers["c"].answer(http.StatusInternalServerError)
	w.delete(t, "b is down and c fails", waiting+"2 of its nodes: node b: its manager is not ready; node c: its "+
		"manager answers 500 Internal Server Error: the disk is full")
	w.askedAre(t, "b is down and c fails", "a", "c")
	if got := w.waitsForNodes(t); got != "claim-1:b,c" {
		t.Errorf("the PersistentVolume waits for %q", got)
	}
	w.managers["c"].answer(http.StatusOK)
	w.down(t, "a")
	w.delete(t, "b and a are down", waiting+"1 of its nodes: node b: its manager is not ready")
	w.askedAre(t, "b and a are down", "c")
	w.delete(t, "again", waiting+"1 of its nodes: node b: its manager is not ready")
	if got := w.waitsForNodes(t); got != "claim-1:b" {
		t.Errorf("the PersistentVolume waits for %q", got)
	}
	w.pod(t, "b", "127.0.0.3", corev1.ConditionTrue)
	w.delete(t, "b is back", "")
	w.askedAre(t, "b is back", "b")
	if event := w.event(); event != "" {
		t.Errorf("event %q", event)
	}
}

// TestDeleteOfAVolumeThatWasBoundAgain meanwhile: its directories are everywhere again, whatever is written on it.
func TestDeleteOfAVolumeThatWasBoundAgain(t *testing.T) {
	w := start(t, "a", "b")
	w.released(t)
	w.down(t, "b")
	w.delete(t, "b is down", waiting+"1 of its nodes: node b: its manager is not ready")
	w.askedAre(t, "b is down", "a")
	pv := w.getVolume(t)
	pv.Spec.ClaimRef.UID = "claim-2"
	if _, err := w.cluster.CoreV1().PersistentVolumes().Update(t.Context(), pv, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	w.delete(t, "another end", waiting+"1 of its nodes: node b: its manager is not ready")
	w.askedAre(t, "another end", "a")
	if got := w.waitsForNodes(t); got != "claim-2:b" {
		t.Errorf("the PersistentVolume waits for %q", got)
	}
}

// TestDeleteGivesUp a node only when there has been no Node object for as long as was said, and says so.
func TestDeleteGivesUp(t *testing.T) {
	w := start(t, "a", "b")
	w.released(t)
	w.leave(t, "b")
	w.delete(t, "b is gone", waiting+"1 of its nodes: node b: it has no Node object; it is given up in 10m0s")
	w.absences.all["b"] = absence{since: time.Now().Add(-9 * time.Minute), asked: time.Now()}
	if err := w.Delete(t.Context(), w.getVolume(t)); !strings.Contains(message(err), "it is given up in 1m0s") {
		t.Errorf("after 9 minutes: %v", err)
	}
	w.node(t, "b") // it returns, without its pod so far, and goes again
	w.delete(t, "b is back", waiting+"1 of its nodes: node b: its manager is not ready")
	if err := w.cluster.CoreV1().Nodes().Delete(t.Context(), "b", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	w.delete(t, "b is gone again", waiting+"1 of its nodes: node b: it has no Node object; it is given up in 10m0s")
	w.absences.all["b"] = absence{since: time.Now().Add(-10 * time.Minute), asked: time.Now()}
	w.delete(t, "after 10 minutes", "")
	want := "Warning NodeGivenUp node b is given up: data of the volume may remain on its disk, in " + path
	if got := w.event(); got != want {
		t.Errorf("event\n%s\nwant\n%s", got, want)
	}
	if got := w.registered(t); !slices.Equal(got, []string{"a"}) {
		t.Errorf("registered are %q", got)
	}
	w.delete(t, "another time", "")
}

// TestAbsences are counted anew when nobody has asked for long: a Node object may have been there in between.
func TestAbsences(t *testing.T) {
	var a absences
	now := time.Now()
	for _, test := range []struct{ after, want time.Duration }{
		{0, 0},
		{4 * time.Minute, 4 * time.Minute},
		{8 * time.Minute, 8 * time.Minute},
		{14 * time.Minute, 0},
		{15 * time.Minute, time.Minute},
	} {
		if got := a.lasted("a", now.Add(test.after)); got != test.want {
			t.Errorf("after %s: %s, want %s", test.after, got, test.want)
		}
	}
	a.endAbsence("a")
	if got := a.lasted("a", now.Add(16*time.Minute)); got != 0 {
		t.Errorf("after it was there: %s", got)
	}
}

// TestDeleteWaitsForTheUnselected: a node that runs no manager any more has its directories all the same. An
// administrator gives it up by its entry in the ConfigMap.
func TestDeleteWaitsForTheUnselected(t *testing.T) {
	w := start(t, "a", "b")
	w.released(t)
	w.deselect(t, "b")
	w.delete(t, "b has no pod", waiting+"1 of its nodes: node b: its manager is not ready")
	if err := w.forget(t.Context(), "b"); err != nil {
		t.Fatal(err)
	}
	w.delete(t, "b is given up", "")
	if got, want := w.event(), "Warning NodeGivenUp node b is given up: data of the volume may remain on its disk, in "+
		path; got != want {
		t.Errorf("event\n%s\nwant\n%s", got, want)
	}
}

// TestDeleteWaitsForTheForgotten: a node that is away is waited for as long as was said, also when it never registered
// or somebody has deleted the ConfigMap.
func TestDeleteWaitsForTheForgotten(t *testing.T) {
	w := start(t, "a", "b")
	w.released(t)
	w.down(t, "b")
	w.delete(t, "b is down", waiting+"1 of its nodes: node b: its manager is not ready")
	if err := w.forget(t.Context(), "b"); err != nil {
		t.Fatal(err)
	}
	w.leave(t, "b")
	w.delete(t, "b is away", waiting+"1 of its nodes: node b: it has no Node object; it is given up in 10m0s")
	w.node(t, "b")
	w.desire(t, 1)
	w.delete(t, "b is back", waiting+"1 of its nodes: node b: its manager's pod is about to be made")
}

// TestDeleteTakesLong: what takes longer than a request goes on with the next one, and the event says so.
func TestDeleteTakesLong(t *testing.T) {
	w := start(t)
	certificate, public, err := wire.Issue(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	w.listen(t, "127.0.0.100", certificate, http.HandlerFunc(func(answer http.ResponseWriter, r *http.Request) {
		<-r.Context().Done()
		http.Error(answer, r.Context().Err().Error(), http.StatusInternalServerError)
	}))
	w.register(t, "a", string(public))
	w.pod(t, "a", "127.0.0.100", corev1.ConditionTrue)
	w.released(t)
	brief, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	want := waiting + "1 of its nodes: node a: its manager has not finished within 30s; it is asked to go on"
	if err := w.Delete(brief, w.getVolume(t)); message(err) != want {
		t.Errorf("error\n%v\nwant\n%s", err, want)
	}
}

// TestDeleteWaitsForPods that the DaemonSet has yet to make: their nodes may have directories of kubeboost's.
func TestDeleteWaitsForPods(t *testing.T) {
	w := start(t, "a")
	w.released(t)
	const unknown = "DaemonSet storage/managers has yet to make pods of managers: which nodes have the directory is " +
		"not known"
	w.desire(t, 1)
	w.delete(t, "a pod is lacking", unknown)
	w.askedAre(t, "a pod is lacking")
	// The pod is there, but nobody has placed it.
	pods := w.cluster.CoreV1().Pods("storage")
	pending := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "manager-b", Labels: map[string]string{"app": "manager"}},
		Spec: corev1.PodSpec{Affinity: &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
				NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchFields: []corev1.NodeSelectorRequirement{
					{Key: "metadata.name", Operator: corev1.NodeSelectorOpIn, Values: []string{"b"}},
				}}},
			},
		}}},
	}
	if _, err := pods.Create(t.Context(), pending, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	w.node(t, "b")
	w.delete(t, "a pod is pending", waiting+"1 of its nodes: node b: its manager is not ready")
	w.askedAre(t, "a pod is pending", "a")
	// It is replaced, and never was one that registered.
	if err := pods.Delete(t.Context(), "manager-b", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	w.delete(t, "a pod is replaced", waiting+"1 of its nodes: node b: its manager's pod is about to be made")
	pending.Spec.NodeName, pending.Status = "b", corev1.PodStatus{PodIP: "127.0.0.2", Conditions: []corev1.PodCondition{
		{Type: corev1.PodReady, Status: corev1.ConditionTrue},
	}}
	if _, err := pods.Create(t.Context(), pending, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	w.delete(t, "b has not registered", waiting+"1 of its nodes: node b: its manager has not registered yet")
	w.askedAre(t, "b has not registered")
	// A DaemonSet that was changed has not counted its nodes yet.
	sets := w.cluster.AppsV1().DaemonSets("storage")
	if _, err := sets.Update(t.Context(), &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: "storage", Name: "managers", Generation: 2},
		Spec: appsv1.DaemonSetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "manager"}},
		},
		Status: appsv1.DaemonSetStatus{ObservedGeneration: 1, DesiredNumberScheduled: 2},
	}, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	pv := w.getVolume(t)
	delete(pv.Annotations, identity+"-waits-for")
	if _, err := w.cluster.CoreV1().PersistentVolumes().Update(t.Context(), pv, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	w.delete(t, "the DaemonSet was changed", unknown)
}

// TestDeleteWithoutRegistry: with the ConfigMap it is not forgotten who has a pod, and it is made again.
func TestDeleteWithoutRegistry(t *testing.T) {
	w := start(t, "a")
	w.released(t)
	maps := w.cluster.CoreV1().ConfigMaps("storage")
	if err := maps.Delete(t.Context(), "managers", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	w.delete(t, "it was deleted", waiting+"1 of its nodes: node a: its manager has not registered yet")
	if got := w.registered(t); got != nil {
		t.Errorf("registered are %q", got)
	}
}

// TestOnlyItsOwn: volumes of others, and paths elsewhere, are not touched.
func TestOnlyItsOwn(t *testing.T) {
	w := start(t, "a")
	w.released(t)
	for what, change := range map[string]func(*corev1.PersistentVolume){
		"identity": func(pv *corev1.PersistentVolume) { pv.Annotations[identity+"-identity"] = "other" },
		"provisioned by": func(pv *corev1.PersistentVolume) {
			pv.Annotations["pv.kubernetes.io/provisioned-by"] = "other"
		},
		"no hostPath": func(pv *corev1.PersistentVolume) { pv.Spec.HostPath = nil },
	} {
		pv := w.getVolume(t)
		change(pv)
		if w.ShouldDelete(t.Context(), pv) {
			t.Errorf("%s: taken for one of its own", what)
		}
		if err := w.Delete(t.Context(), pv); message(err) != "PersistentVolume "+pvName+
			" is not one of this provisioner's" {
			t.Errorf("%s: error %v", what, err)
		}
	}
	pv := w.getVolume(t)
	pv.Spec.HostPath.Path = "/etc"
	want := `path "/etc" is not directly in /var/kubernetes, where this provisioner's volumes are; nothing is ` +
		"removed: remove the directory on every node by hand, then the finalizers of the " +
		"PersistentVolume, and delete it"
	if err := w.Delete(t.Context(), pv); message(err) != want {
		t.Errorf("error %v, want %s", err, want)
	}
	w.askedAre(t, "volumes of others")
}

// TestDeleteWithoutTheAPI: whatever request fails, the PersistentVolume stays, and the next attempt does what is left.
func TestDeleteWithoutTheAPI(t *testing.T) {
	for _, kind := range []string{
		"get daemonsets", "get configmaps", "list pods", "get nodes", "get persistentvolumes",
		"patch persistentvolumes",
	} {
		w := start(t, "a", "b")
		w.released(t)
		w.down(t, "b")
		pv := w.getVolume(t)
		verb, resource, _ := strings.Cut(kind, " ")
		fails := true
		w.cluster.PrependReactor(verb, resource, func(clienttesting.Action) (bool, runtime.Object, error) {
			return fails, nil, errors.New("the API is away")
		})
		if err := w.Delete(t.Context(), pv); !strings.Contains(message(err), "the API is away") {
			t.Errorf("%s: error %v", kind, err)
		}
		fails = false
		w.pod(t, "b", "127.0.0.3", corev1.ConditionTrue)
		w.delete(t, kind, "")
		if got := w.managers["b"].asked(); len(got) != 1 {
			t.Errorf("%s: node b was asked for %q", kind, got)
		}
	}
}

// TestDeleteLooksAgain: what the library has seen may be old, and nothing else than an IgnoredError keeps it from
// deleting the PersistentVolume.
func TestDeleteLooksAgain(t *testing.T) {
	w := start(t, "a")
	old := w.released(t)
	volumes := w.cluster.CoreV1().PersistentVolumes()
	ignored := func(what, want string) {
		t.Helper()
		var reason *controller.IgnoredError
		if err := w.Delete(t.Context(), old); !errors.As(err, &reason) || reason.Reason != want {
			t.Errorf("%s: %v, want that it is ignored: %s", what, err, want)
		}
		w.askedAre(t, what)
	}
	saved := old.DeepCopy()
	saved.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimRetain
	if _, err := volumes.Update(t.Context(), saved, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	ignored("retained", "the PersistentVolume is not to be deleted any more")
	if err := volumes.Delete(t.Context(), old.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	ignored("gone", "the PersistentVolume is gone")
	another := old.DeepCopy()
	another.UID = "2"
	w.putVolume(t, another)
	ignored("another of its name", "the PersistentVolume is not to be deleted any more")
}

// TestReuse: what a class says of retained volumes becomes true when their claims are gone.
func TestReuse(t *testing.T) {
	for policy, want := range map[string]*corev1.ObjectReference{
		"Always":      nil,
		"SamePVCName": {Namespace: "shop", Name: "data"},
		"Never":       {Namespace: "shop", Name: "data", UID: "claim-1", ResourceVersion: "5"},
		"":            {Namespace: "shop", Name: "data", UID: "claim-1", ResourceVersion: "5"},
	} {
		w := start(t, "a")
		pv := w.released(t)
		pv.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimRetain
		pv.Annotations[identity+"-reuse-policy"] = policy
		pv.Annotations[boundByController] = "yes"
		if _, err := w.cluster.CoreV1().PersistentVolumes().Update(t.Context(), pv,
			metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		waittest.Until(t, "the informer has it", func() bool { return w.reuseNow(t) })
		now := w.getVolume(t)
		if diff := cmp.Diff(want, now.Spec.ClaimRef); diff != "" {
			t.Errorf("%s: claim (-want +got):\n%s", policy, diff)
		}
		if _, left := now.Annotations[boundByController]; left != (policy == "Never" || policy == "") {
			t.Errorf("%s: annotations %v", policy, now.Annotations)
		}
		w.askedAre(t, policy)
	}
}

// reuseNow does a round; false while the informer has not seen the volume.
func (w *world) reuseNow(t *testing.T) bool {
	t.Helper()
	seen, found, err := w.Volumes.GetIndexer().GetByKey(pvName)
	if err != nil || !found || seen.(*corev1.PersistentVolume).Annotations[boundByController] == "" {
		return false
	}
	if !w.reuseAll(t.Context()) {
		t.Error("not all was done")
	}
	return true
}

// TestNoReuse of what is bound, of what is deleted with its claim, of others' volumes, and of what has changed since.
func TestNoReuse(t *testing.T) {
	w := start(t, "a")
	for what, change := range map[string]func(*corev1.PersistentVolume){
		"bound":   func(pv *corev1.PersistentVolume) { pv.Status.Phase = corev1.VolumeBound },
		"deleted": func(pv *corev1.PersistentVolume) { pv.Spec.PersistentVolumeReclaimPolicy = "Delete" },
		"ending":  func(pv *corev1.PersistentVolume) { pv.DeletionTimestamp = new(metav1.Now()) },
		"reused":  func(pv *corev1.PersistentVolume) { pv.Spec.ClaimRef.UID = "" },
		"free":    func(pv *corev1.PersistentVolume) { pv.Spec.ClaimRef = nil },
		"saved":   func(pv *corev1.PersistentVolume) { pv.Annotations[identity+"-waits-for"] = "1:b" },
		"unknown": func(pv *corev1.PersistentVolume) { pv.Annotations[identity+"-reuse-policy"] = "Sometimes" },
	} {
		pv := &corev1.PersistentVolume{
			ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{identity + "-reuse-policy": "Always"}},
			Spec: corev1.PersistentVolumeSpec{
				PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain,
				ClaimRef:                      &corev1.ObjectReference{UID: "1"},
			},
			Status: corev1.PersistentVolumeStatus{Phase: corev1.VolumeReleased},
		}
		if !w.reusable(pv) {
			t.Fatal("not reusable as it is")
		}
		if change(pv); w.reusable(pv) {
			t.Errorf("%s: reusable", what)
		}
	}
	pv := w.released(t)
	pv.Annotations[identity+"-reuse-policy"] = "Always"
	var sent struct {
		Metadata struct{ UID, ResourceVersion string }
	}
	w.cluster.PrependReactor("patch", "persistentvolumes", func(a clienttesting.Action) (bool, runtime.Object, error) {
		return false, nil, json.Unmarshal(a.(clienttesting.PatchAction).GetPatch(), &sent)
	})
	if err := w.reuseVolume(t.Context(), pv); err != nil || sent.Metadata.UID != "1" ||
		sent.Metadata.ResourceVersion != "7" {
		t.Errorf("sent %+v, error %v; want the volume that was decided upon, unchanged", sent, err)
	}
}

// TestRunMakesTheRegistry, without which no manager is ready, before there is any claim, and again.
func TestRunMakesTheRegistry(t *testing.T) {
	w := start(t, "a")
	maps := w.cluster.CoreV1().ConfigMaps("storage")
	if err := maps.Delete(t.Context(), "managers", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { w.Run(ctx); close(ended) }()
	waittest.Until(t, "the registry is there", func() bool {
		_, err := maps.Get(t.Context(), "managers", metav1.GetOptions{})
		return err == nil
	})
	cancel()
	<-ended
}

// TestDirectoryOfAnother is removed on no node.
func TestDirectoryOfAnother(t *testing.T) {
	w := start(t, "a")
	other := w.released(t).DeepCopy()
	other.Name = "other"
	if err := w.Volumes.GetIndexer().Add(other); err != nil {
		t.Fatal(err)
	}
	err := w.Delete(t.Context(), w.getVolume(t))
	if !strings.HasPrefix(message(err), "PersistentVolume other has the directory ") {
		t.Errorf("error %v", err)
	}
	w.askedAre(t, "the directory of another")
}
