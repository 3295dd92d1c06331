package kube_test

import (
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/names"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/controller/internal/kube"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/persistentvolume/pvtest"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/waittest"
)

const (
	driver = pvtest.Driver
	key    = pvtest.Key

	volumesPath  = "/api/v1/persistentvolumes"
	nodesPath    = "/api/v1/nodes"
	csiNodesPath = "/apis/storage.k8s.io/v1/csinodes"
	claimsPath   = "/api/v1/persistentvolumeclaims"
	podsPath     = "/api/v1/namespaces/storage/pods"
	leasesPath   = "/apis/coordination.k8s.io/v1/namespaces/storage/leases"
	classesPath  = "/apis/storage.k8s.io/v1/storageclasses"
)

// world is an API server with what the informers watch.
func world(
	t *testing.T, volumes []*corev1.PersistentVolume, nodes ...string,
) (a *api, ofVolumes, ofNodes chan<- change) {
	t.Helper()
	a = serveAPI(t)
	list := corev1.PersistentVolumeList{ListMeta: metav1.ListMeta{ResourceVersion: "1"}}
	list.Kind, list.APIVersion = "PersistentVolumeList", "v1"
	for _, v := range volumes {
		list.Items = append(list.Items, *v)
	}
	metas := make([]metav1.ObjectMeta, len(nodes))
	csiNodes := storagev1.CSINodeList{ListMeta: metav1.ListMeta{ResourceVersion: "1"}}
	csiNodes.Kind, csiNodes.APIVersion = "CSINodeList", "storage.k8s.io/v1"
	for i, name := range nodes {
		metas[i] = metav1.ObjectMeta{Name: name, UID: "uid-1", Labels: map[string]string{"a": name, "other": "b"}}
		csiNode := storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: name}}
		csiNode.Spec.Drivers = []storagev1.CSINodeDriver{{Name: "other.driver"}}
		if name != "bare" {
			csiNode.Spec.Drivers = append(csiNode.Spec.Drivers, storagev1.CSINodeDriver{Name: driver, NodeID: name})
		}
		csiNodes.Items = append(csiNodes.Items, csiNode)
	}
	a.watched(csiNodesPath, csiNodes)
	a.watched(podsPath, corev1.PodList{
		TypeMeta: metav1.TypeMeta{Kind: "PodList", APIVersion: "v1"}, ListMeta: metav1.ListMeta{ResourceVersion: "1"},
	})
	a.watched(claimsPath, corev1.PersistentVolumeClaimList{TypeMeta: metav1.TypeMeta{
		Kind: "PersistentVolumeClaimList", APIVersion: "v1",
	}, ListMeta: metav1.ListMeta{ResourceVersion: "1"}})
	a.watched(classesPath, storagev1.StorageClassList{TypeMeta: metav1.TypeMeta{
		Kind: "StorageClassList", APIVersion: "storage.k8s.io/v1",
	}, ListMeta: metav1.ListMeta{ResourceVersion: "1"}})
	return a, a.watched(volumesPath, list), a.watched(nodesPath, partials(metas...))
}

func volumeChange(kind string, pv *corev1.PersistentVolume) change {
	pv.Kind, pv.APIVersion, pv.ResourceVersion = "PersistentVolume", "v1", "2"
	return change{kind, pv}
}

func nodeChange(kind, name string, labels ...string) change {
	meta := metav1.ObjectMeta{Name: name, UID: "uid-2", ResourceVersion: "2", Labels: map[string]string{}}
	for _, l := range labels {
		key, value, _ := strings.Cut(l, "=")
		meta.Labels[key] = value
	}
	return change{kind, metav1.PartialObjectMetadata{
		TypeMeta: metav1.TypeMeta{Kind: "PartialObjectMetadata", APIVersion: "meta.k8s.io/v1"}, ObjectMeta: meta,
	}}
}

func TestControllerKnowsVolumes(t *testing.T) {
	released := pvtest.New("pvc-1", driver, "pvc-1", "worker-1")
	released.UID, released.Annotations = "uid-9", map[string]string{names.ReleaseVolume(driver): "worker-1"}
	a, changes, _ := world(t, []*corev1.PersistentVolume{
		released, pvtest.New("renamed", driver, "pvc-2", "worker-2"),
		pvtest.New("pvc-3", "other.driver", "pvc-3", "worker-1"),
		pvtest.New("a-copy", driver, "pvc-4", "worker-2"), pvtest.New("pvc-4", driver, "pvc-4", "worker-1"),
		{ObjectMeta: metav1.ObjectMeta{Name: "by-hand"}},
	})
	fresh := pvtest.New("pvc-5", driver, "pvc-5", "worker-1")
	fresh.Kind, fresh.APIVersion = "PersistentVolume", "v1"
	a.on("GET "+volumesPath+"/pvc-5", give(fresh))
	a.on("GET "+volumesPath+"/pvc-6", silent())
	c := controllerOf(t, a)
	if _, ok, err := c.Get(t.Context(), "pvc-5"); !ok || err != nil {
		t.Errorf("named as its handle, before the informers know it: %v, %v", ok, err)
	}
	if _, ok, err := c.Get(t.Context(), "pvc-2"); ok || !errors.Is(err, nodeapi.ErrClusterUnknown) {
		t.Errorf("of another name, before the informers know it: %v, %v", ok, err)
	}
	run(t, c, func(string) {})
	until(t, c.Synced)
	first := pvtest.Described("pvc-1", "pvc-1", "worker-1")
	first.UID, first.Released = "uid-9", "worker-1"
	want := []nodeapi.PersistentVolume{
		pvtest.Described("a-copy", "pvc-4", "worker-2"), first, pvtest.Described("pvc-4", "pvc-4", "worker-1"),
		pvtest.Described("renamed", "pvc-2", "worker-2"),
	}
	got := c.List()
	slices.SortFunc(got, func(a, b nodeapi.PersistentVolume) int { return strings.Compare(a.Name, b.Name) })
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	for id, name := range map[string]string{
		"pvc-1": "pvc-1", "pvc-2": "renamed", "pvc-5": "pvc-5",
		"pvc-3": "", "by-hand": "", "pvc-9": "",
	} {
		if got, ok, err := c.Get(t.Context(), id); got.Name != name || ok != (name != "") || err != nil {
			t.Errorf("%s: %q, %v, %v; want %q", id, got.Name, ok, err, name)
		}
	}
	if _, ok, err := c.Get(t.Context(), "pvc-4"); ok || !errors.Is(err, nodeapi.ErrNamed) {
		t.Errorf("two of one handle, on different nodes: %v, %v", ok, err)
	}
	for id, want := range map[string][]string{"pvc-4": {"a-copy", "pvc-4"}, "pvc-2": {"renamed"}, "pvc-3": nil} {
		var got []string
		for _, pv := range c.Known(id) {
			got = append(got, pv.Name)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s is the handle of %q, want %q", id, got, want)
		}
	}
	if _, ok, err := c.Get(t.Context(), "pvc-6"); ok || !errors.Is(err, nodeapi.ErrClusterUnknown) {
		t.Errorf("the API is silent: %v, %v", ok, err)
	}
	knows := func(id string) func() bool {
		return func() bool {
			return slices.ContainsFunc(c.List(), func(p nodeapi.PersistentVolume) bool { return p.Handle == id })
		}
	}
	changes <- volumeChange("ADDED", pvtest.New("new", driver, "pvc-6", "worker-1"))
	until(t, knows("pvc-6"))
	if got, ok, err := c.Get(t.Context(), "pvc-6"); got.Name != "new" || !ok || err != nil {
		t.Errorf("added: %+v, %v, %v", got, ok, err)
	}
	changes <- volumeChange("DELETED", pvtest.New("renamed", driver, "pvc-2", "worker-2"))
	until(t, func() bool { return !knows("pvc-2")() })
	if _, ok, err := c.Get(t.Context(), "pvc-2"); ok || err != nil {
		t.Errorf("deleted: %v, %v", ok, err)
	}
}

func TestNodes(t *testing.T) {
	for _, old := range []bool{false, true} {
		a, _, _ := world(t, nil, "worker-1", "worker-2", "bare")
		a.old = old
		c := controllerOf(t, a)
		run(t, c, func(string) {})
		until(t, c.Synced)
		got := c.NodesWithDriver(nil)
		slices.Sort(got)
		if want := []string{"worker-1", "worker-2"}; !slices.Equal(got, want) {
			t.Errorf("nodes with the driver: %q, old API server: %v", got, old)
		}
		all, since := c.NodeNames()
		slices.Sort(all)
		if !slices.Equal(all, []string{"bare", "worker-1", "worker-2"}) || since.IsZero() {
			t.Errorf("all nodes since %v: %q, old API server: %v", since, all, old)
		}
		for name, want := range map[string]bool{"bare": false, "worker-9": true} {
			if _, gone, err := c.NodeGone(t.Context(), name); gone != want || err != nil {
				t.Errorf("%s: %v, %v, old API server: %v", name, gone, err, old)
			}
		}
	}
}

// TestSelectedNodes: labels count as they are now, and only those that the configuration names are kept.
func TestSelectedNodes(t *testing.T) {
	a, _, changes := world(t, nil, "worker-1", "worker-2", "bare")
	c := controllerOf(t, a)
	run(t, c, func(string) {})
	until(t, c.Synced)
	selected := func(want ...string) func() bool {
		return func() bool { return slices.Equal(want, c.NodesWithDriver(map[string]string{"a": "worker-1"})) }
	}
	until(t, selected("worker-1"))
	if nodes := c.NodesWithDriver(map[string]string{"a": "bare"}); len(nodes) > 0 {
		t.Errorf("nodes %v have the label, and none of them the driver", nodes)
	}
	if nodes := c.NodesWithDriver(map[string]string{"other": "b"}); len(nodes) > 0 {
		t.Errorf("nodes %v are selected by a label that is not kept", nodes)
	}
	changes <- nodeChange("MODIFIED", "worker-1", "a=other")
	until(t, selected())
	changes <- nodeChange("MODIFIED", "worker-2", "a=worker-1")
	until(t, selected("worker-2"))
	changes <- nodeChange("DELETED", "worker-2")
	until(t, selected())
}

func TestWhichClusterItIs(t *testing.T) {
	a, _, _ := world(t, nil)
	c := controllerOf(t, a)
	system := metav1.ObjectMeta{Name: "kube-system", UID: "uid-1"}
	a.on("GET /api/v1/namespaces/kube-system", give(corev1.Namespace{ObjectMeta: system}))
	if uid, err := c.ClusterUID(t.Context()); uid != "uid-1" || err != nil {
		t.Errorf("%q, %v", uid, err)
	}
	a.on("GET /api/v1/namespaces/kube-system", silent())
	uid, err := c.ClusterUID(t.Context())
	if uid != "" || !errors.Is(err, nodeapi.ErrClusterUnknown) ||
		!strings.Contains(err.Error(), "namespace kube-system") {
		t.Errorf("the API is silent: %q, %v", uid, err)
	}
}

func TestNodeGone(t *testing.T) {
	a, _, changes := world(t, nil, "worker-1", "worker-2")
	c := controllerOf(t, a)
	started := time.Now()
	if _, gone, err := c.NodeGone(t.Context(), "worker-9"); gone || !errors.Is(err, nodeapi.ErrClusterUnknown) {
		t.Errorf("before the nodes are known: %v, %v", gone, err)
	}
	if all, since := c.NodeNames(); len(all) > 0 || !since.IsZero() {
		t.Errorf("before the nodes are known: %q, %v", all, since)
	}
	told := make(chan string, 1)
	run(t, c, func(name string) { told <- name })
	until(t, c.Synced)
	synced := time.Now()

	if _, gone, err := c.NodeGone(t.Context(), "worker-1"); gone || err != nil {
		t.Errorf("it is there: %v, %v", gone, err)
	}
	never, gone, err := c.NodeGone(t.Context(), "worker-9")
	if !gone || err != nil || never.Before(started) || never.After(synced) {
		t.Errorf("never seen: %v, %v, %v; want since the first sync", never, gone, err)
	}
	a.on("GET "+nodesPath+"/worker-9", silent())
	if _, gone, err = c.NodeGone(t.Context(), "worker-9"); gone || !errors.Is(err, nodeapi.ErrClusterUnknown) {
		t.Errorf("the API is silent: %v, %v", gone, err)
	}
	a.on("GET "+nodesPath+"/worker-9", give(corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "worker-9"}}))
	if _, gone, err = c.NodeGone(t.Context(), "worker-9"); gone || err != nil {
		t.Errorf("the API has one that the watch has not shown: %v, %v", gone, err)
	}

	changes <- nodeChange("DELETED", "worker-1")
	if name := <-told; name != "worker-1" {
		t.Errorf("told that %s is gone", name)
	}
	if all, _ := c.NodeNames(); !slices.Contains(all, "worker-1") {
		t.Errorf("the name of a node that was deleted is forgotten: %q", all)
	}
	since, gone, err := c.NodeGone(t.Context(), "worker-1")
	if !gone || err != nil || since.Before(synced) {
		t.Errorf("deleted: since %v, %v, %v; want since the deletion", since, gone, err)
	}
	changes <- nodeChange("ADDED", "worker-1")
	until(t, func() bool {
		_, gone, err := c.NodeGone(t.Context(), "worker-1")
		return !gone && err == nil
	})
	changes <- nodeChange("DELETED", "worker-1")
	<-told
	if again, gone, err := c.NodeGone(t.Context(), "worker-1"); !gone || err != nil || !again.After(since) {
		t.Errorf("deleted again: %v, %v, %v; want since the second deletion", again, gone, err)
	}
}

// eventsOf are the events that an API server is sent about what has no namespace.
func eventsOf(a *api) <-chan corev1.Event {
	events := make(chan corev1.Event, 1)
	a.on("POST /api/v1/namespaces/default/events", func(w http.ResponseWriter, r *http.Request) {
		var event corev1.Event
		if err := json.NewDecoder(r.Body).Decode(&event); err != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		give(event)(w, r)
		events <- event
	})
	return events
}

func TestCordoned(t *testing.T) {
	a := serveAPI(t)
	c := controllerOf(t, a)
	cordoned := corev1.Node{Spec: corev1.NodeSpec{Unschedulable: true}}
	a.on("GET "+nodesPath+"/cordoned", give(cordoned))
	a.on("GET "+nodesPath+"/open", give(corev1.Node{}))
	a.on("GET "+nodesPath+"/silent", silent())
	for name, test := range map[string]struct {
		want bool
		err  error
	}{"cordoned": {want: true}, "open": {}, "gone": {}, "silent": {err: nodeapi.ErrClusterUnknown}} {
		if got, err := c.Cordoned(t.Context(), name); got != test.want || !errors.Is(err, test.err) {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
}

func TestControllerTells(t *testing.T) {
	a, _, _ := world(t, nil, "worker-1")
	events := eventsOf(a)
	c := controllerOf(t, a)
	leads(t, a, c)
	for _, test := range []struct {
		tell func()
		want corev1.ObjectReference
		kind string
	}{
		{
			func() { c.TellNode("worker-1", "Normal", "NodeConnected", "hello") },
			corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: "worker-1", UID: "uid-1"},
			"Normal",
		},
		{
			func() { c.TellVolume(nodeapi.PersistentVolume{Name: "pvc-1", UID: "u"}, "DataLeft", "on a disk") },
			corev1.ObjectReference{APIVersion: "v1", Kind: "PersistentVolume", Name: "pvc-1", UID: "u"},
			"Warning",
		},
	} {
		test.tell()
		event := <-events
		if diff := cmp.Diff(test.want, event.InvolvedObject); diff != "" || event.Type != test.kind ||
			event.ReportingInstance != "hpp-controller-1" {
			t.Errorf("%+v\n%s", event, diff)
		}
	}
}

// leads runs a controller until it leads.
func leads(t *testing.T, a *api, c *kube.Cluster) {
	t.Helper()
	a.on("POST "+leasesPath, func(w http.ResponseWriter, r *http.Request) {
		var lease coordinationv1.Lease
		if err := json.NewDecoder(r.Body).Decode(&lease); err != nil || lease.Name != "hpp-controller" {
			t.Errorf("lease %+v: %v", lease.ObjectMeta, err)
		}
		a.on("GET "+leasesPath+"/hpp-controller", give(lease))
		a.on("PUT "+leasesPath+"/hpp-controller", give(lease))
		give(lease)(w, r)
	})
	run(t, c, func(string) {})
	until(t, c.Synced)
	until(t, c.Leads)
}

// TestOnlyTheLeaderTellsOfNodes: every replica sees the same.
func TestOnlyTheLeaderTellsOfNodes(t *testing.T) {
	a, _, _ := world(t, nil, "worker-1")
	events := eventsOf(a)
	c := controllerOf(t, a)
	run(t, c, func(string) {})
	until(t, c.Synced)
	c.TellNode("worker-1", "Normal", "NodeConnected", "hello")
	c.TellVolume(nodeapi.PersistentVolume{Name: "pvc-1", UID: "u"}, "DataLeft", "on a disk")
	if event := <-events; event.Reason != "DataLeft" {
		t.Errorf("a replica that does not lead says %s", event.Reason)
	}
}

// TestWhoCannotRenewLeadsNoMore: another replica leads soon, and says it of nodes itself.
func TestWhoCannotRenewLeadsNoMore(t *testing.T) {
	t.Parallel()
	a, _, _ := world(t, nil, "worker-1")
	c := controllerOf(t, a)
	leads(t, a, c)
	a.on("GET "+leasesPath+"/hpp-controller", silent())
	a.on("PUT "+leasesPath+"/hpp-controller", silent())
	waittest.Until(t, "it leads no more", func() bool { return !c.Leads() })
}

// TestSaidOnce: an event with a key has a name that says what it is, whoever sends it.
func TestSaidOnce(t *testing.T) {
	a, _, _ := world(t, nil, "worker-1")
	events := eventsOf(a)
	c := controllerOf(t, a)
	run(t, c, func(string) {})
	until(t, c.Synced)
	since := time.Unix(1e9, 7)
	var names []string
	for _, e := range []nodeapi.Event{
		{Kind: "Warning", Reason: "PoolAbsent", Key: "local PoolAbsent", Since: since},
		{Kind: "Warning", Reason: "PoolAbsent", Key: "local PoolAbsent", Since: since, Message: "in other words"},
		{Kind: "Warning", Reason: "PoolAbsent", Key: "local PoolAbsent", Since: since.Add(1)},
		{Kind: "Warning", Reason: "PoolAbsent", Key: "other PoolAbsent", Since: since},
	} {
		c.AboutNode("worker-1", e)
		event := <-events
		if !event.FirstTimestamp.Time.Equal(time.Unix(1e9, 0)) {
			t.Errorf("it is of %s", event.FirstTimestamp)
		}
		names = append(names, event.Name)
	}
	if names[0] != names[1] || names[0] == names[2] || names[0] == names[3] {
		t.Errorf("names %q", names)
	}
}

func TestConditions(t *testing.T) {
	a, _, _ := world(t, nil, "worker-1")
	const prefix = names.PoolCondition
	condition := func(kind, message string) corev1.PodCondition {
		return corev1.PodCondition{
			Type: corev1.PodConditionType(kind), Status: "True", Reason: "PoolPresent", Message: message,
			LastTransitionTime: metav1.Unix(1e9, 0),
		}
	}
	pod := func(name string, age int64, ending bool) corev1.Pod {
		p := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "storage", Name: name, ResourceVersion: "1"}}
		p.CreationTimestamp, p.Spec.NodeName = metav1.Unix(1e9-age, 0), "worker-1"
		p.Status.Conditions = []corev1.PodCondition{condition("Ready", ""), condition(prefix+"local", name)}
		if ending {
			p.DeletionTimestamp = new(metav1.Now())
		}
		return p
	}
	a.watched(podsPath, corev1.PodList{
		TypeMeta: metav1.TypeMeta{Kind: "PodList", APIVersion: "v1"}, ListMeta: metav1.ListMeta{ResourceVersion: "1"},
		Items: []corev1.Pod{pod("old", 60, false), pod("new", 30, false), pod("ending", 0, true)},
	})
	c := controllerOf(t, a)
	run(t, c, func(string) {})
	until(t, func() bool { name, _ := c.Pod("worker-1"); return name != "" })
	name, conditions := c.Pod("worker-1")
	ours := []corev1.PodCondition{condition(prefix+"local", "new")}
	if diff := cmp.Diff(ours, conditions); diff != "" || name != "new" {
		t.Errorf("pod %s: %s", name, diff)
	}
	if name, _ := c.Pod("worker-2"); name != "" {
		t.Errorf("node worker-2 has pod %s", name)
	}
	const path = "PATCH " + podsPath + "/new/status"
	a.on(path, func(w http.ResponseWriter, r *http.Request) {
		var patch corev1.Pod
		query := r.URL.Query()
		if err := json.NewDecoder(r.Body).Decode(&patch); err != nil || query.Get("force") != "true" ||
			query.Get("fieldManager") != "hostpath-provisioner" ||
			r.Header.Get("Content-Type") != "application/apply-patch+yaml" {
			t.Errorf("%v, %v, %v", err, query, r.Header)
		}
		want := []corev1.PodCondition{condition(prefix+"local", strings.Repeat("ä", 512))}
		if diff := cmp.Diff(want, patch.Status.Conditions); diff != "" {
			t.Error(diff)
		}
		give(patch)(w, r)
	})
	long := []corev1.PodCondition{condition(prefix+"local", strings.Repeat("ä", 600))}
	if err := c.SetConditions(t.Context(), "new", long); err != nil {
		t.Error(err)
	}
	a.on(path, silent())
	err := c.SetConditions(t.Context(), "new", nil)
	if err == nil || !strings.Contains(err.Error(), "pod storage/new") {
		t.Errorf("the API is silent: %v", err)
	}
}

func TestNewControllerWantsAllFields(t *testing.T) {
	if _, err := kube.New(kube.Config{}); err == nil {
		t.Error("a controller of nothing")
	}
}

// TestWaitingClaims: those of the driver's classes without a volume, as long as they have none.
func TestWaitingClaims(t *testing.T) {
	a, _, _ := world(t, nil)
	class := func(name, provisioner, in string) storagev1.StorageClass {
		return storagev1.StorageClass{
			ObjectMeta: metav1.ObjectMeta{
				Name: name,
			}, Provisioner: provisioner, Parameters: map[string]string{"storagePool": in},
		}
	}
	a.watched(classesPath, storagev1.StorageClassList{
		TypeMeta: metav1.TypeMeta{Kind: "StorageClassList", APIVersion: "storage.k8s.io/v1"},
		ListMeta: metav1.ListMeta{ResourceVersion: "1"},
		Items:    []storagev1.StorageClass{class("ours", driver, "ssd"), class("theirs", "other.driver", "ssd")},
	})
	since := metav1.Unix(1e9, 0)
	claim := func(name, class string, phase corev1.PersistentVolumeClaimPhase) corev1.PersistentVolumeClaim {
		c := corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: name, UID: "uid-3", CreationTimestamp: since, ResourceVersion: "1",
		}}
		c.Kind, c.APIVersion, c.Spec.StorageClassName, c.Status.Phase = "PersistentVolumeClaim", "v1", &class, phase
		c.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("10Gi")}
		return c
	}
	changes := a.watched(claimsPath, corev1.PersistentVolumeClaimList{
		TypeMeta: metav1.TypeMeta{Kind: "PersistentVolumeClaimList", APIVersion: "v1"},
		ListMeta: metav1.ListMeta{ResourceVersion: "1"},
		Items: []corev1.PersistentVolumeClaim{
			claim("waits", "ours", corev1.ClaimPending), claim("bound", "ours", corev1.ClaimBound),
			claim("other", "theirs", corev1.ClaimPending), claim("none", "", corev1.ClaimPending),
		},
	})
	c := controllerOf(t, a)
	run(t, c, func(string) {})
	until(t, func() bool { return len(c.Waiting()) > 0 })
	want := []nodeapi.WaitingClaim{{
		Claim: nodeapi.Claim{Namespace: "shop", Name: "waits", UID: "uid-3"}, Pool: "ssd", Bytes: 10 << 30,
		Since: since.Time,
	}}
	if diff := cmp.Diff(want, c.Waiting()); diff != "" {
		t.Error(diff)
	}
	changes <- change{"MODIFIED", claim("waits", "ours", corev1.ClaimBound)}
	until(t, func() bool { return len(c.Waiting()) == 0 })
}
