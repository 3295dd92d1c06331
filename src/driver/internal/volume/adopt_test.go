package volume_test

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/disk"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/quota"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/store"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/volume"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
)

func silent() error { return fmt.Errorf("%w: connection refused", nodeapi.ErrClusterUnknown) }

// withForeign is a pool in use with directories that another driver made.
func withForeign(t *testing.T, ids ...string) *node {
	t.Helper()
	d := newDisk()
	warm(t, d)
	for _, id := range ids {
		d.AddFile(poolPath+"/csi/"+id+"/precious", []byte("kept"))
	}
	return warm(t, d)
}

func TestAdoption(t *testing.T) {
	d := newDisk()
	d.AddFile(poolPath+"/csi/pvc-1/precious", []byte("kept"))
	d.AddFile(poolPath+"/csi/snapshots/x", []byte("not ours"))
	c := naming("pvc-1")
	c.pvs[0].OnDelete, c.pvs[0].Claim = string(store.Retain), nodeapi.Claim{Namespace: "ns", Name: "claim"}
	n := start(t, d, withCluster(c))
	must(t, n.Publish(t.Context(), publish("pvc-1", target)), n.AdoptUntracked(t.Context()))
	v, _, err := n.Get(t.Context(), "pvc-1")
	if err != nil || !v.Adopted || v.QuotaID != 0 || v.Enforcement != quota.None || v.Bytes != mebibyte ||
		v.OnDelete != store.Retain || v.Claim.Name != "claim" {
		t.Errorf("adopted volume %+v, %v", v, err)
	}
	if v, err := n.Expand(t.Context(), "pvc-1", 2*mebibyte, 0); err != nil || v.Bytes != 2*mebibyte {
		t.Errorf("expand: %+v, %v", v, err)
	}
	wants(t, n.Enforce(t.Context(), "pvc-1", nil, func(int64) {}), volume.ErrUnsupported, "adopted", "copy its data")
	must(t, n.Unpublish(t.Context(), "pvc-1", target), n.Delete(t.Context(), "pvc-1"))
	if _, places := n.find(t, "pvc-1"); len(places) != 1 || !strings.HasPrefix(places[0], disk.TrashDir) {
		t.Errorf("data is at %v", places)
	}
	wants(t, n.Delete(t.Context(), "snapshots"), nodeapi.ErrInvalidID)
	if got := n.ls(t, "."); !slices.Equal(got, []string{disk.MetaDir, "snapshots"}) {
		t.Errorf("csi/ has %v", got)
	}
}

// TestAdoptionAtEachCall for an id without a record, of somebody who says nothing of the PersistentVolume.
func TestAdoptionAtEachCall(t *testing.T) {
	for name, call := range map[string]func(ctx context.Context, n *node) error{
		"delete": func(ctx context.Context, n *node) error { return n.Delete(ctx, "pvc-1") },
		"expand": func(ctx context.Context, n *node) error {
			_, err := n.Expand(ctx, "pvc-1", 2*mebibyte, 0)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			n := withForeign(t, "pvc-1")
			c := naming("pvc-1")
			n.Cluster = c
			c.silence(silent()) // without the API nobody knows whose directory it is
			wants(t, call(t.Context(), n), nodeapi.ErrClusterUnknown, "pvc-1")
			n.kept(t, "pvc-1", "the API is silent")
			c.silence(nil)
			must(t, call(t.Context(), n))
			n.consistent(t, "the API is back")
			if len(n.set.Untracked()) > 0 {
				t.Errorf("untracked: %v", n.set.Untracked())
			}
		})
	}
}

// TestOtherNodesVolumeIsNotAdopted, and its delete leaves it alone.
func TestOtherNodesVolumeIsNotAdopted(t *testing.T) {
	n := withForeign(t, "pvc-1")
	c := naming("pvc-1")
	c.pvs[0].Here, c.pvs[0].Nodes = false, []string{"node-b"}
	n.Cluster = c
	must(t, n.AdoptUntracked(t.Context()))
	must(t, n.Delete(t.Context(), "pvc-1"))
	n.kept(t, "pvc-1", "deleted")
	if len(n.records(t)) > 0 {
		t.Errorf("records %v", n.records(t))
	}
}

func TestAdoptUntracked(t *testing.T) {
	n := withForeign(t, "pvc-1", "pvc-2", "pvc-3", "pvc-4")
	c := naming("pvc-1", "pvc-2", "pvc-3", "pvc-9")
	c.pvs[1].Nodes, c.pvs[1].Here = nil, false // no affinity: every node's
	c.pvs[2].Pool = "other"                    // which is none of this node's
	n.Cluster = c
	c.silence(silent())
	wants(t, n.AdoptUntracked(t.Context()), nodeapi.ErrClusterUnknown)
	c.silence(nil)
	must(t, n.AdoptUntracked(t.Context()), n.AdoptUntracked(t.Context()))
	for id, want := range map[string]bool{"pvc-1": true, "pvc-2": true, "pvc-4": false, "pvc-9": false} {
		if _, ok := n.records(t)[id]; ok != want {
			t.Errorf("%s is adopted: %v, want %v", id, ok, want)
		}
		if untracked := slices.Contains(n.set.Untracked()["local"], id); untracked == want && id != "pvc-9" {
			t.Errorf("%s is untracked: %v", id, untracked)
		}
	}
}

// TestAdoptByHand makes the record that an admin wants a PersistentVolume for, and changes nothing else.
func TestAdoptByHand(t *testing.T) {
	n := withForeign(t, "pvc-1")
	c := naming("pvc-2")
	n.Cluster = c
	mustCreate(t, n, "pvc-3")
	before := n.records(t)["pvc-3"]
	for name, test := range map[string]struct {
		id       string
		sentinel error
		parts    []string
	}{
		"a PersistentVolume names it": {"pvc-2", nodeapi.ErrNamed, []string{"pvc-2", "Retain"}},
		"unknown":                     {"pvc-9", store.ErrNotFound, []string{"pvc-9"}},
		"no id":                       {"../x", nodeapi.ErrInvalidID, nil},
		"no size":                     {"pvc-1", volume.ErrInvalid, []string{"--size", "csi/pvc-1"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := n.Adopt(t.Context(), test.id, 0)
			wants(t, err, test.sentinel, test.parts...)
		})
	}
	c.silence(silent())
	_, err := n.Adopt(t.Context(), "pvc-1", mebibyte)
	wants(t, err, nodeapi.ErrClusterUnknown, "pvc-1")
	c.silence(nil)
	_, err = n.Adopt(t.Context(), "pvc-1", math.MaxInt64)
	wants(t, err, volume.ErrOutOfRange, "--size", "more than any filesystem has")
	r, err := n.Adopt(t.Context(), "pvc-1", mebibyte-1)
	if err != nil || r.ID != "pvc-1" || r.Bytes != mebibyte || !r.Adopted || r.Pool != "local" {
		t.Errorf("%+v, %v", r, err)
	}
	if again, err := n.Adopt(t.Context(), "pvc-1", 5*mebibyte); err != nil || again.Bytes != mebibyte {
		t.Errorf("again, with another size: %+v, %v", again, err)
	}
	if r, err := n.Adopt(t.Context(), "pvc-3", 0); err != nil || r.Bytes != mebibyte || r.Adopted {
		t.Errorf("one with a record: %+v, %v", r, err)
	}
	if after := n.records(t)["pvc-3"]; after.Created != before.Created || after.Adopted {
		t.Errorf("the record was changed: %+v", after)
	}
	n.consistent(t, "adopted")
}

// TestWhatAllNodesHave of a shared pool is no other node's, whatever a PersistentVolume says.
func TestWhatAllNodesHave(t *testing.T) {
	d := network()
	a, b := member(t, d, "a", nil), member(t, d, "b", nil)
	must(t, openPool(t.Context(), a), openPool(t.Context(), b))
	mustCreate(t, a, "pvc-1")
	b.cluster.pvs = []nodeapi.PersistentVolume{
		{Name: "pvc-1", Handle: "pvc-1", Pool: "local", Nodes: []string{"a"}},
		{Name: "pvc-2", Handle: "pvc-2", Pool: "local", Nodes: []string{"a"}},
	}
	wants(t, b.Discard(t.Context(), "pvc-1", "a", 0), nodeapi.ErrNamed, "on all nodes")
	d.AddFile(poolPath+"/csi/pvc-2/precious", []byte("kept"))
	must(t, b.Delete(t.Context(), "pvc-2"))
	if there := b.ls(t, "csi"); slices.Contains(there, "pvc-2") {
		t.Errorf("deleted, says the node, and there is %q", there)
	}
}

// TestDiscard moves an orphan into the trash, and gives its promise back.
func TestDiscard(t *testing.T) {
	n := warm(t, newDisk())
	c := naming("pvc-1", "pvc-2")
	c.pvs[1].Here, c.pvs[1].Nodes = false, []string{"node-b"}
	for i := range 3 {
		mustCreate(t, n, fmt.Sprintf("pvc-%d", i+1))
	}
	n.Cluster = c
	wants(t, n.Discard(t.Context(), "pvc-1", "", 0), nodeapi.ErrNamed, "pvc-1", "here")
	wants(t, n.Discard(t.Context(), "pvc-1", "here", 0), nodeapi.ErrNamed, "pvc-1")
	wants(t, n.Discard(t.Context(), "pvc-2", "", 0), nodeapi.ErrNamed, "node-b")
	wants(t, n.Discard(t.Context(), "pvc-2", "node-c", 0), nodeapi.ErrNamed, "node-b")
	wants(t, n.Discard(t.Context(), "pvc-9", "", 0), store.ErrNotFound, "pvc-9")
	wants(t, n.Discard(t.Context(), "../x", "", 0), nodeapi.ErrInvalidID)
	must(t, n.Publish(t.Context(), publish("pvc-3", target)))
	wants(t, n.Discard(t.Context(), "pvc-3", "", 0), volume.ErrPublished, target)
	must(t, n.Unpublish(t.Context(), "pvc-3", target))
	c.silence(silent())
	wants(t, n.Discard(t.Context(), "pvc-3", "", 0), nodeapi.ErrClusterUnknown, "pvc-3")
	c.silence(nil)
	c.others = map[string]string{"pvc-3": "pv-of-theirs"}
	wants(t, n.Discard(t.Context(), "pvc-3", "", 0), nodeapi.ErrNamed, "pv-of-theirs, of another driver")
	_, err := n.Adopt(t.Context(), "pvc-3", 0)
	wants(t, err, nodeapi.ErrNamed, "pv-of-theirs, of another driver")
	c.others = nil
	must(t, n.Discard(t.Context(), "pvc-3", "", 0), n.Discard(t.Context(), "pvc-2", "node-b", 0))
	n.consistent(t, "discarded")
	if s := n.status(); s.Volumes != 1 || s.Promised != mebibyte {
		t.Errorf("%+v", s)
	}
}
