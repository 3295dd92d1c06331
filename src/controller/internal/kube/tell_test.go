package kube_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
)

// TestTell: an event on a claim lies in the claim's namespace and names it.
func TestTell(t *testing.T) {
	got := make(chan corev1.Event, 1)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if r.Method != http.MethodPost || r.URL.Path != "/api/v1/namespaces/shop/events" {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		event := corev1.Event{}
		if err := json.NewDecoder(r.Body).Decode(&event); err != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		got <- event
		_ = json.NewEncoder(w).Encode(event)
	}))
	defer server.Close()
	c := clientOf(t, server, "worker-1")
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx, func(map[string]string) {}) }()
	c.Tell(nodeapi.Claim{Namespace: "shop", Name: "data", UID: "77"}, "SizeNotEnforced", "nothing keeps it to its size")
	event := <-got
	cancel()
	<-done
	want := corev1.ObjectReference{
		APIVersion: "v1", Kind: "PersistentVolumeClaim", Namespace: "shop", Name: "data",
		UID: "77",
	}
	if diff := cmp.Diff(want, event.InvolvedObject); diff != "" || event.Type != "Normal" ||
		event.Reason != "SizeNotEnforced" || event.Namespace != "shop" {
		t.Errorf("event %+v\n%s", event, diff)
	}
}
