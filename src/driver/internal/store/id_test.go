package store_test

import (
	"path"
	"testing"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/disk"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/store"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
)

// FuzzDecode: whatever a record file has, the answer is a record that can be worked with or an error.
func FuzzDecode(f *testing.F) {
	for _, seed := range []string{
		`{"version":2,"id":"pvc-1","pool":"local","bytes":4096,"backend":"plain","mode":511,"onDelete":"trash",` +
			`"created":"2026-11-21T12:00:00Z"}`,
		`{"version":2,"id":"pvc-1","backend":"btrfs","quotaID":140737488355328}`,
		`{"version":1,"id":"pvc-1"}`, `{"version":2,"id":"../x"}`, `{"version":2,"id":"pvc-1","bytes":-1}`,
		`{"version":2,"id":"pvc-1","bytes":1e400}`, `{"version":2,"id":"pvc-1","quotaID":-1}`,
		`{`, ``, `null`, `[]`, `{"version":"2"}`, "{\"version\":2,\"id\":\"a\\u0000\"}",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := store.Decode(data)
		if err != nil {
			return
		}
		if nodeapi.ValidateID(r.ID) != nil || r.Bytes < 0 || r.Held < 0 || r.Version < 2 ||
			r.Version > store.Version {
			t.Errorf("accepted %+v from %q", r, data)
		}
		if p := store.Path(r.ID); path.Dir(p) != disk.VolumesDir {
			t.Errorf("record path %q leaves its directory", p)
		}
		if id, prepared := disk.PreparedFor(r.ID + ".json"); prepared {
			t.Errorf("the record of %s looks like one of %s that was prepared", r.ID, id)
		}
	})
}
