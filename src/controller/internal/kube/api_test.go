package kube_test

import (
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/controller/internal/kube"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/waittest"
)

// api is an API server that answers by method and path; it has nothing else.
type api struct {
	*httptest.Server
	old     bool // before Kubernetes 1.34
	mu      sync.Mutex
	answers map[string]http.HandlerFunc
}

func serveAPI(t *testing.T) *api {
	t.Helper()
	a := &api{answers: map[string]http.HandlerFunc{}}
	a.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		a.mu.Lock()
		answer := a.answers[r.Method+" "+r.URL.Path]
		a.mu.Unlock()
		if answer == nil {
			answer = fail(http.StatusNotFound, metav1.StatusReasonNotFound)
		}
		answer(w, r)
	}))
	t.Cleanup(a.Close)
	return a
}

func (a *api) on(request string, answer http.HandlerFunc) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.answers[request] = answer
}

func fail(code int32, reason metav1.StatusReason) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(int(code))
		_ = json.NewEncoder(w).Encode(metav1.Status{
			TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure, Reason: reason,
			Code: code, Message: string(reason),
		})
	}
}

func silent() http.HandlerFunc { return fail(http.StatusForbidden, metav1.StatusReasonForbidden) }

func give(object any) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { _ = json.NewEncoder(w).Encode(object) }
}

// partials is what the API gives to who asks for metadata alone.
func partials(metas ...metav1.ObjectMeta) metav1.PartialObjectMetadataList {
	list := metav1.PartialObjectMetadataList{
		TypeMeta: metav1.TypeMeta{Kind: "PartialObjectMetadataList", APIVersion: "meta.k8s.io/v1"},
		ListMeta: metav1.ListMeta{ResourceVersion: "1"},
	}
	for _, meta := range metas {
		list.Items = append(list.Items, metav1.PartialObjectMetadata{ObjectMeta: meta})
	}
	return list
}

type change struct {
	Type   string `json:"type"`
	Object any    `json:"object"`
}

// watched answers a list, and streams it and the changes to a watch that begins with a list; an API server before
// Kubernetes 1.34 refuses such a watch.
func (a *api) watched(path string, list any) chan<- change {
	changes := make(chan change)
	a.on("GET "+path, func(w http.ResponseWriter, r *http.Request) {
		query := r.URL.Query()
		switch first := query.Get("sendInitialEvents") == "true"; {
		case a.old && first:
			fail(http.StatusUnprocessableEntity, metav1.StatusReasonInvalid)(w, r)
			return
		case a.old && query.Get("watch") == "":
			give(list)(w, r)
			return
		case !a.old && query.Get("watch") == "":
			silent()(w, r) // nobody needs to list
			return
		case first:
			for _, c := range stream(list) {
				_ = json.NewEncoder(w).Encode(c)
			}
		}
		for {
			w.(http.Flusher).Flush()
			select {
			case <-r.Context().Done():
				return
			case c := <-changes:
				_ = json.NewEncoder(w).Encode(c)
			}
		}
	})
	return changes
}

// stream is a list as a watch gives it: each object, and the mark that these were all.
func stream(list any) (changes []change) {
	var fields struct {
		Kind, APIVersion string
		Items            []map[string]any
	}
	data, err := json.Marshal(list)
	if err == nil {
		err = json.Unmarshal(data, &fields)
	}
	if err != nil {
		panic(err)
	}
	typed := func(object map[string]any) map[string]any {
		object["kind"], object["apiVersion"] = strings.TrimSuffix(fields.Kind, "List"), fields.APIVersion
		return object
	}
	for _, item := range fields.Items {
		changes = append(changes, change{"ADDED", typed(item)})
	}
	return append(changes, change{"BOOKMARK", typed(map[string]any{"metadata": map[string]any{
		"resourceVersion": "1", "annotations": map[string]string{"k8s.io/initial-events-end": "true"},
	}})})
}

func controllerOf(t *testing.T, a *api) *kube.Cluster {
	t.Helper()
	c, err := kube.New(kube.Config{
		API: &rest.Config{
			Host: a.URL, QPS: -1, ContentConfig: rest.ContentConfig{
				ContentType: runtime.ContentTypeJSON, AcceptContentTypes: runtime.ContentTypeJSON,
			},
		},
		DriverName: driver, TopologyKey: key, PodNamespace: "storage",
		PodName: "hpp-controller-1", Lease: "hpp-controller", NodeServiceAccount: "hpp", NodePods: "app=hpp",
		NodeLabels: []string{"a"}, Log: slog.New(slog.DiscardHandler), Timeout: time.Minute,
	})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// run runs a controller's view until the test ends.
func run(t *testing.T, c *kube.Cluster, nodeGone func(name string)) {
	t.Helper()
	done := make(chan error, 1)
	go func() { done <- c.Run(t.Context(), nodeGone) }()
	t.Cleanup(func() {
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// until waits for what a watch brings.
func until(t *testing.T, done func() bool) {
	t.Helper()
	waittest.Until(t, "a watch has brought it", done)
}
