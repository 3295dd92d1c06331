package nodeapi_test

import (
	"errors"
	"path"
	"strings"
	"testing"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
)

func TestValidateID(t *testing.T) {
	for id, valid := range map[string]bool{
		"pvc-0b9a": true, "csi-abc": true, "A": true, "7": true, "a.b_c-d": true, "a..b": true, "snapshots-1": true,
		"Snapshots": true, strings.Repeat("a", 128): true,
		"snapshots": false, "": false, ".": false, "..": false, ".hpp": false, "a/b": false, "../a": false, "/a": false,
		"a\x00": false, "a\n": false, "-a": false, "_a": false, "a b": false, "é": false, `a\b`: false, "a:b": false,
		strings.Repeat("a", 129): false,
	} {
		err := nodeapi.ValidateID(id)
		if (err == nil) != valid {
			t.Errorf("%q: %v", id, err)
		}
		if err != nil && !errors.Is(err, nodeapi.ErrInvalidID) {
			t.Errorf("%q: %v is not ErrInvalidID", id, err)
		}
	}
	if err := nodeapi.ValidateID(strings.Repeat("/", 1<<20)); len(err.Error()) > 400 {
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
		if nodeapi.ValidateID(id) != nil {
			return
		}
		if path.Join("/csi", id) != "/csi/"+id || strings.HasPrefix(id, ".") || len(id) > 128 ||
			strings.ContainsAny(id, "/\x00\n") || id == "snapshots" {
			t.Errorf("accepted %q", id)
		}
	})
}
