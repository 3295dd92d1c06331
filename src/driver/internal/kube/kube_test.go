package kube_test

import (
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/kube"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/persistentvolume/pvtest"
)

const driver = pvtest.Driver

// client is a node's client of an API server.
func client(t *testing.T, url string) *kube.Client {
	t.Helper()
	api := &kube.API{Server: url, Client: http.DefaultClient, Token: func() (string, error) { return "s3cret", nil }}
	c, err := kube.New(kube.Config{
		API: api, DriverName: driver, NodeName: "worker-1", TopologyKey: pvtest.Key,
		Log: slog.New(slog.DiscardHandler), Timeout: time.Minute, PodNamespace: "storage",
	})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// described is what the client makes of pv.
func described(name, handle, node string) nodeapi.PersistentVolume {
	want := pvtest.Described(name, handle, node)
	want.Here = node == "worker-1"
	return want
}

func TestGet(t *testing.T) {
	hostPath := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "by-hand"}}
	c := client(t, serveURL(t,
		pvtest.New("pvc-1", driver, "pvc-1", "worker-1"), pvtest.New("renamed", driver, "pvc-2", "worker-1"),
		pvtest.New("pvc-3", "other.driver", "pvc-3", "worker-1"),
		pvtest.New("pvc-4", driver, "another-handle", "worker-1"), hostPath,
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

func TestList(t *testing.T) {
	c := client(t, serveURL(t,
		pvtest.New("pvc-1", driver, "pvc-1", "worker-1"), pvtest.New("pvc-2", driver, "pvc-2", "worker-2"),
		pvtest.New("pvc-3", driver, "pvc-3", ""),
		pvtest.New("pvc-4", "other.driver", "pvc-4", "worker-1"),
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
	object := pvtest.New("pvc-1", driver, "pvc-1", "")
	byHost := corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{
		{Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: []string{"w1"}},
	}}
	object.Spec.NodeAffinity = pvtest.Affinity(byHost)
	s := serve(t, object, pvtest.New("pvc-2", driver, "pvc-2", "worker-1"))
	c := client(t, s.URL)
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
	s := serve(t, pvtest.New("pvc-1", driver, "pvc-1", "worker-1"), pvtest.New("pvc-2", driver, "pvc-2", "worker-1"),
		pvtest.New("pvc-3", driver, "pvc-3", "worker-1"))
	s.page = 2
	got, err := client(t, s.URL).List(t.Context())
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

// TestConnectionsAreUsedAgain: a page of volumes comes in chunks, of which the last has nothing of the list.
func TestConnectionsAreUsedAgain(t *testing.T) {
	s := serve(t)
	for i := range 1000 {
		name := fmt.Sprint("pvc-", i)
		s.pvs = append(s.pvs, pvtest.New(name, driver, name, "worker-1"))
	}
	s.page = 100
	var dialled atomic.Int32
	c := client(t, s.URL)
	c.API.Client = &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			dialled.Add(1)
			return new(net.Dialer).DialContext(ctx, network, address)
		},
	}}
	all, err := c.List(t.Context())
	if err != nil || len(all) != len(s.pvs) || dialled.Load() != 1 {
		t.Errorf("%d volumes over %d connections, %v", len(all), dialled.Load(), err)
	}
	c.API.Client.CloseIdleConnections()
}

func TestAnAPIThatDoesNotAnswerIsUnknown(t *testing.T) {
	s := serve(t)
	for _, failing := range []string{"/api/v1/persistentvolumes/pvc-1", "/api/v1/persistentvolumes"} {
		s.failing = failing
		_, ok, err := client(t, s.URL).Get(t.Context(), "pvc-1")
		if ok || !errors.Is(err, nodeapi.ErrClusterUnknown) ||
			!strings.Contains(strings.ToLower(err.Error()), "persistentvolume") {
			t.Errorf("%s fails: %v, %v; want ErrClusterUnknown", failing, ok, err)
		}
	}
	if _, err := client(t, s.URL).List(t.Context()); !errors.Is(err, nodeapi.ErrClusterUnknown) {
		t.Errorf("Volumes: %v", err)
	}
}

func TestRunTellsTheNodesLabels(t *testing.T) {
	s := serve(t)
	s.nodes <- &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: "worker-1", UID: "uid-1",
		Labels: map[string]string{"disk": "nvme"},
	}}
	c := client(t, s.URL)
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
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// TestConnect: authorities and token are read again, for the kubelet replaces them.
func TestConnect(t *testing.T) {
	var shown string
	serve := func() *httptest.Server {
		return httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			shown = r.Header.Get("Authorization")
			send(w, "ConfigMap", corev1.ConfigMap{Data: map[string]string{"ca.crt": "x"}})
		}))
	}
	account := t.TempDir()
	put := func(name string, data []byte) {
		if err := os.WriteFile(filepath.Join(account, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s := serve()
	s.StartTLS()
	defer s.Close()
	host, port, err := net.SplitHostPort(s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	at := map[string]string{"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": port}
	api, err := kube.Connect(account, func(name string) string { return at[name] })
	if err != nil {
		t.Fatal(err)
	}
	c := client(t, "")
	c.API = api
	read := func() error { _, err := c.ConfigMap(t.Context(), "ca"); return err }
	if err := read(); err == nil {
		t.Error("without a token somebody is asked")
	}
	put("token", []byte("one\n"))
	put("ca.crt", []byte("nothing"))
	if err := read(); err == nil || !strings.Contains(err.Error(), "no certificate") {
		t.Errorf("without authorities: %v", err)
	}
	put("ca.crt", pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}))
	if err := read(); err != nil || shown != "Bearer one" {
		t.Errorf("%v, shown %q", err, shown)
	}
	put("token", []byte("two"))
	if err := read(); err != nil || shown != "Bearer two" {
		t.Errorf("%v, shown %q", err, shown)
	}
	if _, err := kube.Connect(account, func(string) string { return "" }); err == nil {
		t.Error("outside of a cluster")
	}
}

func TestConfigMap(t *testing.T) {
	s := serve(t)
	c := client(t, s.URL)
	if data, err := c.ConfigMap(t.Context(), "ca"); data != nil || err != nil {
		t.Errorf("none: %v, %v", data, err)
	}
	s.handle("GET /api/v1/namespaces/storage/configmaps/ca", func(w http.ResponseWriter, _ *http.Request) {
		send(w, "ConfigMap", corev1.ConfigMap{Data: map[string]string{"ca.crt": "one"}})
	})
	if data, err := c.ConfigMap(t.Context(), "ca"); data["ca.crt"] != "one" || err != nil {
		t.Errorf("%v, %v", data, err)
	}
	s.failing = "/api/v1/namespaces/storage/configmaps/ca"
	if _, err := c.ConfigMap(t.Context(), "ca"); err == nil {
		t.Error("the API is silent")
	}
}

func TestStaying(t *testing.T) {
	there := func(deleted *metav1.Time) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			send(w, "PartialObjectMetadata", metav1.PartialObjectMetadata{
				ObjectMeta: metav1.ObjectMeta{Name: "hpp", DeletionTimestamp: deleted},
			})
		}
	}
	for name, test := range map[string]struct {
		answer http.HandlerFunc
		want   bool
	}{
		"there":               {there(nil), true},
		"ending":              {there(new(metav1.Now())), false},
		"gone":                {refuse(http.StatusNotFound, metav1.StatusReasonNotFound), false},
		"no right to look":    {refuse(http.StatusForbidden, metav1.StatusReasonForbidden), false},
		"no account any more": {refuse(http.StatusUnauthorized, metav1.StatusReasonUnauthorized), false},
		"unknown":             {refuse(http.StatusInternalServerError, metav1.StatusReasonInternalError), true},
	} {
		s := serve(t)
		s.handle("GET /apis/apps/v1/namespaces/storage/daemonsets/hpp", test.answer)
		if got := client(t, s.URL).Staying(t.Context(), "hpp"); got != test.want {
			t.Errorf("%s: %v, want %v", name, got, test.want)
		}
	}
}
