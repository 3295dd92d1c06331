package kube_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// server is the little of the Kubernetes API that the client uses, in JSON over HTTP.
type server struct {
	*httptest.Server
	pvs []*corev1.PersistentVolume
	// page is how many volumes a list holds, 0 for all; failing is a path that answers 500.
	page    int
	failing string
	// nodes are the states of the node that a watch shows.
	nodes  chan *corev1.Node
	handle func(pattern string, handler http.HandlerFunc) // adds an answer
}

func serve(t *testing.T, pvs ...*corev1.PersistentVolume) *server {
	t.Helper()
	mux := http.NewServeMux()
	s := &server{pvs: pvs, nodes: make(chan *corev1.Node, 1)}
	s.handle = func(pattern string, handler http.HandlerFunc) { mux.HandleFunc(pattern, handler) }
	mux.HandleFunc("GET /api/v1/persistentvolumes/{name}", s.get)
	mux.HandleFunc("GET /api/v1/persistentvolumes", s.list)
	mux.HandleFunc("GET /api/v1/nodes", s.watch)
	mux.HandleFunc("/", refuse(http.StatusNotFound, metav1.StatusReasonNotFound))
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == s.failing {
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		mux.ServeHTTP(w, r)
	}))
	t.Cleanup(s.Close)
	return s
}

// serveURL is that of a server.
func serveURL(t *testing.T, pvs ...*corev1.PersistentVolume) string {
	t.Helper()
	return serve(t, pvs...).URL
}

func refuse(code int, reason metav1.StatusReason) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(code)
		send(w, "Status", metav1.Status{Status: metav1.StatusFailure, Reason: reason, Code: int32(code)})
	}
}

func send(w io.Writer, kind string, object any) {
	fields := map[string]any{}
	data, err := json.Marshal(object)
	if err == nil {
		err = json.Unmarshal(data, &fields)
	}
	if err != nil {
		panic(err)
	}
	fields["kind"], fields["apiVersion"] = kind, "v1"
	if err := json.NewEncoder(w).Encode(fields); err != nil {
		panic(err)
	}
}

func (s *server) get(w http.ResponseWriter, r *http.Request) {
	for _, pv := range s.pvs {
		if pv.Name == r.PathValue("name") {
			send(w, "PersistentVolume", pv)
			return
		}
	}
	refuse(http.StatusNotFound, metav1.StatusReasonNotFound)(w, r)
}

// list gives pages; the token to continue is the number of volumes that were given.
func (s *server) list(w http.ResponseWriter, r *http.Request) {
	given, _ := strconv.Atoi(r.URL.Query().Get("continue"))
	left := s.pvs[given:]
	list := corev1.PersistentVolumeList{}
	if s.page > 0 && len(left) > s.page {
		left = left[:s.page]
		list.Continue = strconv.Itoa(given + s.page)
	}
	for pv := range slices.Values(left) {
		list.Items = append(list.Items, *pv)
	}
	send(w, "PersistentVolumeList", list)
}

// watch lists the first state of the node, and streams those that follow.
func (s *server) watch(w http.ResponseWriter, r *http.Request) {
	if r.URL.Query().Get("fieldSelector") != "metadata.name=worker-1" {
		w.WriteHeader(http.StatusForbidden)
		return
	}
	if r.URL.Query().Get("watch") == "" {
		node := metav1.PartialObjectMetadata{ObjectMeta: (<-s.nodes).ObjectMeta}
		list := metav1.PartialObjectMetadataList{Items: []metav1.PartialObjectMetadata{node}}
		list.APIVersion, list.Kind = "meta.k8s.io/v1", "PartialObjectMetadataList"
		if err := json.NewEncoder(w).Encode(list); err != nil {
			panic(err)
		}
		return
	}
	w.WriteHeader(http.StatusOK)
	for {
		w.(http.Flusher).Flush()
		select {
		case <-r.Context().Done():
			return
		case node := <-s.nodes:
			object := metav1.PartialObjectMetadata{ObjectMeta: node.ObjectMeta}
			object.APIVersion, object.Kind = "meta.k8s.io/v1", "PartialObjectMetadata"
			if err := json.NewEncoder(w).Encode(map[string]any{"type": "MODIFIED", "object": object}); err != nil {
				return
			}
		}
	}
}
