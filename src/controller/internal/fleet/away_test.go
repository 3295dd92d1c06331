package fleet_test

import (
	"strings"
	"testing"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/controller/internal/csi/csitest"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/link/linktest"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/waittest"
)

// TestMissing: people hear of a node that is away for longer than its grace, once, and of its return.
func TestMissing(t *testing.T) {
	t.Parallel()
	a := csitest.NewNode("a", csitest.GiB)
	r := csitest.Start(t)
	r.Set(func() { r.Drivers, r.Syncing = []string{"a"}, true })
	r.Look(t)
	if nodes := r.Inventory.Nodes(); len(nodes) != 1 { // from now on it is waited for
		t.Errorf("nodes are %v", nodes)
	}
	r.Pass(time.Minute)
	r.Set(func() { r.Syncing = false })
	var events []string
	waittest.Until(t, "the node is missed", func() bool { events = r.Told(""); return len(events) > 0 })
	if len(events) != 1 || !strings.HasPrefix(events[0], "Warning a NodeNotConnected: ") ||
		!strings.Contains(events[0], "for 1m0s") {
		t.Errorf("told was %q", events)
	}
	connected := func() map[string]float64 {
		return linktest.Samples(t, r.Hub.Metrics, "hpp_controller_node_connected")
	}
	if got := connected(); got["a"] != 0 || len(got) != 1 {
		t.Errorf("connected are %v", got)
	}
	r.Hub.Connect(t, &a.Node)
	waittest.Until(t, "it is back", func() bool { return len(r.Told("Normal a NodeConnected")) == 1 })
	r.Set(func() { r.NodeLists = 0 })
	r.Pass(time.Hour)
	waittest.Until(t, "nodes are looked at again", func() (done bool) {
		r.Set(func() { done = r.NodeLists > 1 })
		return done
	})
	if got := connected(); got["a"] != 1 {
		t.Errorf("connected are %v", got)
	}
}
