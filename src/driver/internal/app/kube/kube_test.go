package kube_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/app/kube"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/volume"
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
		API: api, DriverName: driver, NodeName: "worker-1", TopologyKey: key, Log: slog.New(slog.DiscardHandler), Timeout: time.Minute,
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
		object.Spec.NodeAffinity = &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
			MatchExpressions: []corev1.NodeSelectorRequirement{{Key: key, Operator: corev1.NodeSelectorOpIn, Values: []string{node}}},
		}}}}
	}
	return object
}

func described(name, handle string) volume.PersistentVolume {
	return volume.PersistentVolume{
		Name: name, Handle: handle, Pool: "local", Bytes: 5 << 30, Claim: volume.Claim{Namespace: "shop", Name: "data", UID: "77"},
	}
}

func TestVolume(t *testing.T) {
	hostPath := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "by-hand"}}
	c := client(t, serve(t,
		pv("pvc-1", driver, "pvc-1", "worker-1"), pv("renamed", driver, "pvc-2", "worker-1"), pv("pvc-3", "other.driver", "pvc-3", "worker-1"),
		pv("pvc-4", driver, "another-handle", "worker-1"), hostPath,
	))
	for _, test := range []struct {
		id   string
		want volume.PersistentVolume
		ok   bool
	}{
		{"pvc-1", described("pvc-1", "pvc-1"), true},
		{"pvc-2", described("renamed", "pvc-2"), true},
		{"pvc-3", volume.PersistentVolume{}, false}, // another driver's
		{"pvc-4", volume.PersistentVolume{}, false}, // names another directory
		{"by-hand", volume.PersistentVolume{}, false},
		{"pvc-9", volume.PersistentVolume{}, false},
	} {
		got, ok, err := c.Volume(t.Context(), test.id)
		if err != nil || ok != test.ok {
			t.Errorf("%s: %v, %v; want %v", test.id, ok, err, test.ok)
		}
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%s: %s", test.id, diff)
		}
	}
}

// TestVolumeTellsWhatDeletingDoes: an adopted volume is disposed of as its class said; what no class of ours says is passed over.
func TestVolumeTellsWhatDeletingDoes(t *testing.T) {
	for attribute, want := range map[string]volume.Disposal{"retain": volume.Retain, "purge": volume.Purge, "trash": volume.Trash, "shred": "", "": ""} {
		object := pv("pvc-1", driver, "pvc-1", "worker-1")
		object.Spec.CSI.VolumeAttributes["onDelete"] = attribute
		got, ok, err := client(t, serve(t, object)).Volume(t.Context(), "pvc-1")
		if err != nil || !ok || got.OnDelete != want {
			t.Errorf("onDelete %q: %q, %v, %v; want %q", attribute, got.OnDelete, ok, err, want)
		}
	}
}

func TestVolumes(t *testing.T) {
	c := client(t, serve(t,
		pv("pvc-1", driver, "pvc-1", "worker-1"), pv("pvc-2", driver, "pvc-2", "worker-2"), pv("pvc-3", driver, "pvc-3", ""),
		pv("pvc-4", "other.driver", "pvc-4", "worker-1"), &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "by-hand"}},
	))
	got, err := c.Volumes(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]volume.PersistentVolume{described("pvc-1", "pvc-1")}, got); diff != "" {
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
	for name, test := range map[string]struct {
		terms []corev1.NodeSelectorTerm
		here  bool
	}{
		"topology":          {[]corev1.NodeSelectorTerm{label(need(key, corev1.NodeSelectorOpIn, "worker-2", "worker-1"))}, true},
		"another node":      {[]corev1.NodeSelectorTerm{label(need(key, corev1.NodeSelectorOpIn, "worker-2"))}, false},
		"not that node":     {[]corev1.NodeSelectorTerm{label(need(key, corev1.NodeSelectorOpNotIn, "worker-2"))}, true},
		"has the key":       {[]corev1.NodeSelectorTerm{label(need(key, corev1.NodeSelectorOpExists))}, true},
		"lacks a key":       {[]corev1.NodeSelectorTerm{label(need("other", corev1.NodeSelectorOpExists))}, false},
		"both":              {[]corev1.NodeSelectorTerm{label(need(key, corev1.NodeSelectorOpExists), need("other", corev1.NodeSelectorOpExists))}, false},
		"either":            {[]corev1.NodeSelectorTerm{label(need("other", corev1.NodeSelectorOpExists)), label(need(key, corev1.NodeSelectorOpExists))}, true},
		"by name":           {[]corev1.NodeSelectorTerm{{MatchFields: []corev1.NodeSelectorRequirement{need("metadata.name", corev1.NodeSelectorOpIn, "worker-1")}}}, true},
		"by another's name": {[]corev1.NodeSelectorTerm{{MatchFields: []corev1.NodeSelectorRequirement{need("metadata.name", corev1.NodeSelectorOpIn, "worker-2")}}}, false},
		"nothing asked":     {[]corev1.NodeSelectorTerm{{}}, false},
		"operator to come":  {[]corev1.NodeSelectorTerm{label(need(key, "Near", "worker-1"))}, false},
	} {
		t.Run(name, func(t *testing.T) {
			object := pv("pvc-1", driver, "pvc-1", "worker-1")
			object.Spec.NodeAffinity.Required.NodeSelectorTerms = test.terms
			got, err := client(t, serve(t, object)).Volumes(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if (len(got) == 1) != test.here {
				t.Errorf("got %v, want it here: %v", got, test.here)
			}
		})
	}
}

func TestVolumesTurnsPages(t *testing.T) {
	s := serve(t, pv("pvc-1", driver, "pvc-1", "worker-1"), pv("pvc-2", driver, "pvc-2", "worker-1"), pv("pvc-3", driver, "pvc-3", "worker-1"))
	s.page = 2
	got, err := client(t, s).Volumes(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want := []volume.PersistentVolume{described("pvc-1", "pvc-1"), described("pvc-2", "pvc-2"), described("pvc-3", "pvc-3")}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestAnAPIThatDoesNotAnswerIsUnknown(t *testing.T) {
	s := serve(t)
	for _, failing := range []string{"/api/v1/persistentvolumes/pvc-1", "/api/v1/persistentvolumes"} {
		s.failing = failing
		_, ok, err := client(t, s).Volume(t.Context(), "pvc-1")
		if ok || !errors.Is(err, volume.ErrClusterUnknown) || !strings.Contains(err.Error(), "PersistentVolume") {
			t.Errorf("%s fails: %v, %v; want ErrClusterUnknown", failing, ok, err)
		}
	}
	if _, err := client(t, s).Volumes(t.Context()); !errors.Is(err, volume.ErrClusterUnknown) {
		t.Errorf("Volumes: %v", err)
	}
}

func TestRunTellsTheNodesLabels(t *testing.T) {
	s := serve(t)
	s.nodes <- &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "worker-1", UID: "uid-1", Labels: map[string]string{"disk": "nvme"}}}
	c := client(t, s)
	told := make(chan map[string]string)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx, func(labels map[string]string) { told <- labels }) }()
	if diff := cmp.Diff(map[string]string{"disk": "nvme"}, <-told); diff != "" {
		t.Error(diff)
	}
	s.nodes <- &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "worker-1", UID: "uid-1", Labels: map[string]string{"disk": "ssd"}}}
	if diff := cmp.Diff(map[string]string{"disk": "ssd"}, <-told); diff != "" {
		t.Error(diff)
	}
	c.Warning("PoolAbsent", "pool local is away")
	event := <-s.events
	want := corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: "worker-1", UID: "uid-1"}
	if diff := cmp.Diff(want, event.InvolvedObject); diff != "" {
		t.Error(diff)
	}
	if event.Type != "Warning" || event.Reason != "PoolAbsent" || event.Message != "pool local is away" || event.Source.Component != "hostpath-provisioner" {
		t.Errorf("event: %+v", event)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestReportAppliesConditions(t *testing.T) {
	s := serve(t)
	since := time.Date(2026, 11, 21, 12, 0, 0, 987, time.FixedZone("east", 3600))
	err := client(t, s).Report(t.Context(), []kube.Condition{
		{Type: "pool.example.com/local", True: true, Reason: "PoolPresent", Message: "fine", Cause: "not for the API", Since: since},
		{Type: "pool.example.com/slow", Reason: "PoolAbsent", Message: strings.Repeat("ä", 600), Since: since},
	})
	if err != nil {
		t.Fatal(err)
	}
	at := metav1.NewTime(time.Date(2026, 11, 21, 11, 0, 0, 0, time.UTC).Local())
	want := application{
		Path: "/api/v1/namespaces/storage/pods/csi-x7k2p/status", ContentType: "application/apply-patch+yaml", Manager: "hostpath-provisioner", Force: "true",
		Pod: corev1.Pod{
			TypeMeta: metav1.TypeMeta{Kind: "Pod", APIVersion: "v1"}, ObjectMeta: metav1.ObjectMeta{Name: "csi-x7k2p", Namespace: "storage"},
			Status: corev1.PodStatus{Conditions: []corev1.PodCondition{
				{Type: "pool.example.com/local", Status: "True", Reason: "PoolPresent", Message: "fine", LastTransitionTime: at},
				{Type: "pool.example.com/slow", Status: "False", Reason: "PoolAbsent", Message: strings.Repeat("ä", 512), LastTransitionTime: at},
			}},
		},
	}
	if diff := cmp.Diff(want, <-s.applied); diff != "" {
		t.Error(diff)
	}
	s.failing = want.Path
	if err := client(t, s).Report(t.Context(), nil); err == nil || !strings.Contains(err.Error(), "pod storage/csi-x7k2p") {
		t.Errorf("a report that fails: %v", err)
	}
}
