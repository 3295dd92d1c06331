package wire_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi/wire"
)

// TestNoFieldOfADirectoryIsLost: whatever is added to these structs of nodeapi has to travel.
func TestNoFieldOfADirectoryIsLost(t *testing.T) {
	found := fill[nodeapi.Directory](t)
	if diff := cmp.Diff(found, wire.ToDirectory(travelled(t, wire.FromDirectory(found)))); diff != "" {
		t.Errorf("a directory (-sent +read):\n%s", diff)
	}
	taken := fill[nodeapi.TakenDirectory](t)
	if diff := cmp.Diff(taken, wire.ToTaken(travelled(t, wire.FromTaken(taken)))); diff != "" {
		t.Errorf("one that was taken (-sent +read):\n%s", diff)
	}
	back := fill[nodeapi.ReturnedDirectory](t)
	if diff := cmp.Diff(back, wire.ToReturned(travelled(t, wire.FromReturned(back)))); diff != "" {
		t.Errorf("one that goes back (-sent +read):\n%s", diff)
	}
}
