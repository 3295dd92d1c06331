package store_test

import (
	"strings"
	"testing"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/store"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/volume"
)

// FuzzDecode: whatever a record file holds, the answer is a record that can be worked with or an error.
func FuzzDecode(f *testing.F) {
	for _, seed := range []string{
		`{"version":1,"id":"pvc-1","pool":"local","bytes":4096,"backend":"plain","mode":511,"onDelete":"trash","created":"2026-11-21T12:00:00Z"}`,
		`{"version":2,"id":"pvc-1"}`, `{"version":1,"id":"../x"}`, `{"version":1,"id":"pvc-1","bytes":-1}`,
		`{"version":1,"id":"pvc-1","bytes":1e400}`, `{`, ``, `null`, `[]`, `{"version":"1"}`, "{\"version\":1,\"id\":\"a\\u0000\"}",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := store.Decode(data)
		if err != nil {
			return
		}
		if volume.ValidateID(r.ID) != nil || r.Bytes < 0 || r.Version != volume.RecordVersion {
			t.Errorf("accepted %+v from %q", r, data)
		}
		if p := store.Path(r.ID); strings.Count(p, "/") != 2 {
			t.Errorf("record path %q leaves its directory", p)
		}
	})
}
