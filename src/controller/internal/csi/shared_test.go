package csi_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	pb "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/controller/internal/csi/csitest"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/waittest"
)

// TestANodeWithAnotherFilesystemServesNothing: it remembers that one, and was not told yet.
func TestANodeWithAnotherFilesystemServesNothing(t *testing.T) {
	t.Parallel()
	a := csitest.NewNode("a", 0).Shows("BBBB", csitest.GiB, false)
	b := csitest.NewNode("b", 0).Shows("AAAA", csitest.GiB, false)
	r := csitest.StartKnown(t, a, b)
	r.CreateShared(t, "pvc-9", "a")
	for _, id := range []string{"pvc-1", "pvc-2", "pvc-3", "pvc-4"} {
		r.Set(func() { r.PVs = append(r.PVs, nodeapi.PersistentVolume{Name: id, Handle: id, Pool: "local"}) })
		csitest.WantCode(t, r.Remove(t, id), codes.OK, "")
	}
	if got := a.Asked(); got != "" {
		t.Errorf("the node with another filesystem was asked %q", got)
	}
}

// TestNodesWithoutRoomInASharedPool: one that is not selected, or cannot write, makes no volumes and speaks for nobody.
func TestNodesWithoutRoomInASharedPool(t *testing.T) {
	t.Parallel()
	a, b := csitest.NewNode("a", 0).Shows("AAAA", 0, false), csitest.NewNode("b", 0).Shows("AAAA", csitest.GiB, false)
	r := csitest.StartKnown(t, a, b)
	for _, id := range []string{"pvc-1", "pvc-2", "pvc-3", "pvc-4"} {
		r.CreateShared(t, id)
	}
	if got := a.Asked(); got != "" {
		t.Errorf("the node without room was asked %q", got)
	}
	if got, err := r.Capacity(t, "b"); err != nil || got != csitest.GiB {
		t.Errorf("capacity of the selected node: %d, %v", got, err)
	}
	b.Shows("AAAA", 0, false) // full
	r.Set(func() { r.PVs = []nodeapi.PersistentVolume{{Name: "pvc-1", Handle: "pvc-1", Pool: "local"}} })
	csitest.WantCode(t, r.Remove(t, "pvc-1"), codes.OK, "")
}

// TestAPoolThatNobodyKnows: the values name it no more, and no node that is there ever had it. A node is asked.
func TestAPoolThatNobodyKnows(t *testing.T) {
	t.Parallel()
	a, b := csitest.NewNode("a", csitest.GiB), csitest.NewNode("b", csitest.GiB)
	a.Answers(func(context.Context, string) error {
		return status.Error(codes.Unavailable, "pool nfs is not configured")
	})
	r := csitest.Start(t, a, b)
	r.Set(func() {
		r.PVs = []nodeapi.PersistentVolume{
			{Name: "pvc-1", Handle: "pvc-1", Pool: "nfs"}, {Name: "pvc-2", Handle: "pvc-2", Pool: "local"},
		}
	})
	csitest.WantCode(t, r.Remove(t, "pvc-1"), codes.Unavailable, "node a: pool nfs is not configured")
	a.Show(nodeapi.PoolStatus{Name: "local", State: "absent"})
	waittest.Until(t, "the node that has the pool is asked", func() bool { return r.Remove(t, "pvc-2") == nil })
}

// TestSharedVolumes: any node that has the pool serves a call, the preferred one if it has, and the answer names none.
func TestSharedVolumes(t *testing.T) {
	t.Parallel()
	a := csitest.NewNode("a", 0).Shows("", 0, false)
	b := csitest.NewNode("b", 0).Shows("AAAA", 2*csitest.GiB, false)
	c := csitest.NewNode("c", 0).Shows("AAAA", csitest.GiB, false)
	r := csitest.StartKnown(t, a, b, c)
	r.CreateShared(t, "pvc-1", "c")
	if got := c.Asked(); got != "create pvc-1" {
		t.Errorf("the pod's node was asked %q", got)
	}
	r.CreateShared(t, "pvc-2", "a")
	r.CreateShared(t, "pvc-2", "a")
	if got := []string{a.Asked(), b.Asked(), c.Asked()}; !slices.Contains(got, "create pvc-2, create pvc-2") {
		t.Errorf("a repeated request came to %q", got)
	}
	r.Set(func() {
		r.PVs = []nodeapi.PersistentVolume{{Name: "pvc-1", Handle: "pvc-1", Pool: "local"}}
	})
	csitest.WantCode(t, r.Expand(t, "pvc-1"), codes.OK, "")
	c.Remove("pvc-1") // what b deletes is gone on c
	csitest.WantCode(t, r.Remove(t, "pvc-1"), codes.OK, "")
	if got := a.Asked(); got != "" {
		t.Errorf("the node without the pool was asked %q", got)
	}
	for _, name := range []string{"b", "c"} {
		if got, err := r.Capacity(t, name); err != nil || got != csitest.GiB {
			t.Errorf("capacity of %s: %d, %v; want the least that a node says", name, got, err)
		}
	}
	if got, err := r.Capacity(t, "a"); err != nil || got != 0 {
		t.Errorf("capacity of a node without the pool: %d, %v", got, err)
	}
	for _, n := range []*csitest.Node{b, c} {
		n.Search = nil
		n.Put(nodeapi.VolumeStatus{ID: "pvc-9", Pool: "local"})
		n.Asked()
	}
	remove := func(context.Context, string) error { b.Remove("pvc-9"); c.Remove("pvc-9"); return nil }
	b.Answers(remove)
	c.Answers(remove)
	csitest.WantCode(t, r.Remove(t, "pvc-9"), codes.OK, "") // no PersistentVolume, and both have it
	if b.Asked()+c.Asked() != "delete pvc-9" {
		t.Error("not one node was asked to delete the volume that both have")
	}
	b.Shows("", 0, false)
	c.Shows("", 0, false)
	waittest.Until(t, "no node has the pool", func() bool {
		_, err := r.CreateVolume(t.Context(), &pb.CreateVolumeRequest{Name: "pvc-3"})
		return err != nil
	})
	_, err := r.CreateVolume(t.Context(), &pb.CreateVolumeRequest{Name: "pvc-3"})
	csitest.WantCode(t, err, codes.Unavailable, "pool local is present on no node")
	csitest.WantCode(t, r.Remove(t, "pvc-1"), codes.Unavailable, "pool local is present on no node")
}

// left is a pool that is not configured, and served by a node.
func left(name, id string, shared bool) nodeapi.PoolStatus {
	return nodeapi.PoolStatus{
		Name: name, ID: id, State: nodeapi.StateNotConfigured, Shared: shared, Volumes: 1, Growable: csitest.GiB,
	}
}

// TestASharedPoolThatLeftTheConfiguration: its volumes are found on any node, with what was learned while it had it.
func TestASharedPoolThatLeftTheConfiguration(t *testing.T) {
	t.Parallel()
	local := func() nodeapi.PoolStatus {
		return nodeapi.PoolStatus{
			Name: "local", Growable: csitest.GiB, Allocatable: csitest.GiB,
			State: nodeapi.StatePresent,
		}
	}
	a, b := csitest.NewNode("a", csitest.GiB), csitest.NewNode("b", csitest.GiB)
	for _, n := range []*csitest.Node{a, b} {
		n.Show(local(), left("nfs", "AAAA", true))
		n.Put(nodeapi.VolumeStatus{ID: "pvc-1", Pool: "nfs", Created: time.Unix(1, 0)})
		n.Put(nodeapi.VolumeStatus{ID: "pvc-2", Pool: "nfs", Created: time.Unix(1, 0)})
	}
	r := csitest.Start(t, a, b)
	r.Set(func() {
		r.IDs = map[string]string{"nfs": "AAAA"}
		r.PVs = []nodeapi.PersistentVolume{{Name: "pvc-1", Handle: "pvc-1", Pool: "nfs", Bytes: csitest.GiB}}
	})
	r.Look(t)
	waittest.Until(t, "the nodes are told which filesystem it is", func() bool {
		return a.ToldOfLocal().GetId() == "AAAA" && b.ToldOfLocal().GetOwner() == csitest.OurCluster &&
			!b.ToldOfLocal().GetMake()
	})
	csitest.WantCode(t, r.Expand(t, "pvc-1"), codes.OK, "")
	if asked := a.Asked() + b.Asked(); asked != "expand pvc-1" {
		t.Errorf("asked were %q", asked)
	}
	all, err := r.Inventory.Volumes(t.Context())
	if err != nil || len(all) != 2 || all[0].Pool != "nfs" {
		t.Errorf("shown are %+v, %v", all, err)
	}
	nodes := r.Inventory.Nodes()
	if len(nodes) != 2 || nodes[0].Pools[1].State != nodeapi.StateNotConfigured || nodes[0].Pools[1].Volumes != 1 {
		t.Errorf("%+v", nodes)
	}
	for _, n := range []*csitest.Node{a, b} { // one filesystem: who deletes there takes it from both
		n.Answers(func(_ context.Context, call string) error {
			if id, deletes := strings.CutPrefix(call, "delete "); deletes {
				a.Remove(id)
				b.Remove(id)
			}
			return nil
		})
	}
	csitest.WantCode(t, r.Remove(t, "pvc-1"), codes.OK, "")
	csitest.WantCode(t, r.Remove(t, "pvc-2"), codes.OK, "") // no PersistentVolume, and both have it
	if asked := a.Asked() + b.Asked(); asked != "delete pvc-1delete pvc-2" && asked != "delete pvc-1, delete pvc-2" {
		t.Errorf("asked were %q", asked)
	}
}

// TestANodesPoolThatLeftTheConfiguration: one node cannot make it a shared one by its word.
func TestANodesPoolThatLeftTheConfiguration(t *testing.T) {
	t.Parallel()
	a, b := csitest.NewNode("a", csitest.GiB), csitest.NewNode("b", csitest.GiB)
	a.Show(left("old", "AAAA", false))
	b.Show(left("old", "BBBB", true))
	r := csitest.Start(t, a, b)
	r.Set(func() {
		r.PVs = []nodeapi.PersistentVolume{csitest.Named("pvc-1", "a"), csitest.Named("pvc-2", "a")}
		r.PVs[0].Pool, r.PVs[1].Pool = "old", ""
	})
	r.Look(t)
	a.Put(nodeapi.VolumeStatus{ID: "pvc-1", Pool: "old", Created: time.Unix(1, 0)})
	waittest.Until(t, "it is seen", func() bool {
		all, err := r.Inventory.Volumes(t.Context())
		return err == nil && len(all) == 2 && all[0].ID == "pvc-1" && all[0].State == ""
	})
	csitest.WantCode(t, r.Remove(t, "pvc-1"), codes.OK, "")
	csitest.WantCode(t, r.Remove(t, "pvc-2"), codes.OK, "")
	if a.Asked() != "delete pvc-1, delete pvc-2" || b.Asked() != "" {
		t.Error("another node than the PersistentVolume's was asked")
	}
}

// TestADeleteOfASharedVolumeIsConfirmed: one node's word is not enough where another could see the volume.
func TestADeleteOfASharedVolumeIsConfirmed(t *testing.T) {
	t.Parallel()
	a := csitest.NewNode("a", 0).Shows("AAAA", csitest.GiB, false)
	b := csitest.NewNode("b", 0).Shows("AAAA", csitest.GiB, false)
	r := csitest.StartKnown(t, a, b)
	b.Put(nodeapi.VolumeStatus{ID: "pvc-1", Pool: "local"})
	r.Set(func() {
		r.PVs = []nodeapi.PersistentVolume{{Name: "pvc-1", Handle: "pvc-1", Pool: "local", Nodes: []string{"a"}}}
	})
	csitest.WantCode(t, r.Remove(t, "pvc-1"), codes.Unavailable,
		"node a has deleted volume pvc-1 of pool local, and node b still has it")
	b.Absent.Store("pool", true)
	csitest.WantCode(t, r.Remove(t, "pvc-1"), codes.Unavailable,
		"no other node could confirm it: b (pool local is absent)")
	b.Absent.Delete("pool")
	b.Remove("pvc-1")
	csitest.WantCode(t, r.Remove(t, "pvc-1"), codes.OK, "")
	if asked := a.Asked(); asked != "delete pvc-1, delete pvc-1, delete pvc-1" {
		t.Errorf("node a was asked for: %s", asked)
	}
	b.Shows("", 0, false)
	waittest.Until(t, "the one that is left is believed", func() bool { return r.Remove(t, "pvc-1") == nil })
}
