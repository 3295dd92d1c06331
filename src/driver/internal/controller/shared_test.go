package controller_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	pb "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/tunnel/tunneltest"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi/wire"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/poolspec"
)

var errConflict = errors.New("the object has been modified")

// Cluster implements controller.Identities.
func (c *cluster) Cluster(context.Context) (string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return ourCluster, c.err()
}

const ourCluster = "11111111-2222-3333-4444-555555555555"

// Load implements controller.Identities.
func (c *cluster) Load(context.Context) (map[string]string, string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.ids), fmt.Sprint(c.version), c.err()
}

// Store implements controller.Identities.
func (c *cluster) Store(_ context.Context, version string, ids map[string]string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if version != fmt.Sprint(c.version) {
		return errConflict
	}
	c.ids, c.version = ids, c.version+1
	return c.err()
}

// remembered is the id of the pool local.
func (c *cluster) remembered() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ids["local"]
}

// shows is what a node says of the shared pool local.
func (n *node) shows(id string, room int64, waiting bool, rooms ...string) *node {
	state := "absent"
	if id != "" {
		state = "present"
	}
	n.Show(nodeapi.PoolStatus{
		Name: "local", ID: id, State: state, Growable: room, Allocatable: room, Waiting: waiting, NodeDirs: rooms,
	})
	return n
}

// told is what a node was told of the pool local last.
func (n *node) told() *wire.SharedPool {
	if told := n.Told(); len(told) > 0 {
		return told[0]
	}
	return &wire.SharedPool{}
}

func startShared(t *testing.T, nodes ...*node) running {
	t.Helper()
	return startWith(t, poolspec.Pool{Name: "local", Scope: poolspec.ScopeShared}, nodes...)
}

// startKnown has told the nodes that the shared pool is AAAA.
func startKnown(t *testing.T, nodes ...*node) running {
	t.Helper()
	r := startShared(t, nodes...)
	r.set(func() { r.ids = map[string]string{"local": "AAAA"} })
	r.look(t)
	for _, n := range nodes {
		tunneltest.Until(t, "the node is told", func() bool { return n.told().GetId() == "AAAA" })
	}
	return r
}

func TestOneNodeTakesASharedPoolIntoUseAndAllFollow(t *testing.T) {
	t.Parallel()
	a, b, c := newNode("a", 0).shows("", 0, false), newNode("b", 0).shows("", 0, true), newNode("c", 0).shows("", 0, true)
	r := startShared(t, a, b, c)
	r.look(t)
	tunneltest.Until(t, "node b takes the pool into use", func() bool { return b.told().GetMake() })
	if a.told().GetMake() || c.told().GetMake() {
		t.Error("several nodes are to take the pool into use")
	}
	b.shows("AAAA", gib, false)
	for _, n := range []*node{a, b, c} {
		tunneltest.Until(t, "all know the id", func() bool { return n.told().GetId() == "AAAA" && !n.told().GetMake() })
	}
	if id := r.remembered(); id != "AAAA" {
		t.Errorf("remembered is %q", id)
	}
}

func TestTheFirstIdOfASharedPoolStays(t *testing.T) {
	t.Parallel()
	a, b := newNode("a", 0).shows("BBBB", gib, false), newNode("b", 0).shows("", 0, true)
	r := startShared(t, a, b)
	r.set(func() { r.ids = map[string]string{"local": "AAAA"} })
	r.look(t)
	for _, n := range []*node{a, b} {
		tunneltest.Until(t, "they are told the old id", func() bool { return n.told().GetId() == "AAAA" })
		if n.told().GetMake() {
			t.Error("a node is to take the pool into use that others have")
		}
	}
	if id := r.remembered(); id != "AAAA" {
		t.Errorf("remembered is %q", id)
	}
}

func TestAnotherControllerWasFaster(t *testing.T) {
	t.Parallel()
	a := newNode("a", 0).shows("BBBB", gib, false)
	r := startShared(t, a)
	r.set(func() { r.ids, r.silent = map[string]string{"local": "AAAA"}, true })
	r.look(t)
	tunneltest.Until(t, "the node connects", func() bool { return r.hub.Get("a") != nil })
	if got := a.told().GetId(); got != "" {
		t.Errorf("told %q while nothing is known", got)
	}
	r.set(func() { r.silent = false })
	tunneltest.Until(t, "it is told what is remembered", func() bool { return a.told().GetId() == "AAAA" })
}

func TestWhatGoneNodesLeftIsForOneNode(t *testing.T) {
	t.Parallel()
	a := newNode("a", 0).shows("AAAA", gib, false, "b", "c", "d")
	b := newNode("b", 0).shows("AAAA", gib, false, "a", "c", "d")
	r := startShared(t, a, b)
	r.set(func() { r.gone["c"] = r.now.Add(-time.Hour); r.gone["d"] = r.now.Add(-time.Minute) })
	r.look(t)
	tunneltest.Until(t, "node a is to clear what c left", func() bool {
		return slices.Equal(a.told().GetGone(), []string{"c"})
	})
	if gone := b.told().GetGone(); len(gone) > 0 {
		t.Errorf("node b is to clear %v", gone)
	}
	r.pass(10 * time.Minute) // nobody remembers any more that it was there
	tunneltest.Until(t, "and what d left", func() bool { return slices.Equal(a.told().GetGone(), []string{"c", "d"}) })
}

// shared makes a volume of the shared pool, for a pod on one of the nodes.
func (r running) shared(t *testing.T, id string, nodes ...string) {
	t.Helper()
	q := &pb.CreateVolumeRequest{
		Name: id, CapacityRange: &pb.CapacityRange{RequiredBytes: gib},
		Parameters:                map[string]string{nodeapi.KeyClaimNS: "default", nodeapi.KeyClaimName: "claim"},
		AccessibilityRequirements: &pb.TopologyRequirement{},
	}
	for _, n := range nodes {
		q.AccessibilityRequirements.Requisite = append(q.AccessibilityRequirements.Requisite, topology(n))
	}
	answer, err := r.CreateVolume(t.Context(), q)
	if err != nil {
		t.Fatal(err)
	}
	if got := answer.GetVolume().GetAccessibleTopology(); got != nil {
		t.Errorf("the volume is tied to %v", got)
	}
}

// TestANodeWithAnotherFilesystemServesNothing: it remembers that one, and was not told yet.
func TestANodeWithAnotherFilesystemServesNothing(t *testing.T) {
	t.Parallel()
	a, b := newNode("a", 0).shows("BBBB", gib, false), newNode("b", 0).shows("AAAA", gib, false)
	r := startKnown(t, a, b)
	r.shared(t, "pvc-9", "a")
	for _, id := range []string{"pvc-1", "pvc-2", "pvc-3", "pvc-4"} {
		r.set(func() { r.pvs = append(r.pvs, nodeapi.PersistentVolume{Name: id, Handle: id, Pool: "local"}) })
		wantCode(t, r.remove(t, id), codes.OK, "")
	}
	if got := a.asked(); got != "" {
		t.Errorf("the node with another filesystem was asked %q", got)
	}
}

// TestNodesWithoutRoomInASharedPool: one that is not selected, or cannot write, makes no volumes and speaks for nobody.
func TestNodesWithoutRoomInASharedPool(t *testing.T) {
	t.Parallel()
	a, b := newNode("a", 0).shows("AAAA", 0, false), newNode("b", 0).shows("AAAA", gib, false)
	r := startKnown(t, a, b)
	for _, id := range []string{"pvc-1", "pvc-2", "pvc-3", "pvc-4"} {
		r.shared(t, id)
	}
	if got := a.asked(); got != "" {
		t.Errorf("the node without room was asked %q", got)
	}
	if got, err := r.capacity(t, "b"); err != nil || got != gib {
		t.Errorf("capacity of the selected node: %d, %v", got, err)
	}
	b.shows("AAAA", 0, false) // full
	r.set(func() { r.pvs = []nodeapi.PersistentVolume{{Name: "pvc-1", Handle: "pvc-1", Pool: "local"}} })
	wantCode(t, r.remove(t, "pvc-1"), codes.OK, "")
}

// TestARenamedSharedPool: its id is still known by the name that it had.
func TestARenamedSharedPool(t *testing.T) {
	t.Parallel()
	a := newNode("a", 0).shows("", 0, true)
	r := startShared(t, a)
	r.set(func() { r.ids = map[string]string{"old": "AAAA"} })
	r.look(t)
	tunneltest.Until(t, "the node takes the pool into use", func() bool { return a.told().GetMake() })
	a.shows("AAAA", gib, false)
	tunneltest.Until(t, "the id is confirmed", func() bool { return a.told().GetId() == "AAAA" })
}

// TestASharedVolumeIsOnAllNodes: it is no orphan where its PersistentVolume names one of them.
func TestASharedVolumeIsOnAllNodes(t *testing.T) {
	t.Parallel()
	a, b := newNode("a", 0).shows("AAAA", gib, false), newNode("b", 0).shows("AAAA", gib, false)
	for _, n := range []*node{a, b} {
		n.Put(nodeapi.VolumeStatus{ID: "pvc-1", Pool: "local", Created: time.Unix(1, 0)})
	}
	r := startKnown(t, a, b)
	r.set(func() { r.pvs = []nodeapi.PersistentVolume{named("pvc-1", "b")} })
	all, err := r.server.Volumes(t.Context())
	if err != nil || len(all) != 1 || all[0].State != "" {
		t.Errorf("shown are %+v, %v", all, err)
	}
}

// TestAPoolThatNobodyKnows: the values name it no more, and no node that is there ever had it. A node is asked.
func TestAPoolThatNobodyKnows(t *testing.T) {
	t.Parallel()
	a, b := newNode("a", gib), newNode("b", gib)
	a.answers(func(context.Context, string) error {
		return status.Error(codes.Unavailable, "pool nfs is not configured")
	})
	r := start(t, a, b)
	r.set(func() {
		r.pvs = []nodeapi.PersistentVolume{
			{Name: "pvc-1", Handle: "pvc-1", Pool: "nfs"}, {Name: "pvc-2", Handle: "pvc-2", Pool: "local"},
		}
	})
	wantCode(t, r.remove(t, "pvc-1"), codes.Unavailable, "node a: pool nfs is not configured")
	a.Show(nodeapi.PoolStatus{Name: "local", State: "absent"})
	tunneltest.Until(t, "the node that has the pool is asked", func() bool { return r.remove(t, "pvc-2") == nil })
}

// TestSharedVolumes: any node that has the pool serves a call, the preferred one if it has, and the answer names none.
func TestSharedVolumes(t *testing.T) {
	t.Parallel()
	a := newNode("a", 0).shows("", 0, false)
	b, c := newNode("b", 0).shows("AAAA", 2*gib, false), newNode("c", 0).shows("AAAA", gib, false)
	r := startKnown(t, a, b, c)
	r.shared(t, "pvc-1", "c")
	if got := c.asked(); got != "create pvc-1" {
		t.Errorf("the pod's node was asked %q", got)
	}
	r.shared(t, "pvc-2", "a")
	r.shared(t, "pvc-2", "a")
	if got := []string{a.asked(), b.asked(), c.asked()}; !slices.Contains(got, "create pvc-2, create pvc-2") {
		t.Errorf("a repeated request came to %q", got)
	}
	r.set(func() {
		r.pvs = []nodeapi.PersistentVolume{{Name: "pvc-1", Handle: "pvc-1", Pool: "local"}}
	})
	wantCode(t, r.expand(t, "pvc-1"), codes.OK, "")
	c.Remove("pvc-1") // what b deletes is gone on c
	wantCode(t, r.remove(t, "pvc-1"), codes.OK, "")
	if got := a.asked(); got != "" {
		t.Errorf("the node without the pool was asked %q", got)
	}
	for _, name := range []string{"b", "c"} {
		if got, err := r.capacity(t, name); err != nil || got != gib {
			t.Errorf("capacity of %s: %d, %v; want the least that a node says", name, got, err)
		}
	}
	if got, err := r.capacity(t, "a"); err != nil || got != 0 {
		t.Errorf("capacity of a node without the pool: %d, %v", got, err)
	}
	for _, n := range []*node{b, c} {
		n.Search = nil
		n.Put(nodeapi.VolumeStatus{ID: "pvc-9", Pool: "local"})
		n.asked()
	}
	remove := func(context.Context, string) error { b.Remove("pvc-9"); c.Remove("pvc-9"); return nil }
	b.answers(remove)
	c.answers(remove)
	wantCode(t, r.remove(t, "pvc-9"), codes.OK, "") // no PersistentVolume, and both have it
	if b.asked()+c.asked() != "delete pvc-9" {
		t.Error("not one node was asked to delete the volume that both have")
	}
	b.shows("", 0, false)
	c.shows("", 0, false)
	tunneltest.Until(t, "no node has the pool", func() bool {
		_, err := r.CreateVolume(t.Context(), &pb.CreateVolumeRequest{Name: "pvc-3"})
		return err != nil
	})
	_, err := r.CreateVolume(t.Context(), &pb.CreateVolumeRequest{Name: "pvc-3"})
	wantCode(t, err, codes.Unavailable, "pool local is present on no node")
	wantCode(t, r.remove(t, "pvc-1"), codes.Unavailable, "pool local is present on no node")
}

// TestNodesAreToldWhoseASharedPoolIs: with everything else, and once more when that is known late.
func TestNodesAreToldWhoseASharedPoolIs(t *testing.T) {
	t.Parallel()
	a := newNode("a", 0).shows("AAAA", gib, false)
	startKnown(t, a)
	if got := a.told().GetOwner(); got != ourCluster {
		t.Errorf("told %q", got)
	}
}

// left is a pool that is not configured, and served by a node.
func left(name, id string, shared bool) nodeapi.PoolStatus {
	return nodeapi.PoolStatus{
		Name: name, ID: id, State: nodeapi.StateNotConfigured, Shared: shared, Volumes: 1, Growable: gib,
	}
}

// TestASharedPoolThatLeftTheConfiguration: its volumes are found on any node, with what was learned while it had it.
func TestASharedPoolThatLeftTheConfiguration(t *testing.T) {
	t.Parallel()
	local := func() nodeapi.PoolStatus {
		return nodeapi.PoolStatus{Name: "local", Growable: gib, Allocatable: gib, State: nodeapi.StatePresent}
	}
	a, b := newNode("a", gib), newNode("b", gib)
	for _, n := range []*node{a, b} {
		n.Show(local(), left("nfs", "AAAA", true))
		n.Put(nodeapi.VolumeStatus{ID: "pvc-1", Pool: "nfs", Created: time.Unix(1, 0)})
		n.Put(nodeapi.VolumeStatus{ID: "pvc-2", Pool: "nfs", Created: time.Unix(1, 0)})
	}
	r := start(t, a, b)
	r.set(func() {
		r.ids = map[string]string{"nfs": "AAAA"}
		r.pvs = []nodeapi.PersistentVolume{{Name: "pvc-1", Handle: "pvc-1", Pool: "nfs", Bytes: gib}}
	})
	r.look(t)
	tunneltest.Until(t, "the nodes are told which filesystem it is", func() bool {
		return a.told().GetId() == "AAAA" && b.told().GetOwner() == ourCluster && !b.told().GetMake()
	})
	wantCode(t, r.expand(t, "pvc-1"), codes.OK, "")
	if asked := a.asked() + b.asked(); asked != "expand pvc-1" {
		t.Errorf("asked were %q", asked)
	}
	all, err := r.server.Volumes(t.Context())
	if err != nil || len(all) != 2 || all[0].Pool != "nfs" {
		t.Errorf("shown are %+v, %v", all, err)
	}
	nodes := r.server.Nodes()
	if len(nodes) != 2 || nodes[0].Pools[1].State != nodeapi.StateNotConfigured || nodes[0].Pools[1].Volumes != 1 {
		t.Errorf("%+v", nodes)
	}
	for _, n := range []*node{a, b} { // one filesystem: who deletes there takes it from both
		n.answers(func(_ context.Context, call string) error {
			if id, deletes := strings.CutPrefix(call, "delete "); deletes {
				a.Remove(id)
				b.Remove(id)
			}
			return nil
		})
	}
	wantCode(t, r.remove(t, "pvc-1"), codes.OK, "")
	wantCode(t, r.remove(t, "pvc-2"), codes.OK, "") // no PersistentVolume, and both have it
	if asked := a.asked() + b.asked(); asked != "delete pvc-1delete pvc-2" && asked != "delete pvc-1, delete pvc-2" {
		t.Errorf("asked were %q", asked)
	}
}

// TestANodesPoolThatLeftTheConfiguration: one node cannot make it a shared one by its word.
func TestANodesPoolThatLeftTheConfiguration(t *testing.T) {
	t.Parallel()
	a, b := newNode("a", gib), newNode("b", gib)
	a.Show(left("old", "AAAA", false))
	b.Show(left("old", "BBBB", true))
	r := start(t, a, b)
	r.set(func() {
		r.pvs = []nodeapi.PersistentVolume{named("pvc-1", "a"), named("pvc-2", "a")}
		r.pvs[0].Pool, r.pvs[1].Pool = "old", ""
	})
	r.look(t)
	a.Put(nodeapi.VolumeStatus{ID: "pvc-1", Pool: "old", Created: time.Unix(1, 0)})
	tunneltest.Until(t, "it is seen", func() bool {
		all, err := r.server.Volumes(t.Context())
		return err == nil && len(all) == 2 && all[0].ID == "pvc-1" && all[0].State == ""
	})
	wantCode(t, r.remove(t, "pvc-1"), codes.OK, "")
	wantCode(t, r.remove(t, "pvc-2"), codes.OK, "")
	if a.asked() != "delete pvc-1, delete pvc-2" || b.asked() != "" {
		t.Error("another node than the PersistentVolume's was asked")
	}
}

// TestOneFilesystemAsThePoolOfTwoNodes is reported once, shown, counted and told to both, until it ends.
func TestOneFilesystemAsThePoolOfTwoNodes(t *testing.T) {
	t.Parallel()
	show := func(n *node, id string) {
		n.Show(nodeapi.PoolStatus{Name: "local", ID: id, Growable: gib, Allocatable: gib, State: nodeapi.StatePresent})
	}
	a, b, c := newNode("a", gib), newNode("b", gib), newNode("c", gib)
	show(a, "AAAA")
	show(b, "AAAA")
	show(c, "CCCC")
	r := start(t, a, b, c)
	r.look(t)
	tunneltest.Until(t, "both are told", func() bool {
		return slices.Equal(a.told().GetTwins(), []string{"b"}) && slices.Equal(b.told().GetTwins(), []string{"a"})
	})
	if told := r.told("PoolOnSeveralNodes"); len(told) != 2 ||
		!strings.Contains(told[0], "one filesystem on the nodes a, b") {
		t.Errorf("events %q", told)
	}
	metric := func(a, b float64) {
		want := map[string]float64{"a local": a, "b local": b, "c local": 0}
		if got := r.samples(t, "hpp_controller_pool_twins"); !maps.Equal(got, want) {
			t.Errorf("metric %v, want %v", got, want)
		}
	}
	metric(1, 1)
	if nodes := r.server.Nodes(); !strings.Contains(nodes[1].Pools[0].Message, "a, b") || nodes[2].Pools[0].Message != "" {
		t.Errorf("status %+v", nodes)
	}
	show(b, "BBBB")
	tunneltest.Until(t, "they are told that it is over", func() bool { return len(a.Told()) == 0 && len(b.Told()) == 0 })
	if told := r.told("PoolOnSeveralNodes"); len(told) > 0 {
		t.Errorf("events %q", told)
	}
	metric(0, 0)
}

// TestOneNodeDoesNotDecideWhatAPoolIs: the first id is that of the node that was to make it, or one that two show, or
// that of a node that has the pool alone.
func TestOneNodeDoesNotDecideWhatAPoolIs(t *testing.T) {
	t.Parallel()
	forger := newNode("a", 0).shows("FFFF", gib, false)
	b, c := newNode("b", 0).shows("", 0, true), newNode("c", 0).shows("", 0, true)
	r := startShared(t, forger, b, c)
	r.look(t)
	tunneltest.Until(t, "node b takes the pool into use", func() bool { return b.told().GetMake() })
	if id := r.remembered(); id != "" {
		t.Errorf("remembered is %q, of a node that was not to make it", id)
	}
	b.shows("AAAA", gib, false)
	tunneltest.Until(t, "it is remembered", func() bool { return r.remembered() == "AAAA" })
}

func TestTwoNodesConfirmWhatAPoolIs(t *testing.T) {
	t.Parallel()
	forger, b := newNode("a", 0).shows("FFFF", gib, false), newNode("b", 0).shows("AAAA", gib, false)
	c := newNode("c", 0).shows("AAAA", gib, false)
	r := startShared(t, forger, b, c)
	r.look(t)
	tunneltest.Until(t, "it is remembered", func() bool { return r.remembered() != "" })
	if id := r.remembered(); id != "AAAA" {
		t.Errorf("remembered is %q", id)
	}
	alone := newNode("a", 0).shows("BBBB", gib, false)
	r = startShared(t, alone, newNode("b", 0).shows("", 0, false))
	r.look(t)
	tunneltest.Until(t, "who has the pool alone is believed", func() bool { return r.remembered() == "BBBB" })
}

// TestADeleteOfASharedVolumeIsConfirmed: one node's word is not enough where another could see the volume.
func TestADeleteOfASharedVolumeIsConfirmed(t *testing.T) {
	t.Parallel()
	a, b := newNode("a", 0).shows("AAAA", gib, false), newNode("b", 0).shows("AAAA", gib, false)
	r := startKnown(t, a, b)
	b.Put(nodeapi.VolumeStatus{ID: "pvc-1", Pool: "local"})
	r.set(func() {
		r.pvs = []nodeapi.PersistentVolume{{Name: "pvc-1", Handle: "pvc-1", Pool: "local", Nodes: []string{"a"}}}
	})
	wantCode(t, r.remove(t, "pvc-1"), codes.Unavailable,
		"node a has deleted volume pvc-1 of pool local, and node b still has it")
	b.absent.Store("pool", true)
	wantCode(t, r.remove(t, "pvc-1"), codes.Unavailable, "no other node could confirm it: b (pool local is absent)")
	b.absent.Delete("pool")
	b.Remove("pvc-1")
	wantCode(t, r.remove(t, "pvc-1"), codes.OK, "")
	if asked := a.asked(); asked != "delete pvc-1, delete pvc-1, delete pvc-1" {
		t.Errorf("node a was asked for: %s", asked)
	}
	b.shows("", 0, false)
	tunneltest.Until(t, "the one that is left is believed", func() bool { return r.remove(t, "pvc-1") == nil })
}

// TestRoomsAreLookedUpAFewAtATime: they are a node's word.
func TestRoomsAreLookedUpAFewAtATime(t *testing.T) {
	t.Parallel()
	var rooms []string
	for i := range 35 {
		rooms = append(rooms, fmt.Sprintf("room-%02d", i))
	}
	a := newNode("a", 0).shows("AAAA", gib, false, rooms...)
	r := startShared(t, a)
	r.set(func() {
		for _, node := range rooms {
			r.gone[node] = r.now.Add(-time.Hour)
		}
	})
	r.look(t)
	tunneltest.Until(t, "all are found to be gone", func() bool { return slices.Equal(a.told().GetGone(), rooms) })
	r.set(func() {
		if r.goneAsked != len(rooms) {
			t.Errorf("the API was asked %d times about %d nodes", r.goneAsked, len(rooms))
		}
	})
}
