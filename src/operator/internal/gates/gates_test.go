package gates_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/names"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/operator/internal/gates"
)

const retain, remove = corev1.PersistentVolumeReclaimRetain, corev1.PersistentVolumeReclaimDelete

func TestVolumes(t *testing.T) {
	csi := func(driver, pool string) func(*corev1.PersistentVolume) {
		return func(pv *corev1.PersistentVolume) {
			pv.Spec.CSI = &corev1.CSIPersistentVolumeSource{
				Driver:           driver,
				VolumeAttributes: map[string]string{names.StoragePoolParameter: pool},
			}
		}
	}
	hostPath := func(annotation, value string) func(*corev1.PersistentVolume) {
		return func(pv *corev1.PersistentVolume) {
			pv.Spec.HostPath = &corev1.HostPathVolumeSource{Path: "/data"}
			pv.Annotations = map[string]string{annotation: value}
		}
	}
	in := func(phase corev1.PersistentVolumePhase,
		policy corev1.PersistentVolumeReclaimPolicy,
	) func(*corev1.PersistentVolume) {
		return func(pv *corev1.PersistentVolume) {
			pv.Status.Phase, pv.Spec.PersistentVolumeReclaimPolicy = phase, policy
		}
	}
	ours := csi(names.Driver, "a")
	for name, test := range map[string]struct {
		pv   corev1.PersistentVolume
		want []gates.Volume
	}{
		"of our driver": {pv(ours), []gates.Volume{{PV: "pv", Pool: "a"}}},
		"of our driver, without attributes": {
			pv(func(pv *corev1.PersistentVolume) {
				pv.Spec.CSI = &corev1.CSIPersistentVolumeSource{Driver: names.Driver}
			}),
			[]gates.Volume{{PV: "pv"}},
		},
		"of another driver": {pv(csi("hostpath.csi.k8s.io", "a")), nil},
		"legacy by its provisioner": {
			pv(hostPath(names.ProvisionedBy, names.LegacyProvisioner)),
			[]gates.Volume{{PV: "pv", Legacy: true}},
		},
		"legacy by the identity": {
			pv(hostPath(names.LegacyIdentity, "id")),
			[]gates.Volume{{PV: "pv", Legacy: true}},
		},
		"hostPath of another provisioner": {pv(hostPath(names.ProvisionedBy, "k8s.io/minikube-hostpath"),
			func(pv *corev1.PersistentVolume) { pv.Annotations[names.LegacyIdentity] = "8c1d" }), nil},
		"NFS with the legacy's annotation": {pv(func(pv *corev1.PersistentVolume) {
			pv.Annotations = map[string]string{names.LegacyIdentity: "id"}
		}), nil},
		"Released and Retain": {pv(ours, in(corev1.VolumeReleased, retain)), nil},
		"legacy, Released and Retain": {pv(hostPath(names.LegacyIdentity, "id"),
			in(corev1.VolumeReleased, retain)), nil},
		"Released and Delete": {
			pv(ours, in(corev1.VolumeReleased, remove)),
			[]gates.Volume{{PV: "pv", Pool: "a"}},
		},
		"Bound and Retain": {
			pv(ours, in(corev1.VolumeBound, retain)),
			[]gates.Volume{{PV: "pv", Pool: "a"}},
		},
		"Available and Retain": {
			pv(ours, in(corev1.VolumeAvailable, retain)),
			[]gates.Volume{{PV: "pv", Pool: "a"}},
		},
		"with a claim and two nodes of a set": {
			pv(ours, claimed, tiedTo("n2", "n1")),
			[]gates.Volume{{PV: "pv", Claim: "shop/orders", Pool: "a", Nodes: []string{"n1", "n2"}}},
		},
		"behind the claim of a pool": {
			pv(ours, claimedAs("hpp", "hpp-pool-b-node")),
			[]gates.Volume{{PV: "pv", Claim: "hpp/hpp-pool-b-node", Pool: "a", OfPool: true}},
		},
		"behind such a claim in another namespace": {
			pv(ours, claimedAs("shop", "hpp-pool-b-node")),
			[]gates.Volume{{PV: "pv", Claim: "shop/hpp-pool-b-node", Pool: "a"}},
		},
		"behind another claim in the operator's namespace": {
			pv(ours, claimedAs("hpp", "hpp-poolside")),
			[]gates.Volume{{PV: "pv", Claim: "hpp/hpp-poolside", Pool: "a"}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, gates.Volumes([]corev1.PersistentVolume{test.pv},
				names.Driver, "hpp")); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestVolumesComeInOrder(t *testing.T) {
	ours := func(name string) corev1.PersistentVolume {
		return pv(func(pv *corev1.PersistentVolume) {
			pv.Name, pv.Spec.CSI = name, &corev1.CSIPersistentVolumeSource{Driver: names.Driver}
		})
	}
	a, b := ours("z"), ours("y")
	a.Spec.ClaimRef = &corev1.ObjectReference{Namespace: "b", Name: "x"}
	b.Spec.ClaimRef = &corev1.ObjectReference{Namespace: "a", Name: "x"}
	got := gates.Describe(gates.Volumes([]corev1.PersistentVolume{a, b, ours("x")}, names.Driver, "hpp"))
	if want := "x, a/x (y), b/x (z)"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestInPool(t *testing.T) {
	named, unnamed, old := gates.Volume{
		PV:   "named",
		Pool: "a",
	}, gates.Volume{
		PV: "unnamed",
	}, gates.Volume{
		PV:     "old",
		Legacy: true,
	}
	all := []gates.Volume{named, unnamed, old}
	for name, test := range map[string]struct {
		pool       string
		configured []string
		want       []gates.Volume
	}{
		"the only pool":                  {"a", []string{"a"}, []gates.Volume{named, unnamed}},
		"the only pool, another name":    {"b", []string{"b"}, []gates.Volume{unnamed}},
		"legacy beside others":           {"legacy", []string{"a", "legacy"}, []gates.Volume{unnamed}},
		"beside legacy":                  {"a", []string{"a", "legacy"}, []gates.Volume{named}},
		"one of several: it may be here": {"a", []string{"a", "b"}, []gates.Volume{named, unnamed}},
		"the other one: or here":         {"b", []string{"a", "b"}, []gates.Volume{unnamed}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, gates.InPool(all, test.pool, test.configured)); diff != "" {
				t.Error(diff)
			}
		})
	}
	if diff := cmp.Diff([]gates.Volume{old}, gates.OfLegacy(all)); diff != "" {
		t.Error(diff)
	}
}

// A pool that backs another has to stay; the resource of both need not.
func TestVolumesBehindPools(t *testing.T) {
	user, pools := gates.Volume{PV: "user", Pool: "a"}, gates.Volume{PV: "pools", Pool: "a", OfPool: true}
	all := []gates.Volume{user, pools}
	if diff := cmp.Diff([]gates.Volume{user}, gates.OfUsers(all)); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(all, gates.InPool(all, "a", []string{"a", "b"})); diff != "" {
		t.Error(diff)
	}
}

func TestDescribeNamesTen(t *testing.T) {
	var volumes []gates.Volume
	for i := range 11 {
		volumes = append(volumes, gates.Volume{PV: fmt.Sprint("pv", i)})
	}
	const ten = "pv0, pv1, pv2, pv3, pv4, pv5, pv6, pv7, pv8, pv9"
	if got := gates.Describe(volumes[:10]); got != ten {
		t.Error(got)
	}
	if got := gates.Describe(volumes); got != ten+" and 1 more" {
		t.Error(got)
	}
}

func TestChain(t *testing.T) {
	since := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	early, late := since.Add(gates.DeadNodeTimeout-time.Second), since.Add(gates.DeadNodeTimeout)
	deadline := late
	const advice = `; delete the claims, or set the annotation hostpathprovisioner.kubevirt.io/delete-with-volumes ` +
		`to "true" to leave the data on the nodes`

	nodes := []corev1.Node{
		node("up", corev1.ConditionTrue), node("down", corev1.ConditionFalse), node("silent", corev1.ConditionUnknown),
		turned("long down", corev1.ConditionFalse,
			since.Add(-24*time.Hour)), turned("just down", corev1.ConditionFalse, since.Add(59*time.Minute)),
		turned("just silent", corev1.ConditionUnknown, since.Add(58*time.Minute)),
		{ObjectMeta: metav1.ObjectMeta{Name: "new", CreationTimestamp: metav1.NewTime(since.Add(59 * time.Minute))}},
		{
			ObjectMeta: metav1.ObjectMeta{Name: "named", Labels: map[string]string{corev1.LabelHostname: "host"}},
			Status: corev1.NodeStatus{
				Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
			},
		},
	}
	hour := since.Add(time.Hour)
	on := func(names ...string) []gates.Volume {
		var volumes []gates.Volume
		for _, name := range names {
			volumes = append(volumes, gates.Volume{PV: "pv-" + name, Nodes: []string{name}})
		}
		return volumes
	}
	noVolumes := gates.Gate{
		Name:    gates.VolumesGone,
		Open:    true,
		Message: "no volumes are left",
	}
	noPods := gates.Gate{
		Name:    gates.PodsEnded,
		Open:    true,
		Message: "all pods have ended",
	}
	held := func(message string) gates.Gate {
		return gates.Gate{Name: gates.VolumesGone, Reason: gates.ReasonVolumesLeft, Message: message + advice}
	}

	for name, test := range map[string]struct {
		now     time.Time
		forced  string
		volumes []gates.Volume
		pods    []corev1.Pod
		want    []gates.Gate
	}{
		"nothing left": {now: early, want: []gates.Gate{noVolumes, noPods}},
		"a volume": {
			now: late, volumes: on("up"),
			want: []gates.Gate{held("1 volume left: pv-up"), noPods},
		},
		"a volume tied to no node": {
			now: late, volumes: []gates.Volume{{PV: "pv-s"}},
			want: []gates.Gate{held("1 volume left: pv-s"), noPods},
		},
		"tied to a host's name": {
			now: late, volumes: on("host"),
			want: []gates.Gate{held("1 volume left: pv-host"), noPods},
		},
		"one of two nodes is there": {
			now: late, volumes: []gates.Volume{{PV: "pv", Nodes: []string{"down", "up"}}},
			want: []gates.Gate{held("1 volume left: pv"), noPods},
		},
		"a live one and a dead one": {
			now: late, volumes: on("up", "down"),
			want: []gates.Gate{held("2 volumes left: pv-up, pv-down"), noPods},
		},
		"dead nodes, early": {now: early, volumes: on("down", "silent", "gone"), want: []gates.Gate{{
			Name: gates.VolumesGone, Reason: gates.ReasonWaitingForNodes, Deadline: deadline,
			Message: "3 volumes left on nodes that are gone or not ready: pv-down, pv-silent, pv-gone; waits for the " +
				"nodes until 2026-11-21T12:10:00Z",
		}, noPods}},
		"dead nodes, late": {now: late, volumes: on("down", "gone"), want: []gates.Gate{{
			Name: gates.VolumesGone, Open: true, Left: "pv-down, pv-gone",
			Message: "2 volumes left on nodes that are gone, or not ready for 10m0s or more: goes on without them",
		}, noPods}},
		"long down before the deletion": {now: early, volumes: on("long down"), want: []gates.Gate{{
			Name: gates.VolumesGone, Reason: gates.ReasonWaitingForNodes, Deadline: deadline,
			Message: "1 volume left on nodes that are gone or not ready: pv-long down; waits for the nodes until " +
				"2026-11-21T12:10:00Z",
		}, noPods}},
		"turned NotReady a minute ago, deletion an hour ago": {
			now:     hour,
			volumes: on("just down", "just silent", "long down", "gone"), want: []gates.Gate{{
				Name: gates.VolumesGone, Reason: gates.ReasonWaitingForNodes, Deadline: since.Add(69 * time.Minute),
				Message: "4 volumes left on nodes that are gone or not ready: pv-just down, pv-just silent, pv-long " +
					"down, pv-gone; waits for the nodes until 2026-11-21T13:09:00Z",
			}, noPods},
		},
		"a node that has never been ready, deletion an hour ago": {now: hour, volumes: on("new"), want: []gates.Gate{{
			Name: gates.VolumesGone, Reason: gates.ReasonWaitingForNodes, Deadline: since.Add(69 * time.Minute),
			Message: "1 volume left on nodes that are gone or not ready: pv-new; waits for the nodes until " +
				"2026-11-21T13:09:00Z",
		}, noPods}},
		"turned NotReady, and the time is over": {
			now: since.Add(69 * time.Minute), volumes: on("just down"),
			want: []gates.Gate{{
				Name: gates.VolumesGone, Open: true, Left: "pv-just down",
				Message: "1 volume left on nodes that are gone, or not ready for 10m0s or more: goes on without them",
			}, noPods},
		},
		"a node that turned but has no volume": {now: hour, volumes: on("long down"), want: []gates.Gate{{
			Name: gates.VolumesGone, Open: true, Left: "pv-long down",
			Message: "1 volume left on nodes that are gone, or not ready for 10m0s or more: goes on without them",
		}, noPods}},
		"pods on a node that turned NotReady a minute ago, deletion an hour ago": {
			now:  hour,
			pods: []corev1.Pod{pod("a", "just down", corev1.PodRunning)}, want: []gates.Gate{noVolumes, {
				Name: gates.PodsEnded, Reason: gates.ReasonWaitingForNodes, Deadline: since.Add(69 * time.Minute),
				Message: "pods are left on nodes that are gone or not ready: hpp/a on just down; waits for the nodes " +
					"until 2026-11-21T13:09:00Z",
			}},
		},
		"forced": {now: early, forced: "true", volumes: on("up"), want: []gates.Gate{{
			Name: gates.VolumesGone, Open: true, Left: "pv-up",
			Message: "the annotation hostpathprovisioner.kubevirt.io/delete-with-volumes lets it go with 1 volume left",
		}, noPods}},
		"forced with another word": {
			now: early, forced: "yes", volumes: on("up"),
			want: []gates.Gate{held("1 volume left: pv-up"), noPods},
		},
		"pods": {now: late, forced: "true", pods: []corev1.Pod{
			pod("b", "up", corev1.PodRunning),
			pod("a", "", corev1.PodPending),
		}, want: []gates.Gate{noVolumes, {
			Name: gates.PodsEnded, Reason: gates.ReasonPodsRunning,
			Message: "waits for pods to end: hpp/a on no node yet, hpp/b on up",
		}}},
		"pods that are over": {now: early, pods: []corev1.Pod{
			pod("a", "up", corev1.PodFailed),
			pod("b", "up", corev1.PodSucceeded),
		}, want: []gates.Gate{noVolumes, noPods}},
		"pods on dead nodes, early": {now: early, pods: []corev1.Pod{
			pod("a", "down", corev1.PodRunning),
			pod("b", "gone", corev1.PodRunning),
		}, want: []gates.Gate{noVolumes, {
			Name: gates.PodsEnded, Reason: gates.ReasonWaitingForNodes, Deadline: deadline,
			Message: "pods are left on nodes that are gone or not ready: hpp/a on down, hpp/b on gone; waits for the " +
				"nodes until 2026-11-21T12:10:00Z",
		}}},
		"pods on dead nodes, late": {
			now: late, pods: []corev1.Pod{pod("a", "down", corev1.PodRunning)},
			want: []gates.Gate{noVolumes, {
				Name: gates.PodsEnded, Open: true, Left: "hpp/a on down",
				Message: "pods are left on nodes that are gone, or not ready for 10m0s or more: goes on without them",
			}},
		},
		"a live pod beside a dead one": {now: late, pods: []corev1.Pod{
			pod("a", "down", corev1.PodRunning),
			pod("b", "up", corev1.PodRunning),
		}, want: []gates.Gate{noVolumes, {
			Name: gates.PodsEnded, Reason: gates.ReasonPodsRunning, Message: "waits for pods to end: hpp/b on up",
		}}},
	} {
		t.Run(name, func(t *testing.T) {
			deletion := gates.Deletion{
				Now: test.now, Since: since, Annotations: map[string]string{names.ForceDelete: test.forced},
				Volumes: test.volumes, Pods: test.pods, Nodes: nodes,
			}
			if diff := cmp.Diff(test.want, deletion.Chain()); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestChainOfMounters: the driver stays for those whose claims are its own volumes, others stay for the driver.
func TestChainOfMounters(t *testing.T) {
	mounter := []corev1.Pod{pod("m", "up", corev1.PodRunning)}
	nodes := []corev1.Node{node("up", corev1.ConditionTrue)}
	for name, test := range map[string]struct {
		nested, mounters []corev1.Pod
		want             string
	}{
		"none":   {nil, nil, "VolumesGone:true PodsEnded:true"},
		"others": {nil, mounter, "VolumesGone:true PodsEnded:true MountersEnded:false"},
		"nested": {mounter, nil, "VolumesGone:true NestedEnded:false PodsEnded:true"},
		"both":   {mounter, mounter, "VolumesGone:true NestedEnded:false PodsEnded:true MountersEnded:false"},
	} {
		var got []string
		for _, gate := range (gates.Deletion{Nested: test.nested, Mounters: test.mounters, Nodes: nodes}).Chain() {
			got = append(got, fmt.Sprintf("%s:%t", gate.Name, gate.Open))
		}
		if diff := cmp.Diff(test.want, strings.Join(got, " ")); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

// TestWorkloadsGone: the last gate waits for the garbage collector, but not for what that cannot remove.
func TestWorkloadsGone(t *testing.T) {
	nodes := []corev1.Node{node("up", corev1.ConditionTrue), node("down", corev1.ConditionUnknown)}
	for name, test := range map[string]struct {
		pods   []corev1.Pod
		reason string
	}{
		"no pods":              {nil, gates.ReasonWorkloadsLeft},
		"ended on a live node": {[]corev1.Pod{pod("a", "up", corev1.PodFailed)}, gates.ReasonWorkloadsLeft},
		"ended on a dead one":  {[]corev1.Pod{pod("a", "down", corev1.PodFailed)}, ""},
	} {
		chain := gates.Deletion{Workloads: []string{"DaemonSet csi"}, Pods: test.pods, Nodes: nodes}.Chain()
		last := chain[len(chain)-1]
		if last.Name != gates.WorkloadsGone || last.Open != (test.reason == "") || last.Reason != test.reason ||
			!last.Open && !strings.HasSuffix(last.Message, "DaemonSet csi") {
			t.Errorf("%s: %+v", name, last)
		}
	}
}

func pv(with ...func(*corev1.PersistentVolume)) corev1.PersistentVolume {
	pv := corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv"}}
	for _, change := range with {
		change(&pv)
	}
	return pv
}

func claimed(pv *corev1.PersistentVolume) { claimedAs("shop", "orders")(pv) }

func claimedAs(namespace, name string) func(*corev1.PersistentVolume) {
	return func(pv *corev1.PersistentVolume) {
		pv.Spec.ClaimRef = &corev1.ObjectReference{Namespace: namespace, Name: name}
	}
}

func tiedTo(nodes ...string) func(*corev1.PersistentVolume) {
	return func(pv *corev1.PersistentVolume) {
		pv.Spec.NodeAffinity = &corev1.VolumeNodeAffinity{
			Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
				MatchExpressions: []corev1.NodeSelectorRequirement{
					{Key: "topology.hostpath.csi/node", Operator: corev1.NodeSelectorOpIn, Values: nodes},
				},
			}}},
		}
	}
}

func node(name string, status corev1.ConditionStatus) corev1.Node {
	return corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{
			{Type: corev1.NodeMemoryPressure, Status: corev1.ConditionFalse}, {Type: corev1.NodeReady, Status: status},
		}},
	}
}

func turned(name string, status corev1.ConditionStatus, at time.Time) corev1.Node {
	node := node(name, status)
	node.Status.Conditions[1].LastTransitionTime = metav1.NewTime(at)
	return node
}

func pod(name, node string, phase corev1.PodPhase) corev1.Pod {
	return corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "hpp",
			Name:      name,
		}, Spec: corev1.PodSpec{NodeName: node}, Status: corev1.PodStatus{Phase: phase},
	}
}
