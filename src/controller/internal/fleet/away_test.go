package fleet_test

import (
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/controller/internal/csi/csitest"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/link/linktest"
)

// TestMissing: people hear of a node that is away for longer than its grace, once, and of its return.
func TestMissing(t *testing.T) {
	t.Parallel()
	a := csitest.NewNode("a", csitest.GiB)
	r := csitest.Start(t)
	r.Set(func() {
		r.Drivers, r.Syncing, r.Cleared = []string{"a"}, true, map[string]bool{"a": true, "b": true}
		r.Tunnel = map[string]bool{"a": true}
	})
	r.Look(t)
	if nodes := r.Inventory.Nodes(); len(nodes) != 1 { // from now on it is waited for
		t.Errorf("nodes are %v", nodes)
	}
	r.Pass(time.Minute)
	r.Set(func() { r.Syncing = false })
	var events []string
	linktest.Until(t, "the node is missed", func() bool { events = r.Told(""); return len(events) > 0 })
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
	linktest.Until(t, "it is back", func() bool { return len(r.Told("Normal a NodeConnected")) == 1 })
	// What drivers without a controller have published is looked for after the grace, once an hour, until none is left.
	listed := func(count int) {
		t.Helper()
		linktest.Until(t, fmt.Sprint(count, " lists of capacity"), func() (done bool) {
			r.Set(func() { done = r.CapacityLists >= count })
			return done
		})
	}
	listed(1)
	r.Pass(time.Hour)
	listed(2)
	r.Set(func() {
		if !maps.Equal(r.Cleared, map[string]bool{"b": true}) || len(r.Events) > 0 {
			t.Errorf("old capacity is left of %v; more events: %q", r.Cleared, r.Events)
		}
		r.Cleared = nil
	})
	r.Pass(time.Hour)
	listed(3)
	r.Set(func() { r.NodeLists = 0 })
	r.Pass(time.Hour)
	linktest.Until(t, "nodes are looked at again", func() (done bool) {
		r.Set(func() { done = r.NodeLists > 1 })
		return done
	})
	r.Set(func() {
		if r.CapacityLists != 3 {
			t.Errorf("capacity was listed %d times, the last time without any", r.CapacityLists)
		}
	})
	if got := connected(); got["a"] != 1 {
		t.Errorf("connected are %v", got)
	}
}
