package csi_test

import (
	"context"
	"strings"
	"testing"
	"time"

	pb "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/controller/internal/csi/csitest"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/link/linktest"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
)

// TestCopies: a restore or clone is made on the node of its source, whichever node its pod waits on.
func TestCopies(t *testing.T) {
	t.Parallel()
	a, b := csitest.NewNode("a", 10*csitest.GiB), csitest.NewNode("b", csitest.GiB)
	r := csitest.Start(t, a, b)
	r.PVs = []nodeapi.PersistentVolume{csitest.Named("v", "b"), csitest.Named("on-y", "y"), csitest.Named("on-z", "z")}
	r.Gone["z"] = r.Clock.Add(-10 * time.Minute)
	b.Put(nodeapi.VolumeStatus{ID: "unnamed", Pool: "local"})
	volume, snapshot := csitest.OfVolume("v"), csitest.OfSnapshot(nodeapi.SnapshotID("1", "b"))
	for name, c := range map[string]struct {
		source   *pb.VolumeContentSource
		selected string
		allowed  []string
		silent   bool
		drivers  []string
		code     codes.Code
		text     string
	}{
		"restore":                 {source: snapshot},
		"clone":                   {source: volume},
		"of a volume without PV":  {source: csitest.OfVolume("unnamed")},
		"allowed":                 {source: snapshot, allowed: []string{"b", "a"}},
		"the pod waits there":     {source: volume, selected: "b", allowed: []string{"b"}},
		"the pod waits elsewhere": {source: volume, selected: "a", allowed: []string{"a"}},
		"restore for a pod on a":  {source: snapshot, selected: "a", allowed: []string{"a"}},
		"Immediate, one is left": {
			source: volume, allowed: []string{"a"},
			code: codes.InvalidArgument, text: "on node b",
		},
		"another is selected": {
			source: volume, selected: "c", allowed: []string{"a"},
			code: codes.InvalidArgument, text: "leave: a;",
		},
		"Immediate, two are left": {
			source: snapshot, selected: "a", allowed: []string{"a", "c"},
			code: codes.InvalidArgument, text: "leave: a, c;",
		},
		"API silent on the claim": {
			source: snapshot, allowed: []string{"a"}, silent: true,
			code: codes.Unavailable, text: "connection refused",
		},
		"no volume": {source: csitest.OfVolume("w"), code: codes.NotFound, text: "no node has volume w"},
		"a volume that may be": {
			source: csitest.OfVolume("w"), drivers: []string{"c"},
			code: codes.Unavailable, text: "could not be asked: c",
		},
		"no id of a volume": {
			source: csitest.OfVolume("../v"),
			code:   codes.InvalidArgument, text: "volume_content_source: invalid volume id",
		},
		"nothing": {
			source: &pb.VolumeContentSource{},
			code:   codes.InvalidArgument, text: "want a snapshot or a volume",
		},
		"volume's node is away": {
			source: csitest.OfVolume("on-y"),
			code:   codes.Unavailable, text: "node y is not connected",
		},
		"volume's node is gone": {source: csitest.OfVolume("on-z"), code: codes.NotFound, text: "node z is gone"},
		"no id of a snapshot":   {source: csitest.OfSnapshot("v"), code: codes.NotFound, text: `has snapshot "v"`},
		"no snapshot":           {source: csitest.OfSnapshot(""), code: codes.NotFound, text: `has snapshot ""`},
		"snapshot's node is away": {
			source: csitest.OfSnapshot(nodeapi.SnapshotID("1", "x")), drivers: []string{"x"},
			code: codes.Unavailable, text: "node x is not connected",
		},
		"snapshot's node is gone": {
			source: csitest.OfSnapshot(nodeapi.SnapshotID("1", "z")),
			code:   codes.NotFound, text: "no node of the cluster has snapshot",
		},
		"snapshot is a volume now": {
			source: csitest.OfSnapshot("pvc-restore"),
			code:   codes.NotFound, text: "pvc-restore",
		},
	} {
		t.Run(name, func(t *testing.T) {
			uid := strings.NewReplacer(" ", "-", ",", "", "'", "").Replace(name)
			r.Set(func() {
				r.Claims[uid], r.Silent = c.selected, c.silent
				r.Drivers = append([]string{"a", "b"}, c.drivers...)
			})
			v, err := r.Copy(t, uid, c.source, c.allowed...)
			csitest.WantCode(t, err, c.code, c.text)
			asked := ""
			if c.code == codes.OK {
				asked = "create pvc-" + uid
				if at := v.GetAccessibleTopology()[0].GetSegments()[linktest.TopologyKey]; at != "b" ||
					!proto.Equal(v.GetContentSource(), c.source) {
					t.Errorf("it is on node %s, from %v", at, v.GetContentSource())
				}
			}
			if got := a.Asked() + b.Asked(); got != asked {
				t.Errorf("the nodes were asked for %q, want %q", got, asked)
			}
			r.Set(func() {
				if r.Claims[uid] != c.selected {
					t.Errorf("the claim has node %q", r.Claims[uid])
				}
			})
		})
	}
}

// TestACopyIsRefused: no other node is to be chosen, and what a node has made from something else is no copy.
func TestACopyIsRefused(t *testing.T) {
	t.Parallel()
	a := csitest.NewNode("a", csitest.GiB)
	r := csitest.Start(t, a)
	r.Claims["1"] = ""
	snapshot := csitest.OfSnapshot(nodeapi.SnapshotID("1", "a"))
	for code, want := range map[codes.Code]codes.Code{
		codes.ResourceExhausted: codes.FailedPrecondition, codes.OutOfRange: codes.OutOfRange,
		codes.AlreadyExists: codes.AlreadyExists, codes.NotFound: codes.NotFound, codes.Aborted: codes.Aborted,
	} {
		a.Answers(func(context.Context, string) error { return status.Error(code, "because") })
		_, err := r.Copy(t, "1", snapshot)
		csitest.WantCode(t, err, want, "because")
	}
	a.Answers(nil)
	for name, lie := range map[string]*pb.VolumeContentSource{
		"empty":            nil,
		"another snapshot": csitest.OfSnapshot(nodeapi.SnapshotID("2", "a")),
		"a volume":         csitest.OfVolume("v"),
	} {
		a.Lie = func(v *pb.Volume) { v.ContentSource = lie }
		_, err := r.Copy(t, "1", snapshot)
		if csitest.WantCode(t, err, codes.Internal, "was asked for volume pvc-1"); err == nil {
			t.Errorf("%s is taken", name)
		}
	}
	a.Lie = nil
	csitest.WantCode(t, r.Remove(t, "pvc-1"), codes.OK, "") // a volume as any other
}
