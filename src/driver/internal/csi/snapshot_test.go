package csi_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	pb "github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/ledger"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/pool"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/store"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/volume"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
)

const snapshotName = "snapshot-6f9619ff-8b86-d011-b42d-00cf4fc964ff"

func snapshotRecord(id string) store.Record {
	return store.Record{
		ID: id, Kind: store.OfSnapshot, Bytes: 4096, Created: time.Unix(100, 7),
		Source: &store.Source{ID: "pvc-1", Complete: true},
	}
}

func TestCreateSnapshot(t *testing.T) {
	var got volume.SnapshotSpec
	c := serve(t, &fake{snapshot: func(s volume.SnapshotSpec) (store.Record, error) {
		got = s
		r := snapshotRecord(s.ID)
		r.Source.Complete = !s.BestEffort
		return r, nil
	}})
	for _, class := range []string{"", nodeapi.PointInTime, nodeapi.BestEffort} {
		parameters := map[string]string{nodeapi.KeysOfKubernetes + "volumesnapshot/name": "mine"}
		if class != "" {
			parameters[nodeapi.KeyConsistency] = class
		}
		answer, err := c.CreateSnapshot(t.Context(), &pb.CreateSnapshotRequest{
			Name: snapshotName, SourceVolumeId: "pvc-1", Parameters: parameters,
		})
		id := nodeapi.SnapshotID(snapshotName, nodeName)
		want := volume.SnapshotSpec{ID: id, Volume: "pvc-1", BestEffort: class == nodeapi.BestEffort}
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("%q: %v\n%s", class, err, diff)
		}
		s := answer.GetSnapshot()
		if s.GetSnapshotId() != id || s.GetSourceVolumeId() != "pvc-1" || s.GetSizeBytes() != 4096 ||
			s.GetReadyToUse() == want.BestEffort || s.GetCreationTime().AsTime() != time.Unix(100, 7).UTC() {
			t.Errorf("%v", s)
		}
	}
}

func TestCreateSnapshotRefuses(t *testing.T) {
	c := serve(t, &fake{})
	long := strings.Repeat("x", 300)
	for name, test := range map[string]struct {
		request *pb.CreateSnapshotRequest
		parts   []string
	}{
		"no name":   {&pb.CreateSnapshotRequest{SourceVolumeId: "pvc-1"}, []string{"name: missing"}},
		"no volume": {&pb.CreateSnapshotRequest{Name: "a"}, []string{"source_volume_id: missing"}},
		"a path":    {&pb.CreateSnapshotRequest{Name: "a", SourceVolumeId: "../x"}, []string{"source_volume_id"}},
		"a long id": {&pb.CreateSnapshotRequest{Name: "a", SourceVolumeId: long}, []string{"source_volume_id"}},
		"an unknown key": {
			&pb.CreateSnapshotRequest{Name: "a", SourceVolumeId: "pvc-1", Parameters: map[string]string{"x": "y"}},
			[]string{"parameters", `unknown key "x"`, "consistency"},
		},
		"an unknown value": {
			&pb.CreateSnapshotRequest{
				Name: "a", SourceVolumeId: "pvc-1", Parameters: map[string]string{"consistency": "none"},
			},
			[]string{"parameters.consistency", `"none"`, "point-in-time", "best-effort"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := c.CreateSnapshot(t.Context(), test.request)
			refused(t, err, codes.InvalidArgument, test.parts...)
		})
	}
}

// TestSnapshotCodes: csi-snapshotter tries again for ever after some codes, and nobody can delete the VolumeSnapshot.
func TestSnapshotCodes(t *testing.T) {
	for want, errs := range map[codes.Code][]error{
		codes.FailedPrecondition: {
			ledger.ErrNoSpace, ledger.ErrClosed, pool.ErrAbsent, pool.ErrNotHere, volume.ErrUnsupported,
			volume.ErrNotEnforced,
		},
		codes.NotFound: {store.ErrNotFound}, codes.AlreadyExists: {volume.ErrExists}, codes.Aborted: {volume.ErrBusy},
	} {
		for _, cause := range errs {
			c := serve(t, &fake{snapshot: func(volume.SnapshotSpec) (store.Record, error) {
				return store.Record{}, fmt.Errorf("%w: because", cause)
			}})
			_, err := c.CreateSnapshot(t.Context(), &pb.CreateSnapshotRequest{Name: "a", SourceVolumeId: "pvc-1"})
			refused(t, err, want, "because")
		}
	}
}

func TestDeleteSnapshot(t *testing.T) {
	c := serve(t, &fake{deleteSnapshot: func(id string) error {
		if id != "snap-1" {
			return errors.New("another one")
		}
		return nil
	}})
	if _, err := c.DeleteSnapshot(t.Context(), &pb.DeleteSnapshotRequest{SnapshotId: "snap-1"}); err != nil {
		t.Error(err)
	}
	_, err := c.DeleteSnapshot(t.Context(), &pb.DeleteSnapshotRequest{})
	refused(t, err, codes.InvalidArgument, "snapshot_id: missing")
	for _, id := range noIDs() {
		_, err = c.DeleteSnapshot(t.Context(), &pb.DeleteSnapshotRequest{SnapshotId: id})
		refused(t, err, codes.InvalidArgument, "snapshot_id")
	}
}

// noIDs are texts that no volume and no snapshot has as its id.
func noIDs() []string {
	return []string{"a/b", "..", "../snap-1.0123456789", "snap-\x00.0123456789", strings.Repeat("x", 300)}
}

func TestListSnapshots(t *testing.T) {
	c := serve(t, &fake{
		getSnapshot: func(id string) (store.Record, error) {
			if id == "snap-1" {
				return snapshotRecord(id), nil
			}
			return store.Record{}, store.ErrNotFound
		},
		snapshots: func(of, after string, limit int) ([]store.Record, string, error) {
			if of != "pvc-1" || limit != 1 {
				return nil, "", fmt.Errorf("of %q, limit %d", of, limit)
			}
			if after == "" {
				return []store.Record{snapshotRecord("snap-1")}, "snap-1", nil
			}
			return []store.Record{snapshotRecord("snap-2")}, "", nil
		},
	})
	list := func(q *pb.ListSnapshotsRequest) (ids []string, next string) {
		t.Helper()
		answer, err := c.ListSnapshots(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range answer.GetEntries() {
			ids = append(ids, e.GetSnapshot().GetSnapshotId())
		}
		return ids, answer.GetNextToken()
	}
	for want, q := range map[string]*pb.ListSnapshotsRequest{
		"[snap-1]":                            {SnapshotId: "snap-1"},
		"[snap-1] of":                         {SnapshotId: "snap-1", SourceVolumeId: "pvc-1"},
		"[] of another":                       {SnapshotId: "snap-1", SourceVolumeId: "pvc-2"},
		"[] that is not there":                {SnapshotId: "snap-9"},
		"[] whose id is none and could be a/": {SnapshotId: "snap-9", SourceVolumeId: "a/"},
	} {
		if ids, next := list(q); !strings.HasPrefix(want, fmt.Sprint(ids)) || next != "" {
			t.Errorf("%s: %v, %q", want, ids, next)
		}
	}
	first, next := list(&pb.ListSnapshotsRequest{SourceVolumeId: "pvc-1", MaxEntries: 1})
	second, end := list(&pb.ListSnapshotsRequest{SourceVolumeId: "pvc-1", MaxEntries: 1, StartingToken: next})
	if fmt.Sprint(first, second) != "[snap-1] [snap-2]" || end != "" {
		t.Errorf("%v, %v, %q", first, second, end)
	}
	_, err := c.ListSnapshots(t.Context(), &pb.ListSnapshotsRequest{StartingToken: "invalid-token"})
	refused(t, err, codes.Aborted, "starting_token")
	_, err = c.ListSnapshots(t.Context(), &pb.ListSnapshotsRequest{MaxEntries: -1})
	refused(t, err, codes.InvalidArgument, "max_entries")
}

// TestCreateFromSource: the source is handed on, and answered as it was asked for.
func TestCreateFromSource(t *testing.T) {
	for name, test := range map[string]struct {
		content *pb.VolumeContentSource
		want    store.Source
	}{
		"a snapshot": {contentOf("snap-1", ""), store.Source{Kind: store.OfSnapshot, ID: "snap-1"}},
		"a volume":   {contentOf("", "pvc-9"), store.Source{ID: "pvc-9"}},
	} {
		t.Run(name, func(t *testing.T) {
			var got volume.Spec
			c := serve(t, &fake{resolve: onePool, create: func(s volume.Spec) (volume.Volume, error) {
				got = s
				r := store.Record{ID: s.ID, Bytes: s.Bytes, Pool: s.Pool, Source: s.Source}
				return volume.Volume{Record: r}, nil
			}})
			answer, err := c.CreateVolume(t.Context(), &pb.CreateVolumeRequest{
				Name: "pvc-1", VolumeCapabilities: writer(), VolumeContentSource: test.content,
			})
			if err != nil || got.Source == nil || got.Source.String() != test.want.String() ||
				answer.GetVolume().GetContentSource().String() != test.content.String() {
				t.Errorf("asked for %v, answered %v, %v", got.Source, answer, err)
			}
		})
	}
	c := serve(t, &fake{resolve: onePool})
	contents := []*pb.VolumeContentSource{
		{Type: &pb.VolumeContentSource_Snapshot{Snapshot: &pb.VolumeContentSource_SnapshotSource{}}},
	}
	for _, id := range noIDs() {
		contents = append(contents, contentOf(id, ""), contentOf("", id))
	}
	for _, content := range contents {
		_, err := c.CreateVolume(t.Context(), &pb.CreateVolumeRequest{
			Name: "pvc-1", VolumeCapabilities: writer(), VolumeContentSource: content,
		})
		refused(t, err, codes.InvalidArgument, "volume_content_source.")
	}
}

func contentOf(snapshot, volume string) *pb.VolumeContentSource {
	if snapshot != "" {
		from := &pb.VolumeContentSource_SnapshotSource{SnapshotId: snapshot}
		return &pb.VolumeContentSource{Type: &pb.VolumeContentSource_Snapshot{Snapshot: from}}
	}
	from := &pb.VolumeContentSource_VolumeSource{VolumeId: volume}
	return &pb.VolumeContentSource{Type: &pb.VolumeContentSource_Volume{Volume: from}}
}
