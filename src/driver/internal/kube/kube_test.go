package kube_test

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/kube"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/store"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
)

const (
	driver = "kubevirt.io.hostpath-provisioner"
	key    = "topology.hostpath.csi/node"
)

func client(t *testing.T, s *server) *kube.Client {
	t.Helper()
	api, err := kube.NewAPI(&rest.Config{Host: s.URL})
	if err != nil {
		t.Fatal(err)
	}
	c, err := kube.New(kube.Config{
		API: api, DriverName: driver, NodeName: "worker-1", TopologyKey: key, Log: slog.New(slog.DiscardHandler),
		Timeout: time.Minute,
		PodName: "csi-x7k2p", PodNamespace: "storage",
	})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// pv is a PersistentVolume on a node; "" is none.
func pv(name, driver, handle, node string) *corev1.PersistentVolume {
	object := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PersistentVolumeSpec{
			Capacity: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("5Gi")},
			ClaimRef: &corev1.ObjectReference{Namespace: "shop", Name: "data", UID: "77"},
			PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{
				Driver: driver, VolumeHandle: handle, VolumeAttributes: map[string]string{"storagePool": "local"},
			}},
		},
	}
	if node != "" {
		object.Spec.NodeAffinity = affinity(corev1.NodeSelectorTerm{
			MatchExpressions: []corev1.NodeSelectorRequirement{
				{Key: key, Operator: corev1.NodeSelectorOpIn, Values: []string{node}},
			},
		})
	}
	return object
}

func affinity(terms ...corev1.NodeSelectorTerm) *corev1.VolumeNodeAffinity {
	return &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: terms}}
}

// described is what the client makes of pv.
func described(name, handle, node string) nodeapi.PersistentVolume {
	want := nodeapi.PersistentVolume{
		Name: name, Handle: handle, Pool: "local", Here: node == "worker-1", Bytes: 5 << 30,
		Claim: nodeapi.Claim{Namespace: "shop", Name: "data", UID: "77"},
	}
	if node != "" {
		want.Nodes = []string{node}
	}
	return want
}

func TestGet(t *testing.T) {
	hostPath := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "by-hand"}}
	c := client(t, serve(t,
		pv("pvc-1", driver, "pvc-1", "worker-1"), pv("renamed", driver, "pvc-2", "worker-1"),
		pv("pvc-3", "other.driver", "pvc-3", "worker-1"),
		pv("pvc-4", driver, "another-handle", "worker-1"), hostPath,
	))
	for _, test := range []struct {
		id   string
		want nodeapi.PersistentVolume
		ok   bool
	}{
		{"pvc-1", described("pvc-1", "pvc-1", "worker-1"), true},
		{"pvc-2", described("renamed", "pvc-2", "worker-1"), true},
		{"pvc-3", nodeapi.PersistentVolume{}, false}, // another driver's
		{"pvc-4", nodeapi.PersistentVolume{}, false}, // names another directory
		{"by-hand", nodeapi.PersistentVolume{}, false},
		{"pvc-9", nodeapi.PersistentVolume{}, false},
	} {
		got, ok, err := c.Get(t.Context(), test.id)
		if err != nil || ok != test.ok {
			t.Errorf("%s: %v, %v; want %v", test.id, ok, err, test.ok)
		}
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%s: %s", test.id, diff)
		}
	}
}

// TestGetSaysWhatDeletingDoes: an adopted volume is disposed of as its class said; what no class of ours says is
// passed over.
func TestGetSaysWhatDeletingDoes(t *testing.T) {
	for attribute, want := range map[string]store.Disposal{
		"retain": store.Retain, "purge": store.Purge,
		"trash": store.Trash, "shred": "", "": "",
	} {
		object := pv("pvc-1", driver, "pvc-1", "worker-1")
		object.Spec.CSI.VolumeAttributes["onDelete"] = attribute
		got, ok, err := client(t, serve(t, object)).Get(t.Context(), "pvc-1")
		if err != nil || !ok || got.OnDelete != string(want) {
			t.Errorf("onDelete %q: %q, %v, %v; want %q", attribute, got.OnDelete, ok, err, want)
		}
	}
}

func TestList(t *testing.T) {
	c := client(t, serve(t,
		pv("pvc-1", driver, "pvc-1", "worker-1"), pv("pvc-2", driver, "pvc-2", "worker-2"),
		pv("pvc-3", driver, "pvc-3", ""),
		pv("pvc-4", "other.driver", "pvc-4", "worker-1"),
		&corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "by-hand"}},
	))
	got, err := c.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want := []nodeapi.PersistentVolume{
		described("pvc-1", "pvc-1", "worker-1"), described("pvc-2", "pvc-2", "worker-2"),
		described("pvc-3", "pvc-3", ""),
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestAffinity(t *testing.T) {
	need := func(key string, operator corev1.NodeSelectorOperator, values ...string) corev1.NodeSelectorRequirement {
		return corev1.NodeSelectorRequirement{Key: key, Operator: operator, Values: values}
	}
	label := func(needs ...corev1.NodeSelectorRequirement) corev1.NodeSelectorTerm {
		return corev1.NodeSelectorTerm{MatchExpressions: needs}
	}
	in := func(key string, values ...string) corev1.NodeSelectorTerm {
		return label(need(key, corev1.NodeSelectorOpIn, values...))
	}
	exists := func(key string) corev1.NodeSelectorRequirement { return need(key, corev1.NodeSelectorOpExists) }
	byName := func(node string) corev1.NodeSelectorTerm {
		return corev1.NodeSelectorTerm{
			MatchFields: []corev1.NodeSelectorRequirement{need("metadata.name", corev1.NodeSelectorOpIn, node)},
		}
	}
	for name, test := range map[string]struct {
		terms []corev1.NodeSelectorTerm
		here  bool
		nodes []string
	}{
		"topology": {
			[]corev1.NodeSelectorTerm{in(key, "worker-2", "worker-1"), in(key, "worker-2")},
			true,
			[]string{"worker-1", "worker-2"},
		},
		"another node": {[]corev1.NodeSelectorTerm{in(key, "worker-2")}, false, []string{"worker-2"}},
		"not that node": {
			[]corev1.NodeSelectorTerm{label(need(key, corev1.NodeSelectorOpNotIn, "worker-2"))},
			true,
			nil,
		},
		"has the key":       {[]corev1.NodeSelectorTerm{label(exists(key))}, true, nil},
		"lacks a key":       {[]corev1.NodeSelectorTerm{label(exists("other"))}, false, nil},
		"both":              {[]corev1.NodeSelectorTerm{label(exists(key), exists("other"))}, false, nil},
		"either":            {[]corev1.NodeSelectorTerm{label(exists("other")), label(exists(key))}, true, nil},
		"by name":           {[]corev1.NodeSelectorTerm{byName("worker-1")}, true, []string{"worker-1"}},
		"by another's name": {[]corev1.NodeSelectorTerm{byName("worker-2")}, false, []string{"worker-2"}},
		"by another label":  {[]corev1.NodeSelectorTerm{in("kubernetes.io/hostname", "w2")}, false, []string{"w2"}},
		"nothing asked":     {[]corev1.NodeSelectorTerm{{}}, false, nil},
		"operator to come":  {[]corev1.NodeSelectorTerm{label(need(key, "Near", "worker-1"))}, false, nil},
	} {
		t.Run(name, func(t *testing.T) {
			object := pv("pvc-1", driver, "pvc-1", "")
			object.Spec.NodeAffinity = affinity(test.terms...)
			s := serve(t, object)
			c := client(t, s)
			knowNode(t, s, c, nil)
			got, ok, err := c.Get(t.Context(), "pvc-1")
			if err != nil || !ok {
				t.Fatal(ok, err)
			}
			if got.Here != test.here || !slices.Equal(got.Nodes, test.nodes) {
				t.Errorf("here: %v, nodes %q; want %v, %q", got.Here, got.Nodes, test.here, test.nodes)
			}
		})
	}
}

// knowNode lets a client learn the labels of its node.
func knowNode(t *testing.T, s *server, c *kube.Client, labels map[string]string) {
	t.Helper()
	s.nodes <- &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "worker-1", UID: "uid-1", Labels: labels}}
	learned := make(chan struct{}, 1)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx, func(map[string]string) { learned <- struct{}{} }) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	<-learned
}

// TestVolumesPlacedByLabels are on nobody knows which node before this one's labels are known.
func TestVolumesPlacedByLabels(t *testing.T) {
	object := pv("pvc-1", driver, "pvc-1", "")
	object.Spec.NodeAffinity = affinity(corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{
		{Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: []string{"w1"}},
	}})
	s := serve(t, object, pv("pvc-2", driver, "pvc-2", "worker-1"))
	c := client(t, s)
	if _, ok, err := c.Get(t.Context(), "pvc-1"); ok || !errors.Is(err, nodeapi.ErrClusterUnknown) {
		t.Errorf("get: %v, %v", ok, err)
	}
	if _, ok, err := c.Get(t.Context(), "pvc-2"); !ok || err != nil {
		t.Errorf("get of one by the driver's key: %v, %v", ok, err)
	}
	if all, err := c.List(t.Context()); len(all) > 0 || !errors.Is(err, nodeapi.ErrClusterUnknown) {
		t.Errorf("list: %v, %v", all, err)
	}
	knowNode(t, s, c, map[string]string{corev1.LabelHostname: "w1"})
	all, err := c.List(t.Context())
	if err != nil || len(all) != 2 || !all[0].Here || !all[1].Here {
		t.Errorf("list: %+v, %v", all, err)
	}
}

func TestListTurnsPages(t *testing.T) {
	s := serve(t, pv("pvc-1", driver, "pvc-1", "worker-1"), pv("pvc-2", driver, "pvc-2", "worker-1"),
		pv("pvc-3", driver, "pvc-3", "worker-1"))
	s.page = 2
	got, err := client(t, s).List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want := []nodeapi.PersistentVolume{
		described("pvc-1", "pvc-1", "worker-1"), described("pvc-2", "pvc-2", "worker-1"),
		described("pvc-3", "pvc-3", "worker-1"),
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestAnAPIThatDoesNotAnswerIsUnknown(t *testing.T) {
	s := serve(t)
	for _, failing := range []string{"/api/v1/persistentvolumes/pvc-1", "/api/v1/persistentvolumes"} {
		s.failing = failing
		_, ok, err := client(t, s).Get(t.Context(), "pvc-1")
		if ok || !errors.Is(err, nodeapi.ErrClusterUnknown) ||
			!strings.Contains(strings.ToLower(err.Error()), "persistentvolume") {
			t.Errorf("%s fails: %v, %v; want ErrClusterUnknown", failing, ok, err)
		}
	}
	if _, err := client(t, s).List(t.Context()); !errors.Is(err, nodeapi.ErrClusterUnknown) {
		t.Errorf("Volumes: %v", err)
	}
}

func TestRunTellsTheNodesLabels(t *testing.T) {
	s := serve(t)
	s.nodes <- &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: "worker-1", UID: "uid-1",
		Labels: map[string]string{"disk": "nvme"},
	}}
	c := client(t, s)
	told := make(chan map[string]string)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx, func(labels map[string]string) { told <- labels }) }()
	if diff := cmp.Diff(map[string]string{"disk": "nvme"}, <-told); diff != "" {
		t.Error(diff)
	}
	s.nodes <- &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: "worker-1", UID: "uid-1",
		Labels: map[string]string{"disk": "ssd"},
	}}
	if diff := cmp.Diff(map[string]string{"disk": "ssd"}, <-told); diff != "" {
		t.Error(diff)
	}
	c.Warning("PoolAbsent", "pool local is away")
	event := <-s.events
	want := corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: "worker-1", UID: "uid-1"}
	if diff := cmp.Diff(want, event.InvolvedObject); diff != "" {
		t.Error(diff)
	}
	if event.Type != "Warning" || event.Reason != "PoolAbsent" || event.Message != "pool local is away" ||
		event.Source.Component != "hostpath-provisioner" {
		t.Errorf("event: %+v", event)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestReportAppliesConditions(t *testing.T) {
	s := serve(t)
	since := metav1.Date(2026, 11, 21, 12, 0, 0, 987, time.FixedZone("east", 3600))
	err := client(t, s).Report(t.Context(), []kube.Condition{
		{
			Type: "pool.example.com/local", Status: "True", Reason: "PoolPresent", Message: "fine",
			Cause: "not for the API",
			Since: since,
		},
		{
			Type: "pool.example.com/slow", Status: "False", Reason: "PoolAbsent", Message: strings.Repeat("ä", 600),
			Since: since,
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	at := metav1.NewTime(time.Date(2026, 11, 21, 11, 0, 0, 0, time.UTC).Local())
	want := application{
		Path: "/api/v1/namespaces/storage/pods/csi-x7k2p/status", ContentType: "application/apply-patch+yaml",
		Manager: "hostpath-provisioner", Force: "true",
		Pod: corev1.Pod{
			TypeMeta:   metav1.TypeMeta{Kind: "Pod", APIVersion: "v1"},
			ObjectMeta: metav1.ObjectMeta{Name: "csi-x7k2p", Namespace: "storage"},
			Status: corev1.PodStatus{Conditions: []corev1.PodCondition{
				{
					Type: "pool.example.com/local", Status: "True", Reason: "PoolPresent", Message: "fine",
					LastTransitionTime: at,
				},
				{
					Type: "pool.example.com/slow", Status: "False", Reason: "PoolAbsent",
					Message:            strings.Repeat("ä", 512),
					LastTransitionTime: at,
				},
			}},
		},
	}
	if diff := cmp.Diff(want, <-s.applied); diff != "" {
		t.Error(diff)
	}
	s.failing = want.Path
	if err := client(t, s).Report(t.Context(), nil); err == nil ||
		!strings.Contains(err.Error(), "pod storage/csi-x7k2p") {
		t.Errorf("a report that fails: %v", err)
	}
}
