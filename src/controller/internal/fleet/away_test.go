package fleet_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/controller/internal/csi/csitest"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/controller/internal/fleet"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/controller/internal/fleet/fleettest"
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

// TestForgottenNode: a node whose Node object was deleted, and with it its pod, is neither connected nor remembered.
func TestForgottenNode(t *testing.T) {
	t.Parallel()
	var refused atomic.Bool
	var passed atomic.Int64
	hub := fleettest.NewHub(t, local, func(c *fleet.Config) {
		c.Now = func() time.Time { return time.Now().Add(time.Duration(passed.Load())) }
		c.Review = func(ctx context.Context, token string) (string, error) {
			if refused.Load() {
				return "", errors.New("the pod is gone")
			}
			return fleettest.Review(ctx, token)
		}
	})
	hub.Start(t)
	hub.Connect(t, &linktest.Node{Name: "a"})
	refused.Store(true)
	hub.Forget("a")
	waittest.Until(t, "it is not connected", func() bool { return hub.Get("a") == nil })
	passed.Store(int64(10 * time.Minute))
	hub.Forget("b")
	if names := hub.Remembered(); !slices.Equal(names, []string{"b"}) {
		t.Errorf("remembered are %v", names)
	}
}
