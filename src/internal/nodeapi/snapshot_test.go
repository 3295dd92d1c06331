package nodeapi_test

import (
	"strings"
	"testing"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
)

// TestSnapshotID: the ids on disk are these, whatever version made them.
func TestSnapshotID(t *testing.T) {
	const uid = "5e8f5a3c-1f6e-4d6b-9d0a-6b9f1f1c2d3e"
	for name, want := range map[string]string{
		"snapshot-" + uid: "snap-" + uid + ".35971be6e9",
		uid:               "",
		"a/b\x00..":       "",
	} {
		id := nodeapi.SnapshotID(name, "node-1")
		if want != "" && id != want {
			t.Errorf("%q: %s, want %s", name, id, want)
		}
		if nodeapi.ValidateID(id) != nil || !nodeapi.IsSnapshotOf(id, "node-1") || nodeapi.IsSnapshotOf(id, "node-2") ||
			id != nodeapi.SnapshotID(name, "node-1") || id == nodeapi.SnapshotID(name+"x", "node-1") {
			t.Errorf("%q: %s", name, id)
		}
	}
	long := nodeapi.SnapshotID(strings.Repeat("é", 300), strings.Repeat("n", 253))
	if nodeapi.ValidateID(long) != nil {
		t.Errorf("%s is no id", long)
	}
}
