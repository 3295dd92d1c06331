package sharedpools_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/controller/internal/csi/csitest"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/controller/internal/fleet/fleettest"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/controller/internal/sharedpools"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/link/linktest"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi/wire"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/poolspec"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/waittest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestOneNodeTakesASharedPoolIntoUseAndAllFollow(t *testing.T) {
	t.Parallel()
	a := csitest.NewNode("a", 0).Shows("", 0, false)
	b := csitest.NewNode("b", 0).Shows("", 0, true)
	c := csitest.NewNode("c", 0).Shows("", 0, true)
	r := csitest.StartShared(t, a, b, c)
	r.Look(t)
	waittest.Until(t, "node b takes the pool into use", func() bool { return b.ToldOfLocal().GetMake() })
	if a.ToldOfLocal().GetMake() || c.ToldOfLocal().GetMake() {
		t.Error("several nodes are to take the pool into use")
	}
	b.Shows("AAAA", csitest.GiB, false)
	for _, n := range []*csitest.Node{a, b, c} {
		waittest.Until(t, "all know the id", func() bool {
			return n.ToldOfLocal().GetId() == "AAAA" && !n.ToldOfLocal().GetMake()
		})
	}
	if id := r.RememberedID(); id != "AAAA" {
		t.Errorf("remembered is %q", id)
	}
}

func TestTheFirstIdOfASharedPoolStays(t *testing.T) {
	t.Parallel()
	a, b := csitest.NewNode("a", 0).Shows("BBBB", csitest.GiB, false), csitest.NewNode("b", 0).Shows("", 0, true)
	r := csitest.StartShared(t, a, b)
	r.Set(func() { r.IDs = map[string]string{"local": "AAAA"} })
	r.Look(t)
	for _, n := range []*csitest.Node{a, b} {
		waittest.Until(t, "they are told the old id", func() bool { return n.ToldOfLocal().GetId() == "AAAA" })
		if n.ToldOfLocal().GetMake() {
			t.Error("a node is to take the pool into use that others have")
		}
	}
	if id := r.RememberedID(); id != "AAAA" {
		t.Errorf("remembered is %q", id)
	}
}

// TestAnotherControllerHasSaidOtherwise: who waits is told again, and nobody else.
func TestAnotherControllerHasSaidOtherwise(t *testing.T) {
	t.Parallel()
	a, b := csitest.NewNode("a", 0).Shows("AAAA", csitest.GiB, false), csitest.NewNode("b", 0).Shows("", 0, true)
	r := csitest.StartShared(t, a, b)
	r.Set(func() { r.IDs = map[string]string{"local": "AAAA"} })
	r.Look(t)
	otherwise := []*wire.SharedPool{{Name: "local"}}
	told := func(n *csitest.Node) {
		t.Helper()
		waittest.Until(t, "node "+n.Name+" is told", func() bool { return n.ToldOfLocal().GetId() == "AAAA" })
	}
	told(a)
	told(b)
	a.Share(otherwise)
	b.Share(otherwise)
	told(b)
	b.Show(nodeapi.PoolStatus{
		Name: "local", ID: "AAAA", State: "present", Shared: true, Reason: nodeapi.ReasonNoNewVolumes,
	})
	waittest.Until(t, "it is seen", func() bool { return r.Hub.Get("b").Pool("local").ID != "" })
	b.Share(otherwise)
	told(b)
	if id := a.ToldOfLocal().GetId(); id != "" {
		t.Errorf("node a, which does not wait, was told again: %s", id)
	}
}

func TestAnotherControllerWasFaster(t *testing.T) {
	t.Parallel()
	a := csitest.NewNode("a", 0).Shows("BBBB", csitest.GiB, false)
	r := csitest.StartShared(t, a)
	r.Set(func() { r.IDs, r.Silent = map[string]string{"local": "AAAA"}, true })
	r.Look(t)
	waittest.Until(t, "the node connects", func() bool { return r.Hub.Get("a") != nil })
	if got := a.ToldOfLocal().GetId(); got != "" {
		t.Errorf("told %q while nothing is known", got)
	}
	r.Set(func() { r.Silent = false })
	waittest.Until(t, "it is told what is remembered", func() bool { return a.ToldOfLocal().GetId() == "AAAA" })
}

func TestWhatGoneNodesLeftIsForOneNode(t *testing.T) {
	t.Parallel()
	a := csitest.NewNode("a", 0).Shows("AAAA", csitest.GiB, false, "b", "c", "d")
	b := csitest.NewNode("b", 0).Shows("AAAA", csitest.GiB, false, "a", "c", "d")
	r := csitest.StartShared(t, a, b)
	r.Set(func() { r.Gone["c"] = r.Clock.Add(-time.Hour); r.Gone["d"] = r.Clock.Add(-time.Minute) })
	r.Look(t)
	waittest.Until(t, "node a is to clear what c left", func() bool {
		return slices.Equal(a.ToldOfLocal().GetGone(), []string{"c"})
	})
	if gone := b.ToldOfLocal().GetGone(); len(gone) > 0 {
		t.Errorf("node b is to clear %v", gone)
	}
	r.Pass(10 * time.Minute) // nobody remembers any more that it was there
	waittest.Until(t, "and what d left", func() bool {
		return slices.Equal(a.ToldOfLocal().GetGone(), []string{"c", "d"})
	})
}

// TestARenamedSharedPool: its id is still known by the name that it had.
func TestARenamedSharedPool(t *testing.T) {
	t.Parallel()
	a := csitest.NewNode("a", 0).Shows("", 0, true)
	r := csitest.StartShared(t, a)
	r.Set(func() { r.IDs = map[string]string{"old": "AAAA"} })
	r.Look(t)
	waittest.Until(t, "the node takes the pool into use", func() bool { return a.ToldOfLocal().GetMake() })
	a.Shows("AAAA", csitest.GiB, false)
	waittest.Until(t, "the id is confirmed", func() bool { return a.ToldOfLocal().GetId() == "AAAA" })
}

// TestNodesAreToldWhoseASharedPoolIs: with everything else, and once more when that is known late.
func TestNodesAreToldWhoseASharedPoolIs(t *testing.T) {
	t.Parallel()
	a := csitest.NewNode("a", 0).Shows("AAAA", csitest.GiB, false)
	csitest.StartKnown(t, a)
	if got := a.ToldOfLocal().GetOwner(); got != csitest.OurCluster {
		t.Errorf("told %q", got)
	}
}

// TestOneFilesystemAsThePoolOfTwoNodes is reported once, shown, counted and told to both, until it ends.
func TestOneFilesystemAsThePoolOfTwoNodes(t *testing.T) {
	t.Parallel()
	show := func(n *csitest.Node, id string) {
		n.Show(nodeapi.PoolStatus{
			Name: "local", ID: id, Growable: csitest.GiB, Allocatable: csitest.GiB, State: nodeapi.StatePresent,
		})
	}
	a, b, c := csitest.NewNode("a", csitest.GiB), csitest.NewNode("b", csitest.GiB), csitest.NewNode("c", csitest.GiB)
	show(a, "AAAA")
	show(b, "AAAA")
	show(c, "CCCC")
	r := csitest.Start(t, a, b, c)
	r.Look(t)
	waittest.Until(t, "both are told", func() bool {
		return slices.Equal(a.ToldOfLocal().GetTwins(), []string{"b"}) &&
			slices.Equal(b.ToldOfLocal().GetTwins(), []string{"a"})
	})
	if told := r.Told("PoolOnSeveralNodes"); len(told) != 2 ||
		!strings.Contains(told[0], "one filesystem on the nodes a, b") {
		t.Errorf("events %q", told)
	}
	metric := func(a, b float64) {
		want := map[string]float64{"a local": a, "b local": b, "c local": 0}
		if got := linktest.Samples(t, r.Hub.Metrics, "hpp_controller_pool_twins"); !maps.Equal(got, want) {
			t.Errorf("metric %v, want %v", got, want)
		}
	}
	metric(1, 1)
	if nodes := r.Inventory.Nodes(); !strings.Contains(nodes[1].Pools[0].Message, "a, b") ||
		nodes[2].Pools[0].Message != "" {
		t.Errorf("status %+v", nodes)
	}
	show(b, "BBBB")
	waittest.Until(t, "they are told that it is over", func() bool {
		return len(a.Told()) == 0 && len(b.Told()) == 0
	})
	if told := r.Told("PoolOnSeveralNodes"); len(told) > 0 {
		t.Errorf("events %q", told)
	}
	metric(0, 0)
}

// TestOneNodeDoesNotDecideWhatAPoolIs: the first id is that of the node that was to make it, or one that two show, or
// that of a node that has the pool alone.
func TestOneNodeDoesNotDecideWhatAPoolIs(t *testing.T) {
	t.Parallel()
	forger := csitest.NewNode("a", 0).Shows("FFFF", csitest.GiB, false)
	b, c := csitest.NewNode("b", 0).Shows("", 0, true), csitest.NewNode("c", 0).Shows("", 0, true)
	r := csitest.StartShared(t, forger, b, c)
	r.Look(t)
	waittest.Until(t, "node b takes the pool into use", func() bool { return b.ToldOfLocal().GetMake() })
	if id := r.RememberedID(); id != "" {
		t.Errorf("remembered is %q, of a node that was not to make it", id)
	}
	b.Shows("AAAA", csitest.GiB, false)
	waittest.Until(t, "it is remembered", func() bool { return r.RememberedID() == "AAAA" })
}

func TestTwoNodesConfirmWhatAPoolIs(t *testing.T) {
	t.Parallel()
	forger := csitest.NewNode("a", 0).Shows("FFFF", csitest.GiB, false)
	b := csitest.NewNode("b", 0).Shows("AAAA", csitest.GiB, false)
	c := csitest.NewNode("c", 0).Shows("AAAA", csitest.GiB, false)
	r := csitest.StartShared(t, forger, b, c)
	r.Look(t)
	waittest.Until(t, "it is remembered", func() bool { return r.RememberedID() != "" })
	if id := r.RememberedID(); id != "AAAA" {
		t.Errorf("remembered is %q", id)
	}
	alone := csitest.NewNode("a", 0).Shows("BBBB", csitest.GiB, false)
	r = csitest.StartShared(t, alone, csitest.NewNode("b", 0).Shows("", 0, false))
	r.Look(t)
	waittest.Until(t, "who has the pool alone is believed", func() bool { return r.RememberedID() == "BBBB" })
}

// TestGoneNodesAreLookedUpAFewAtATime: they are a node's word.
func TestGoneNodesAreLookedUpAFewAtATime(t *testing.T) {
	t.Parallel()
	var others []string
	for i := range 35 {
		others = append(others, fmt.Sprintf("other-%02d", i))
	}
	a := csitest.NewNode("a", 0).Shows("AAAA", csitest.GiB, false, others...)
	r := csitest.StartShared(t, a)
	r.Set(func() {
		for _, node := range others {
			r.Gone[node] = r.Clock.Add(-time.Hour)
		}
	})
	r.Look(t)
	waittest.Until(t, "all are found to be gone", func() bool {
		return slices.Equal(a.ToldOfLocal().GetGone(), others)
	})
	r.Set(func() {
		if r.GoneAsked != len(others) {
			t.Errorf("the API was asked %d times about %d nodes", r.GoneAsked, len(others))
		}
	})
}

func TestIdentitiesAreNeeded(t *testing.T) {
	t.Parallel()
	pools := []poolspec.Pool{{Name: "local", Scope: poolspec.ScopeShared}}
	if _, err := sharedpools.New(pools, fleettest.NewHub(t, "127.0.0.1:0", nil).Fleet, nil); err == nil {
		t.Error("a pool is shared, and New takes no Identities")
	}
}
