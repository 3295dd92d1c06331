package nodeapi_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
)

// TestTally: the files and bytes of all steps are counted once, and what is kept has bounds.
func TestTally(t *testing.T) {
	var w nodeapi.Tally
	for _, v := range []nodeapi.VolumeWork{
		{ID: "a", Files: 3, Bytes: 30},
		{ID: "a", Files: 5, Bytes: 50},
		{ID: "a", Files: 5, Bytes: 50, Done: true},
		{ID: "b", Files: 1, Bytes: 10},
		{ID: "b", Files: 1, Bytes: 10, Error: "gone"},
		{ID: "c", Files: 2},
	} {
		w.Take(v, "about "+v.ID)
	}
	want := nodeapi.Work{
		Files: 8, Bytes: 60, Done: 1, Failed: 1, Errors: []string{"b: gone"}, Message: "about c",
		Volumes: []nodeapi.VolumeWork{
			{ID: "a", Files: 5, Bytes: 50, Done: true}, {ID: "b", Files: 1, Bytes: 10, Error: "gone"},
		},
	}
	if diff := cmp.Diff(want, w.Work); diff != "" {
		t.Error(diff)
	}
	kept := w.Clone()
	for i := range 3000 {
		w.Take(nodeapi.VolumeWork{ID: fmt.Sprint(i), Error: "gone"}, "")
	}
	if len(w.Errors) != 20 || len(w.Volumes) != 2000 || w.Failed != 3001 || len(kept.Volumes) != 2 {
		t.Errorf("%d errors and %d volumes of %d, %d before", len(w.Errors), len(w.Volumes), w.Failed,
			len(kept.Volumes))
	}
}
