package records_test

import (
	"errors"
	"path"
	"strings"
	"testing"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/disk"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/records"
)

func TestValidateID(t *testing.T) {
	for id, valid := range map[string]bool{
		"pvc-0b9a": true, "csi-abc": true, "A": true, "7": true, "a.b_c-d": true, "a..b": true, "snapshots-1": true,
		"Snapshots": true, strings.Repeat("a", 128): true,
		"snapshots": false, "": false, ".": false, "..": false, ".hpp": false, "a/b": false, "../a": false, "/a": false,
		"a\x00": false, "a\n": false, "-a": false, "_a": false, "a b": false, "é": false, `a\b`: false, "a:b": false,
		strings.Repeat("a", 129): false,
	} {
		err := records.ValidateID(id)
		if (err == nil) != valid {
			t.Errorf("%q: %v", id, err)
		}
		if err != nil && !errors.Is(err, records.ErrInvalidID) {
			t.Errorf("%q: %v is not ErrInvalidID", id, err)
		}
	}
	if err := records.ValidateID(strings.Repeat("/", 1<<20)); len(err.Error()) > 400 {
		t.Errorf("the message has %d bytes", len(err.Error()))
	}
}

// FuzzValidateID: an id that is accepted is the name of one directory, below csi/ and no other's.
func FuzzValidateID(f *testing.F) {
	for _, seed := range []string{
		"pvc-0b9a", "csi-abc", "", ".", "..", ".hpp", "a/b", "../a", "a\x00", "-a", "_a", "a b", "é", "snapshots",
		strings.Repeat("a", 128), strings.Repeat("a", 129),
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, id string) {
		if records.ValidateID(id) != nil {
			return
		}
		if path.Join("/csi", id) != "/csi/"+id || strings.HasPrefix(id, ".") || len(id) > 128 ||
			strings.ContainsAny(id, "/\x00\n") || id == "snapshots" {
			t.Errorf("accepted %q", id)
		}
	})
}

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
		r, err := records.Decode(data)
		if err != nil {
			return
		}
		if records.ValidateID(r.ID) != nil || r.Bytes < 0 || r.Version != records.Version {
			t.Errorf("accepted %+v from %q", r, data)
		}
		if p := records.Path(r.ID); path.Dir(p) != disk.VolumesDir {
			t.Errorf("record path %q leaves its directory", p)
		}
		if id, prepared := disk.PreparedFor(r.ID + ".json"); prepared {
			t.Errorf("the record of %s looks like one of %s that was prepared", r.ID, id)
		}
	})
}
