package move_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/kubectl-hpp/internal/cluster/clustertest"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/kubectl-hpp/internal/move"
)

// controller answers commands.
type controller struct {
	asked  []string
	answer func(args string) (any, error)
}

func (c *controller) Ask(_ context.Context, answer any, args ...string) error {
	line := strings.Join(args, " ")
	c.asked = append(c.asked, line)
	is, err := c.answer(line)
	if err != nil {
		return err
	}
	data, err := json.Marshal(is)
	if err != nil {
		return err
	}
	return json.Unmarshal(data, answer)
}

func volumeOn(node string) *corev1.PersistentVolume {
	pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv-1"}}
	pv.Spec.ClaimRef = &corev1.ObjectReference{Namespace: "shop", Name: "data"}
	pv.Spec.CSI = &corev1.CSIPersistentVolumeSource{
		Driver: "driver", VolumeAttributes: map[string]string{"storagePool": "local"},
	}
	pv.Spec.NodeAffinity = &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{
		NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{{
			Key: "topology", Operator: corev1.NodeSelectorOpIn, Values: []string{node},
		}}}},
	}}
	pv.Status.Phase = corev1.VolumeBound
	return pv
}

func podOn(name, node string, phase corev1.PodPhase, owned bool) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: "1"}}
	pod.Spec.NodeName, pod.Status.Phase = node, phase
	pod.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{
		PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"},
	}}}
	if owned {
		pod.OwnerReferences = []metav1.OwnerReference{{Kind: "StatefulSet", Name: "db", Controller: new(true)}}
	}
	return pod
}

func claim() *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "data"},
		Spec:       corev1.PersistentVolumeClaimSpec{VolumeName: "pv-1"},
		Status:     corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimBound},
	}
}

func newMover(c *controller, objects ...runtime.Object) (*move.Mover, *fake.Clientset, *strings.Builder) {
	api, out := clustertest.Allow(fake.NewClientset(objects...)), &strings.Builder{}
	now := time.Unix(1e9, 0)
	return &move.Mover{API: api, Controller: c, Out: out, Interval: time.Millisecond, Now: func() time.Time {
		now = now.Add(time.Second)
		return now
	}}, api, out
}

func request() move.Request { return move.Request{Namespace: "shop", Claim: "data", To: "b"} }

// TestMove: the pod is evicted, once a PodDisruptionBudget allows it, and the one that comes in its place too early
// goes.
func TestMove(t *testing.T) {
	phases := []string{"retain", "leave", "leave", "leave", "copy", "copy", "discard"}
	c := &controller{}
	m, api, out := newMover(c, claim(), volumeOn("a"), podOn("db-0", "a", corev1.PodRunning, true))
	budget, copied := 3, int64(0)
	api.PrependReactor("create", "pods", func(a clienttesting.Action) (bool, runtime.Object, error) {
		if a.GetSubresource() != "eviction" {
			return false, nil, nil
		}
		if budget--; budget > 0 {
			return true, nil, apierrors.NewTooManyRequests("the budget forbids it", 1)
		}
		return true, nil, api.Tracker().Delete(corev1.SchemeGroupVersion.WithResource("pods"), "shop", "db-0")
	})
	c.answer = func(line string) (any, error) {
		is := nodeapi.Move{
			PV: "pv-1", Claim: "shop/data", From: "a", To: "b", Bytes: 1 << 30, Used: 1 << 20, Room: 2 << 30,
		}
		if line != "move list" {
			return is, nil
		}
		if len(phases) == 0 {
			pv := volumeOn("b")
			_, err := api.CoreV1().PersistentVolumes().Update(t.Context(), pv, metav1.UpdateOptions{})
			return []nodeapi.Move{}, err
		}
		is.Phase, phases = phases[0], phases[1:]
		switch is.Phase {
		case "copy":
			copied += 1 << 18
			is.Copied = copied
		case "discard":
			_, err := api.CoreV1().Pods("shop").Create(t.Context(), podOn("db-0", "a", corev1.PodPending, true),
				metav1.CreateOptions{})
			return []nodeapi.Move{is}, err
		}
		return []nodeapi.Move{is}, nil
	}
	p, err := m.Plan(t.Context(), request())
	if err == nil {
		err = m.Apply(t.Context(), request(), p)
	}
	if err != nil {
		t.Fatal(err, out)
	}
	for _, want := range []string{
		"pod db-0 on node a is evicted", "from node a to node b", "cannot be evicted yet", "copied 256Ki of about 1Mi",
		"left", "shop/data is Bound on node b",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("it does not say %q:\n%s", want, out)
		}
	}
	if strings.Count(out.String(), "cannot be evicted yet") != 1 {
		t.Errorf("it repeats itself:\n%s", out)
	}
	if pods, _ := api.CoreV1().Pods("shop").List(t.Context(), metav1.ListOptions{}); len(pods.Items) > 0 {
		t.Errorf("there are %v", pods.Items)
	}
	if !slices.Contains(c.asked, "move start pv-1 --to b --dry-run") ||
		!slices.Contains(c.asked, "move start pv-1 --to b") {
		t.Errorf("asked %q", c.asked)
	}
}

// TestMoveIsRefused before anything is done.
func TestMoveIsRefused(t *testing.T) {
	owned := claim()
	owned.OwnerReferences = []metav1.OwnerReference{{Kind: "Pod", Name: "x"}}
	apart := podOn("db-0", "a", corev1.PodRunning, true)
	keepApart(apart)
	unbound := claim()
	unbound.Spec.VolumeName = ""
	for says, test := range map[string]struct {
		objects  []runtime.Object
		problems []string
	}{
		"pod db-0 has no owner": {[]runtime.Object{claim(), podOn("db-0", "a", corev1.PodRunning, false)}, nil},
		"owned by pod x":        {[]runtime.Object{owned}, nil},
		"problem: pod db-0 may not run beside db-1 on node b (podAntiAffinity on kubernetes.io/hostname)": {
			[]runtime.Object{claim(), apart, beside("b"), node("b", false)}, nil,
		},
		"no volume yet":      {[]runtime.Object{unbound}, nil},
		"node b is cordoned": {[]runtime.Object{claim()}, []string{"node b is cordoned"}},
		"not found":          {nil, nil},
	} {
		c := &controller{answer: func(string) (any, error) {
			return nodeapi.Move{PV: "pv-1", Problems: test.problems}, nil
		}}
		m, _, out := newMover(c, test.objects...)
		_, err := m.Plan(t.Context(), request())
		if err == nil || !strings.Contains(out.String()+err.Error(), says) {
			t.Errorf("%s: %v, %s", says, err, out)
		}
		if slices.ContainsFunc(c.asked, func(line string) bool { return !strings.HasSuffix(line, "--dry-run") }) {
			t.Errorf("%s: asked %q", says, c.asked)
		}
	}
}

// TestNoRights: no volume is marked whose pods the user may not evict, by move or by drain.
func TestNoRights(t *testing.T) {
	c := &controller{answer: func(line string) (any, error) {
		if line == "move list" {
			return []nodeapi.Move{}, nil
		}
		return nodeapi.Move{PV: "pv-1", Claim: "shop/data", From: "a", To: "b"}, nil
	}}
	m, api, out := newMover(c, claim(), volumeOn("a"), node("a", true), podOn("db-0", "a", corev1.PodRunning, true))
	clustertest.Allow(api, "create pods/eviction")
	const says = "problem: the claim's pods cannot be evicted: you may not create pods/eviction in namespace shop;"
	if _, err := m.Plan(t.Context(), request()); !errors.Is(err, move.ErrRefused) ||
		!strings.Contains(out.String(), says) {
		t.Errorf("%v: %s", err, out)
	}
	err := m.Drain(t.Context(), move.Drain{Node: "a", To: "b", Driver: "driver", Apply: true})
	if err == nil || !strings.Contains(err.Error(), "1 stay on node a: shop/data") ||
		strings.Count(out.String(), says) != 2 {
		t.Errorf("%v: %s", err, out)
	}
	if slices.ContainsFunc(c.asked, func(line string) bool { return !strings.HasSuffix(line, "--dry-run") }) {
		t.Errorf("asked %q", c.asked)
	}
	// Nobody has to evict what does not run.
	if err := api.CoreV1().Pods("shop").Delete(t.Context(), "db-0", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := m.Plan(t.Context(), request()); err != nil {
		t.Error(err)
	}
}

// TestInterrupted says that the move goes on.
func TestInterrupted(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	c := &controller{answer: func(line string) (any, error) {
		if line == "move list" {
			stop()
			return []nodeapi.Move{{PV: "pv-1", Phase: "copy"}}, nil
		}
		return nodeapi.Move{PV: "pv-1"}, nil
	}}
	m, _, out := newMover(c, claim())
	err := m.Apply(ctx, request(), move.Plan{Move: nodeapi.Move{PV: "pv-1"}})
	if !errors.Is(err, context.Canceled) || !strings.Contains(out.String(), "goes on without this command") {
		t.Errorf("%v: %s", err, out)
	}
}
