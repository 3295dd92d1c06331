package volume_test

import (
	"path"
	"strings"
	"testing"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/volume"
)

// FuzzValidateID: an id that is accepted is the name of one directory, below csi/ and no other's.
func FuzzValidateID(f *testing.F) {
	for _, seed := range []string{
		"pvc-0b9a", "csi-abc", "", ".", "..", ".hpp", "a/b", "../a", "a\x00", "-a", "_a", "a b", "é", strings.Repeat("a", 128), strings.Repeat("a", 129),
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, id string) {
		if volume.ValidateID(id) != nil {
			return
		}
		if path.Join("/csi", id) != "/csi/"+id || strings.HasPrefix(id, ".") || len(id) > 128 || strings.ContainsAny(id, "/\x00") {
			t.Errorf("accepted %q", id)
		}
	})
}
