package csi

import (
	"cmp"
	"context"
	"errors"
	"strings"

	pb "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/store"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/volume"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/csi"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
)

// sourceOf reads what a new volume is to be a copy of, nil for nothing.
func sourceOf(content *pb.VolumeContentSource) (*store.Source, error) {
	const field = "volume_content_source"
	switch {
	case content == nil:
		return nil, nil //nolint:nilnil // a volume without a source
	case content.GetSnapshot() != nil:
		id := content.GetSnapshot().GetSnapshotId()
		return &store.Source{Kind: store.OfSnapshot, ID: id}, csi.CheckVolumeID(field+".snapshot.snapshot_id", id)
	case content.GetVolume() != nil:
		id := content.GetVolume().GetVolumeId()
		return &store.Source{Kind: store.OfVolume, ID: id}, csi.CheckVolumeID(field+".volume.volume_id", id)
	default:
		return nil, invalid(field, "neither a snapshot nor a volume; want one of them, or no source")
	}
}

// contentSource is the reverse of sourceOf.
func contentSource(s *store.Source) *pb.VolumeContentSource {
	switch {
	case s == nil:
		return nil
	case s.Kind == store.OfSnapshot:
		from := &pb.VolumeContentSource_SnapshotSource{SnapshotId: s.ID}
		return &pb.VolumeContentSource{Type: &pb.VolumeContentSource_Snapshot{Snapshot: from}}
	default:
		from := &pb.VolumeContentSource_VolumeSource{VolumeId: s.ID}
		return &pb.VolumeContentSource{Type: &pb.VolumeContentSource_Volume{Volume: from}}
	}
}

func (s *server) CreateSnapshot(ctx context.Context, q *pb.CreateSnapshotRequest) (*pb.CreateSnapshotResponse, error) {
	spec := volume.SnapshotSpec{ID: nodeapi.SnapshotID(q.GetName(), s.NodeName), Volume: q.GetSourceVolumeId()}
	var name error
	if q.GetName() == "" {
		name = invalid("name", "missing")
	}
	spec.BestEffort = q.GetParameters()[nodeapi.KeyConsistency] == nodeapi.BestEffort
	err := cmp.Or(name, csi.CheckVolumeID("source_volume_id", spec.Volume), checkSnapshotClass(q.GetParameters()))
	var r store.Record
	if err == nil {
		r, err = s.Snapshots.Snapshot(ctx, spec)
	}
	return answered(cut, &pb.CreateSnapshotResponse{Snapshot: snapshotAnswer(r)}, err)
}

// checkSnapshotClass refuses parameters of a VolumeSnapshotClass that are not known.
func checkSnapshotClass(parameters map[string]string) error {
	for key, value := range parameters {
		switch {
		case strings.HasPrefix(key, nodeapi.KeysOfKubernetes):
		case key != nodeapi.KeyConsistency:
			return invalid("parameters", "unknown key %.64q; known is %s", key, nodeapi.KeyConsistency)
		case value != nodeapi.PointInTime && value != nodeapi.BestEffort:
			return invalid("parameters."+key, "%w", wrong(value, nodeapi.PointInTime+" or "+nodeapi.BestEffort))
		}
	}
	return nil
}

func snapshotAnswer(r store.Record) *pb.Snapshot {
	if r.Source == nil {
		return nil
	}
	return &pb.Snapshot{
		SnapshotId: r.ID, SourceVolumeId: r.Source.ID, SizeBytes: r.Bytes, CreationTime: timestamppb.New(r.Created),
		ReadyToUse: r.Source.Complete,
	}
}

func (s *server) DeleteSnapshot(ctx context.Context, q *pb.DeleteSnapshotRequest) (*pb.DeleteSnapshotResponse, error) {
	err := csi.CheckVolumeID("snapshot_id", q.GetSnapshotId())
	if err == nil {
		err = s.Snapshots.DeleteSnapshot(ctx, q.GetSnapshotId())
	}
	return answered(remove, &pb.DeleteSnapshotResponse{}, err)
}

// ListSnapshots answers about one that is not there with none.
func (s *server) ListSnapshots(ctx context.Context, q *pb.ListSnapshotsRequest) (*pb.ListSnapshotsResponse, error) {
	if q.GetSnapshotId() != "" {
		return s.getSnapshot(ctx, q)
	}
	var snapshots []store.Record
	after, err := fromToken(q.GetStartingToken())
	if err == nil && q.GetMaxEntries() < 0 {
		err = invalid("max_entries", "%d: must not be negative", q.GetMaxEntries())
	}
	if err == nil {
		snapshots, after, err = s.Snapshots.Snapshots(ctx, q.GetSourceVolumeId(), after, int(q.GetMaxEntries()))
	}
	return answered(read, listAnswer(after, snapshots...), err)
}

func (s *server) getSnapshot(ctx context.Context, q *pb.ListSnapshotsRequest) (*pb.ListSnapshotsResponse, error) {
	r, err := s.Snapshots.GetSnapshot(ctx, q.GetSnapshotId())
	switch {
	case errors.Is(err, store.ErrNotFound), errors.Is(err, nodeapi.ErrInvalidID):
		return &pb.ListSnapshotsResponse{}, nil
	case err == nil && q.GetSourceVolumeId() != "" && r.Source.ID != q.GetSourceVolumeId():
		return &pb.ListSnapshotsResponse{}, nil
	}
	return answered(read, listAnswer("", r), err)
}

func listAnswer(after string, snapshots ...store.Record) *pb.ListSnapshotsResponse {
	response := &pb.ListSnapshotsResponse{NextToken: toToken(after)}
	for _, r := range snapshots {
		response.Entries = append(response.Entries, &pb.ListSnapshotsResponse_Entry{Snapshot: snapshotAnswer(r)})
	}
	return response
}
