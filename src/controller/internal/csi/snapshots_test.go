package csi_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	pb "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/controller/internal/csi/csitest"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/link/linktest"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/waittest"
)

// TestSnapshot: it is made, listed and deleted on the node of its source, of which Kubernetes says where it is.
func TestSnapshot(t *testing.T) {
	t.Parallel()
	a, b := csitest.NewNode("a", csitest.GiB), csitest.NewNode("b", csitest.GiB)
	r := csitest.Start(t, a, b)
	r.PVs = []nodeapi.PersistentVolume{csitest.Named("v", "b")}
	for _, name := range []string{
		"snapshot-5e8f5a3c-1f6e-4d6b-9d0a-6b9f1f1c2d3e", "a/../\x00", strings.Repeat("é", 64),
	} {
		s, err := r.Snapshot(t, name, "v")
		id := nodeapi.SnapshotID(name, "b")
		if err != nil || s.GetSnapshotId() != id || b.Facts() != "true pv-v [b] true" {
			t.Fatalf("%q: %v, %v; the node was told %q", name, s, err, b.Facts())
		}
		if ids, _, err := r.List(t, &pb.ListSnapshotsRequest{SnapshotId: id}); !slices.Equal(ids, []string{id}) {
			t.Errorf("%q: listed are %q, %v", name, ids, err)
		}
		csitest.WantCode(t, r.RemoveSnapshot(t, id), codes.OK, "")
		if asked := b.Asked(); asked != "snapshot v, list, delete snapshot "+id || len(b.Snapshots()) > 0 {
			t.Errorf("%q: node b was asked for: %s", name, asked)
		}
	}
	if asked := a.Asked(); asked != "" {
		t.Errorf("node a was asked for: %s", asked)
	}
	for _, metric := range []string{"CreateSnapshot", "ListSnapshots", "DeleteSnapshot"} {
		if got := r.Samples(t, "hpp_controller_calls_total")["OK "+metric+" b"]; got != 3 {
			t.Errorf("%s: %v calls are counted", metric, got)
		}
	}
	b.Answers(func(context.Context, string) error { return status.Error(codes.AlreadyExists, "of another volume") })
	_, err := r.Snapshot(t, "1", "v")
	csitest.WantCode(t, err, codes.AlreadyExists, "of another volume")
}

// TestTwoContentsOfOneSnapshot: deleting one would take the other's data.
func TestTwoContentsOfOneSnapshot(t *testing.T) {
	t.Parallel()
	a := csitest.NewNode("a", csitest.GiB)
	r := csitest.Start(t, a)
	id := nodeapi.SnapshotID("1", "a")
	for _, c := range []struct {
		named  []string
		silent bool
		code   codes.Code
		text   string
		asked  string
	}{
		{[]string{"cut", "restored"}, false, codes.FailedPrecondition, "VolumeSnapshotContents cut, restored all", ""},
		{[]string{"cut"}, true, codes.Unavailable, "see which VolumeSnapshotContents name " + id, ""},
		{[]string{"cut"}, false, codes.OK, "", "delete snapshot " + id},
	} {
		r.Set(func() { r.Contents, r.Silent = map[string][]string{id: c.named, "other": {"x", "y"}}, c.silent })
		csitest.WantCode(t, r.RemoveSnapshot(t, id), c.code, c.text)
		if asked := a.Asked(); asked != c.asked {
			t.Errorf("%v: node a was asked for: %s", c.named, asked)
		}
	}
}

// TestSnapshotRefused: what can be no snapshot is refused with a code that does not keep a VolumeSnapshot for ever.
func TestSnapshotRefused(t *testing.T) {
	t.Parallel()
	a := csitest.NewNode("a", csitest.GiB)
	r := csitest.Start(t, a)
	r.PVs = []nodeapi.PersistentVolume{csitest.Named("v", "a"), csitest.Named("on-z", "z"), csitest.Named("on-y", "y")}
	r.Gone["z"] = r.Clock
	for _, c := range []struct {
		name, source string
		passed       time.Duration
		silent       bool
		code         codes.Code
		text         string
	}{
		{name: "", source: "v", code: codes.InvalidArgument, text: "name: want 1 to 128 bytes, has 0"},
		{name: strings.Repeat("é", 65), source: "v", code: codes.InvalidArgument, text: "has 130"},
		{name: "1", source: "", code: codes.InvalidArgument, text: "source_volume_id: missing"},
		{name: "1", source: "../v", code: codes.InvalidArgument, text: "source_volume_id: invalid volume id"},
		{name: "1", source: "none", code: codes.NotFound, text: "no node has volume none"},
		{name: "1", source: "none", silent: true, code: codes.Unavailable, text: "connection refused"},
		{name: "1", source: "on-y", code: codes.Unavailable, text: "node y is not connected"},
		{
			name: "1", source: "on-y", passed: time.Minute, code: codes.FailedPrecondition,
			text: "see docs/how-to/lose-a-node.md; the VolumeSnapshot can be deleted",
		},
		{name: "1", source: "on-z", code: codes.FailedPrecondition, text: "node z is not connected"},
		{
			name: "1", source: "on-z", passed: 9 * time.Minute, code: codes.NotFound,
			text: "node z is gone, and volume on-z with it",
		},
	} {
		r.Pass(c.passed)
		r.Set(func() { r.Silent = c.silent })
		if c.source == "on-z" && c.passed == 0 { // it has been away for as long as the controller knows
			r.Hub.Away("z")
			r.Pass(time.Minute)
		}
		_, err := r.Snapshot(t, c.name, c.source)
		csitest.WantCode(t, err, c.code, c.text)
	}
	if asked := a.Asked(); asked != "" {
		t.Errorf("node a was asked for: %s", asked)
	}
}

// TestSnapshotsInSharedPools: there are none, also where no node has the pool.
func TestSnapshotsInSharedPools(t *testing.T) {
	t.Parallel()
	a := csitest.NewNode("a", 0).Shows("AAAA", csitest.GiB, false)
	r := csitest.StartKnown(t, a)
	r.Set(func() { r.PVs = []nodeapi.PersistentVolume{csitest.Named("v", "a"), csitest.Named("everywhere")} })
	r.Claims["1"] = ""
	refused := func() {
		t.Helper()
		for _, source := range []string{"v", "everywhere"} {
			_, err := r.Snapshot(t, "1", source)
			csitest.WantCode(t, err, codes.FailedPrecondition, "is in pool local, which is shared by nodes")
		}
	}
	refused()
	for _, source := range []*pb.VolumeContentSource{
		csitest.OfVolume("v"), csitest.OfSnapshot(nodeapi.SnapshotID("1", "a")),
	} {
		_, err := r.Copy(t, "1", source)
		csitest.WantCode(t, err, codes.InvalidArgument, "pool local is shared by nodes")
	}
	a.Shows("", 0, false)
	waittest.Until(t, "no node has the pool", func() bool { return r.Hub.Get("a").Pool("local").ID == "" })
	refused()
	if asked := a.Asked(); asked != "" {
		t.Errorf("the node was asked for: %s", asked)
	}
}

// TestALyingNodesSnapshots: a node's answer opens nothing of another node.
func TestALyingNodesSnapshots(t *testing.T) {
	t.Parallel()
	a := csitest.NewNode("a", csitest.GiB)
	r := csitest.Start(t, a)
	r.PVs = []nodeapi.PersistentVolume{csitest.Named("v", "a")}
	for name, lie := range map[string]func(*pb.Snapshot){
		"another id":       func(s *pb.Snapshot) { s.SnapshotId = nodeapi.SnapshotID("2", "a") },
		"another node's":   func(s *pb.Snapshot) { s.SnapshotId = nodeapi.SnapshotID("1", "b") },
		"another volume's": func(s *pb.Snapshot) { s.SourceVolumeId = "w" },
		"no size":          func(s *pb.Snapshot) { s.SizeBytes = -1 },
		"no time":          func(s *pb.Snapshot) { s.CreationTime = nil },
		"nothing":          func(s *pb.Snapshot) { s.Reset() },
	} {
		a.LieOfSnapshot = lie
		if _, err := r.Snapshot(t, "1", "v"); status.Code(err) != codes.Internal ||
			!strings.Contains(err.Error(), "answered about another") {
			t.Errorf("%s: %v", name, err)
		}
	}
	own, other := nodeapi.SnapshotID("own", "a"), nodeapi.SnapshotID("other", "a")
	a.ListsAll = true
	a.NamesSnapshots(own, nodeapi.SnapshotID("1", "b"), "pvc-1", "snap-/../"+own, strings.Repeat("x", 1000))
	if ids, _, err := r.List(t, &pb.ListSnapshotsRequest{}); slices.Contains(ids, nodeapi.SnapshotID("1", "b")) ||
		!slices.Contains(ids, own) || slices.Contains(ids, "pvc-1") || err != nil {
		t.Errorf("listed are %q, %v", ids, err)
	}
	if ids, _, err := r.List(t, &pb.ListSnapshotsRequest{SnapshotId: other}); len(ids) > 0 || err != nil {
		t.Errorf("instead of another one are listed %q, %v", ids, err)
	}
	linktest.Logged(t, r.Hub.Log, "a node lists a snapshot that is not its own")
}

// TestDeleteWhatIsNoSnapshot: nothing is deleted, and nothing keeps the VolumeSnapshotContent.
func TestDeleteWhatIsNoSnapshot(t *testing.T) {
	t.Parallel()
	a := csitest.NewNode("a", csitest.GiB)
	r := csitest.Start(t, a)
	a.Put(nodeapi.VolumeStatus{ID: "pvc-1", Pool: "local"})
	r.PVs = []nodeapi.PersistentVolume{csitest.Named("pvc-1", "a")}
	r.Claims["2"] = ""
	end := strings.TrimPrefix(nodeapi.SnapshotID("1", "a"), "snap-")
	for name, id := range map[string]string{
		"a volume's":       "pvc-1",
		"another driver's": "0001-0009-rook-ceph-0000000000000002-7a5c",
		"slash":            "snap-/" + end,
		"dots":             "../snap-" + end,
		"NUL":              "snap-\x00" + end,
		"long":             "snap-" + strings.Repeat("x", 300) + end,
		"kubevirt's":       "snapshots",
	} {
		csitest.WantCode(t, r.RemoveSnapshot(t, id), codes.OK, "")
		ids, _, err := r.List(t, &pb.ListSnapshotsRequest{SnapshotId: id})
		if len(ids) > 0 || err != nil {
			t.Errorf("%s: listed are %q, %v", name, ids, err)
		}
		_, err = r.Copy(t, "2", csitest.OfSnapshot(id))
		csitest.WantCode(t, err, codes.NotFound, "no node of the cluster has snapshot")
	}
	csitest.WantCode(t, r.RemoveSnapshot(t, ""), codes.InvalidArgument, "snapshot_id: missing")
	if asked := a.Asked(); asked != "" || !a.Has("pvc-1") {
		t.Errorf("the node was asked for: %s", asked)
	}
	linktest.Logged(t, r.Hub.Log, "pvc-1")
}

// TestSnapshotsOfANodeThatIsAway: they wait for it, or for its end; those of others do not. A controller that has just
// started does not know of nodes that are gone, and waits as long.
func TestSnapshotsOfANodeThatIsAway(t *testing.T) {
	t.Parallel()
	a := csitest.NewNode("a", csitest.GiB)
	r := csitest.Start(t, a)
	at := func(node string) string { return nodeapi.SnapshotID("1", node) }
	all := func(code codes.Code, text, node string) {
		t.Helper()
		deleted, listed, copied := code, code, max(code, codes.NotFound)
		csitest.WantCode(t, r.RemoveSnapshot(t, at(node)), deleted, text)
		ids, _, err := r.List(t, &pb.ListSnapshotsRequest{SnapshotId: at(node)})
		if csitest.WantCode(t, err, listed, text); len(ids) > 0 {
			t.Errorf("listed are %q", ids)
		}
		_, err = r.Copy(t, "1", csitest.OfSnapshot(at(node)))
		csitest.WantCode(t, err, copied, text)
		csitest.WantCode(t, r.RemoveSnapshot(t, at("a")), codes.OK, "")
	}
	r.Set(func() {
		r.Claims["1"] = ""
		r.Nodes, r.Drivers = []string{"bare"}, append(r.Drivers, "driver")
		r.Gone["z"] = r.Clock
	})
	for _, node := range []string{"bare", "driver", "z"} {
		all(codes.Unavailable, "node "+node+" is not connected", node)
	}
	all(codes.Unavailable, "it counts as gone once no such node has appeared for 10m0s", "unknown")
	r.Set(func() { r.Syncing = true })
	all(codes.Unavailable, "no node that is known has made snapshot "+at("bare"), "bare")
	r.Pass(10*time.Minute - time.Second)
	all(codes.Unavailable, "no node that is known", "unknown")
	r.Set(func() { r.Syncing = false })
	all(codes.Unavailable, "no node that is known", "unknown")
	r.Pass(time.Second)
	all(codes.OK, "", "unknown")
	all(codes.OK, "", "z")
	r.Set(func() { r.Unsure = true })
	all(codes.Unavailable, "see whether node z, which is not connected, is gone", "z")
	r.Set(func() { r.Unsure = false })
	all(codes.Unavailable, "node bare is not connected", "bare")
	linktest.Logged(t, r.Hub.Log, at("unknown"))
	b := csitest.NewNode("b", csitest.GiB)
	stop := r.Hub.Connect(t, &b.Node)
	csitest.WantCode(t, r.RemoveSnapshot(t, at("b")), codes.OK, "")
	stop()
	waittest.Until(t, "node b is away", func() bool { return r.Hub.Get("b") == nil })
	all(codes.Unavailable, "node b is not connected", "b") // no Node object has its name, and it was there
	if asked := b.Asked(); asked != "delete snapshot "+at("b") {
		t.Errorf("node b was asked for: %s", asked)
	}
}

// TestPagesOfSnapshots: whatever the size of a page, each snapshot of a connected node is on one.
func TestPagesOfSnapshots(t *testing.T) {
	t.Parallel()
	a, b, c := csitest.NewNode("a", 0), csitest.NewNode("b", 0), csitest.NewNode("c", 0)
	old := csitest.NewNode("old", 0)
	old.Answers(func(context.Context, string) error { return status.Error(codes.Unimplemented, "not implemented") })
	r := csitest.Start(t, a, old, c)
	stop := r.Hub.Connect(t, &b.Node)
	r.Set(func() { r.Drivers = append(r.Drivers, "away") })
	var want []string
	for i, n := range []*csitest.Node{a, b, c} {
		for _, name := range []string{"1", "2", "3", "4"}[:4-i] {
			want = append(want, nodeapi.SnapshotID(name, n.Name))
			n.NamesSnapshots(nodeapi.SnapshotID(name, n.Name))
		}
	}
	pages := func(size int32) (got []string) {
		t.Helper()
		for q := (&pb.ListSnapshotsRequest{MaxEntries: size}); ; {
			ids, next, err := r.List(t, q)
			got = append(got, ids...)
			if err != nil || size > 0 && len(ids) > int(size) {
				t.Fatalf("pages of %d: %d snapshots, %v", size, len(ids), err)
			}
			if q.StartingToken = next; next == "" {
				return got
			}
		}
	}
	for _, size := range []int32{0, 1, 2, 3, 4, 5, 7, 9, 100, 1 << 30} {
		if got := pages(size); !slices.Equal(got, want) {
			t.Errorf("pages of %d: %q", size, got)
		}
	}
	for _, token := range []string{"a", "x/", "/", "/1", "b/x", "\x00", strings.Repeat("/", 1000)} {
		_, _, err := r.List(t, &pb.ListSnapshotsRequest{StartingToken: token})
		csitest.WantCode(t, err, codes.Aborted, "")
	}
	_, _, err := r.List(t, &pb.ListSnapshotsRequest{MaxEntries: -1})
	csitest.WantCode(t, err, codes.InvalidArgument, "max_entries")
	_, next, err := r.List(t, &pb.ListSnapshotsRequest{MaxEntries: 6})
	if err != nil || next != "b//2" {
		t.Fatalf("the next page is %q, %v", next, err)
	}
	stop()
	waittest.Until(t, "node b is away", func() bool { return r.Hub.Get("b") == nil })
	ids, next, err := r.List(t, &pb.ListSnapshotsRequest{StartingToken: next})
	if !slices.Equal(ids, want[7:]) || next != "" || err != nil {
		t.Errorf("after a node left: %q, %q, %v", ids, next, err)
	}
	c.Answers(func(context.Context, string) error { return errors.New("broken") })
	_, _, err = r.List(t, &pb.ListSnapshotsRequest{})
	csitest.WantCode(t, err, codes.Unknown, "broken")
}

// TestSnapshotsOfAVolume: its PersistentVolume says which node has them; without one, it may be any.
func TestSnapshotsOfAVolume(t *testing.T) {
	t.Parallel()
	a, b := csitest.NewNode("a", 0), csitest.NewNode("b", 0)
	r := csitest.Start(t, a, b)
	b.NamesSnapshots(nodeapi.SnapshotID("1", "b"))
	r.Gone["z"] = r.Clock
	for name, c := range map[string]struct {
		source string
		pv     *nodeapi.PersistentVolume
		silent bool
		passed time.Duration
		code   codes.Code
		found  int
		asked  string
	}{
		"by PV":              {source: "v", pv: new(csitest.Named("v", "b")), found: 1, asked: "|list"},
		"deleted":            {source: "v", found: 1, asked: "list|list"},
		"of any node":        {source: "v", pv: new(csitest.Named("v")), found: 1, asked: "list|list"},
		"unknown":            {source: "w", asked: "list|list"},
		"no id":              {source: "../v", asked: "|"},
		"API is silent":      {source: "v", silent: true, code: codes.Unavailable, asked: "|"},
		"node is away":       {source: "v", pv: new(csitest.Named("v", "y")), code: codes.Unavailable, asked: "|"},
		"node is gone":       {source: "v", pv: new(csitest.Named("v", "z")), passed: 10 * time.Minute, asked: "|"},
		"PV's node has none": {source: "v", pv: new(csitest.Named("v", "a")), asked: "list|"},
	} {
		t.Run(name, func(t *testing.T) {
			r.Pass(c.passed)
			r.Set(func() {
				if r.PVs, r.Silent = nil, c.silent; c.pv != nil {
					r.PVs = []nodeapi.PersistentVolume{*c.pv}
				}
			})
			ids, _, err := r.List(t, &pb.ListSnapshotsRequest{SourceVolumeId: c.source})
			if csitest.WantCode(t, err, c.code, ""); len(ids) != c.found {
				t.Errorf("listed are %q", ids)
			}
			if asked := a.Asked() + "|" + b.Asked(); asked != c.asked {
				t.Errorf("the nodes were asked for %q", asked)
			}
		})
	}
}
