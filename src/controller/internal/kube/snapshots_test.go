package kube_test

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
)

// TestSnapshotContents: those of all pages count, and a cluster without VolumeSnapshotContents is no error.
func TestSnapshotContents(t *testing.T) {
	const path = "/apis/snapshot.storage.k8s.io/v1/volumesnapshotcontents"
	pages := func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Query().Get("continue") {
		case "":
			_, _ = fmt.Fprintf(w, `{"metadata": {"continue": "2"}, "items": [
				{"metadata": {"name": "a"}, "spec": {"driver": %q, "source": {"volumeHandle": "v"}},
					"status": {"snapshotHandle": "cut"}},
				{"spec": {"driver": "other", "source": {"snapshotHandle": "x"}}, "status": {"snapshotHandle": "y"}},
				{"spec": {"driver": %[1]q, "source": {"volumeHandle": "w"}}}]}`, driver)
		case "2":
			_, _ = fmt.Fprintf(w, `{"metadata": {}, "items": [
				{"metadata": {"name": "d"}, "spec": {"driver": %q, "source": {"snapshotHandle": "by-hand"}},
					"status": null},
				{"metadata": {"name": "e"}, "spec": {"driver": %[1]q, "source": {"snapshotHandle": "cut"}},
					"status": {"snapshotHandle": "cut"}}]}`, driver)
		default:
			t.Errorf("asked for %s", r.URL)
		}
	}
	var secondFails http.HandlerFunc = func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("continue") == "" {
			pages(w, r)
			return
		}
		fail(http.StatusGone, metav1.StatusReasonExpired)(w, r)
	}
	for name, test := range map[string]struct {
		answer http.HandlerFunc
		want   map[string][]string
		err    error
	}{
		"two pages":         {answer: pages, want: map[string][]string{"cut": {"a", "e"}, "by-hand": {"d"}}},
		"none":              {answer: give(struct{}{}), want: map[string][]string{}},
		"no such API":       {},
		"no right":          {answer: silent()},
		"an error":          {answer: fail(http.StatusInternalServerError, "broken"), err: nodeapi.ErrClusterUnknown},
		"a page is gone":    {answer: secondFails, err: nodeapi.ErrClusterUnknown},
		"this is no answer": {answer: give("text"), err: nodeapi.ErrClusterUnknown},
	} {
		a := serveAPI(t)
		a.on("GET "+path, test.answer)
		got, err := controllerOf(t, a).SnapshotContents(t.Context())
		if !maps.EqualFunc(got, test.want, slices.Equal) || (got == nil) != (test.want == nil) ||
			!errors.Is(err, test.err) {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
}
