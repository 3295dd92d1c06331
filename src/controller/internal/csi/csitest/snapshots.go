package csitest

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"testing"

	pb "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
)

// CreateSnapshot implements csi.ControllerServer.
func (n *Node) CreateSnapshot(ctx context.Context, q *pb.CreateSnapshotRequest) (*pb.CreateSnapshotResponse, error) {
	n.heard(ctx, q.GetSourceVolumeId())
	if err := n.called(ctx, "snapshot "+q.GetSourceVolumeId()); err != nil {
		return nil, err
	}
	s := &pb.Snapshot{
		SnapshotId: nodeapi.SnapshotID(q.GetName(), n.Name), SourceVolumeId: q.GetSourceVolumeId(), SizeBytes: GiB,
		CreationTime: timestamppb.New(n.Cut), ReadyToUse: true,
	}
	if n.LieOfSnapshot != nil {
		n.LieOfSnapshot(s)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.snapshots = append(n.snapshots, s)
	return &pb.CreateSnapshotResponse{Snapshot: s}, nil
}

// DeleteSnapshot implements csi.ControllerServer.
func (n *Node) DeleteSnapshot(ctx context.Context, q *pb.DeleteSnapshotRequest) (*pb.DeleteSnapshotResponse, error) {
	if err := n.called(ctx, "delete snapshot "+q.GetSnapshotId()); err != nil {
		return nil, err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.snapshots = slices.DeleteFunc(n.snapshots, func(s *pb.Snapshot) bool {
		return s.GetSnapshotId() == q.GetSnapshotId()
	})
	return &pb.DeleteSnapshotResponse{}, nil
}

// ListSnapshots implements csi.ControllerServer. Its tokens are numbers, after a slash.
func (n *Node) ListSnapshots(ctx context.Context, q *pb.ListSnapshotsRequest) (*pb.ListSnapshotsResponse, error) {
	if err := n.called(ctx, "list"); err != nil {
		return nil, err
	}
	first := 0
	if token := q.GetStartingToken(); token != "" {
		var err error
		if first, err = strconv.Atoi(strings.TrimPrefix(token, "/")); err != nil {
			return nil, status.Error(codes.Aborted, "no such page")
		}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	answer := &pb.ListSnapshotsResponse{}
	for i, s := range n.snapshots {
		switch {
		case i < first || !n.ListsAll && !isWanted(q, s):
		case len(answer.GetEntries()) == int(q.GetMaxEntries()) && q.GetMaxEntries() > 0:
			answer.NextToken = "/" + strconv.Itoa(i)
			return answer, nil
		default:
			answer.Entries = append(answer.Entries, &pb.ListSnapshotsResponse_Entry{Snapshot: s})
		}
	}
	return answer, nil
}

func isWanted(q *pb.ListSnapshotsRequest, s *pb.Snapshot) bool {
	return (q.GetSnapshotId() == "" || q.GetSnapshotId() == s.GetSnapshotId()) &&
		(q.GetSourceVolumeId() == "" || q.GetSourceVolumeId() == s.GetSourceVolumeId())
}

// Snapshots are the ids of those that the node has.
func (n *Node) Snapshots() (ids []string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, s := range n.snapshots {
		ids = append(ids, s.GetSnapshotId())
	}
	return ids
}

// NamesSnapshots lets the node list snapshots with these ids.
func (n *Node) NamesSnapshots(ids ...string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, id := range ids {
		n.snapshots = append(n.snapshots, &pb.Snapshot{SnapshotId: id, SourceVolumeId: "v"})
	}
}

// Snapshot asks for one.
func (r Controller) Snapshot(t *testing.T, name, source string) (*pb.Snapshot, error) {
	t.Helper()
	answer, err := r.CreateSnapshot(t.Context(), &pb.CreateSnapshotRequest{Name: name, SourceVolumeId: source})
	return answer.GetSnapshot(), err
}

// RemoveSnapshot asks for its deletion.
func (r Controller) RemoveSnapshot(t *testing.T, id string) error {
	t.Helper()
	_, err := r.DeleteSnapshot(t.Context(), &pb.DeleteSnapshotRequest{SnapshotId: id})
	return err
}

// List gives the ids on a page of snapshots, and the next page's token.
func (r Controller) List(t *testing.T, q *pb.ListSnapshotsRequest) (ids []string, next string, err error) {
	t.Helper()
	answer, err := r.ListSnapshots(t.Context(), q)
	for _, e := range answer.GetEntries() {
		ids = append(ids, e.GetSnapshot().GetSnapshotId())
	}
	return ids, answer.GetNextToken(), err
}

// Copy asks for a volume of a claim that begins as what is in source, on the node of that; nodes are those that the
// request allows.
func (r Controller) Copy(
	t *testing.T, uid string, source *pb.VolumeContentSource, nodes ...string,
) (*pb.Volume, error) {
	t.Helper()
	answer, err := r.CreateVolume(t.Context(), copyRequest(uid, source, nodeapi.RestoreToSource, nodes...))
	return answer.GetVolume(), err
}

func copyRequest(uid string, source *pb.VolumeContentSource, to string, nodes ...string) *pb.CreateVolumeRequest {
	q := &pb.CreateVolumeRequest{
		Name: "pvc-" + uid, CapacityRange: &pb.CapacityRange{RequiredBytes: GiB}, VolumeContentSource: source,
		Parameters: map[string]string{
			nodeapi.KeyClaimNS: "default", nodeapi.KeyClaimName: "claim", nodeapi.KeyRestoreTo: to,
		},
		AccessibilityRequirements: &pb.TopologyRequirement{},
	}
	for _, n := range nodes {
		q.AccessibilityRequirements.Requisite = append(q.AccessibilityRequirements.Requisite, Topology(n))
	}
	return q
}

// OfSnapshot is a source.
func OfSnapshot(id string) *pb.VolumeContentSource {
	return &pb.VolumeContentSource{Type: &pb.VolumeContentSource_Snapshot{
		Snapshot: &pb.VolumeContentSource_SnapshotSource{SnapshotId: id},
	}}
}

// OfVolume is a source.
func OfVolume(id string) *pb.VolumeContentSource {
	return &pb.VolumeContentSource{Type: &pb.VolumeContentSource_Volume{
		Volume: &pb.VolumeContentSource_VolumeSource{VolumeId: id},
	}}
}
