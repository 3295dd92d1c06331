package csi

import (
	"context"
	"slices"
	"strings"

	pb "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/controller/internal/fleet"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/abridge"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/bytesize"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/logging"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
)

const (
	// maxSnapshotName is what the CSI specification lets a name have, in bytes.
	maxSnapshotName = 128
	// maxSnapshots is how many a page lists at most: what a node answers at once is bounded.
	maxSnapshots = 1000
)

// CreateSnapshot implements csi.ControllerServer on the node of the source.
func (c *Controller) CreateSnapshot(
	ctx context.Context, q *pb.CreateSnapshotRequest,
) (*pb.CreateSnapshotResponse, error) {
	name, source := q.GetName(), q.GetSourceVolumeId()
	if name == "" || len(name) > maxSnapshotName {
		return nil, status.Errorf(codes.InvalidArgument, "invalid request: name: want 1 to %d bytes, has %d",
			maxSnapshotName, len(name))
	}
	p, at, err := c.peerOfSource(ctx, "source_volume_id", source)
	if err != nil {
		return nil, c.explainAway(at, err)
	}
	answer, err := pb.NewControllerClient(p).CreateSnapshot(at.withFacts(ctx), q)
	if err != nil {
		return nil, err
	}
	if s := answer.GetSnapshot(); s.GetSnapshotId() != nodeapi.SnapshotID(name, p.Name) ||
		s.GetSourceVolumeId() != source || s.GetSizeBytes() < 0 || s.GetCreationTime().CheckValid() != nil {
		return nil, status.Errorf(codes.Internal, "node %s was asked for snapshot %s of volume %s and answered about "+
			"another: id %.128q, of volume %.128q, %s, made at %v", p.Name, nodeapi.SnapshotID(name, p.Name),
			source, s.GetSnapshotId(), s.GetSourceVolumeId(), bytesize.Format(s.GetSizeBytes()),
			s.GetCreationTime())
	}
	return answer, nil
}

// explainAway gives the answer to a snapshot whose node is not connected. After Unavailable csi-snapshotter takes the
// snapshot to be under way, and nobody can delete its VolumeSnapshot: that must not last for as long as a node is dead.
// In return, what an earlier call may have made there is left on the node when the VolumeSnapshot is deleted.
func (c *Controller) explainAway(at place, err error) error {
	if at.node == "" || status.Code(err) != codes.Unavailable || c.Fleet.Get(at.node) != nil ||
		c.Fleet.Away(at.node) < c.Fleet.NodeGrace {
		return err
	}
	return status.Errorf(codes.FailedPrecondition, "%s; the VolumeSnapshot can be deleted",
		status.Convert(err).Message())
}

// DeleteSnapshot implements csi.ControllerServer. It goes to the one node that may have the snapshot. What no node can
// have is deleted, such as a volume's id in a VolumeSnapshotContent: it must never delete the volume.
func (c *Controller) DeleteSnapshot(
	ctx context.Context, q *pb.DeleteSnapshotRequest,
) (*pb.DeleteSnapshotResponse, error) {
	id := q.GetSnapshotId()
	if id == "" {
		return nil, status.Error(codes.InvalidArgument, "invalid request: snapshot_id: missing")
	}
	p, gone, err := c.peerOfSnapshot(ctx, id)
	switch {
	case err != nil:
		return nil, err
	case gone:
		c.Fleet.Log.InfoContext(ctx, "a snapshot that no node of the cluster has counts as deleted; if its node is "+
			"gone, its data may be left on that node's disk", logging.KeyID, id[:min(len(id), maxSnapshotName)])
		return &pb.DeleteSnapshotResponse{}, nil
	}
	if err := c.oneSnapshot(ctx, id); err != nil {
		return nil, err
	}
	return pb.NewControllerClient(p).DeleteSnapshot(ctx, q)
}

// oneSnapshot is OneVolume for a snapshot and VolumeSnapshotContents.
func (c *Controller) oneSnapshot(ctx context.Context, id string) error {
	contents, err := c.Cluster.SnapshotContents(ctx)
	if err != nil {
		return status.Errorf(codes.Unavailable, "see which VolumeSnapshotContents name %s: %v", id, err)
	}
	if named := contents[id]; len(named) > 1 {
		return status.Errorf(codes.FailedPrecondition, "VolumeSnapshotContents %s all have the snapshotHandle %s, and "+
			"its data is theirs; keep one of them, and set the deletionPolicy of the others to Retain before you "+
			"delete them", abridge.Names(named), id)
	}
	return nil
}

// peerOfSnapshot gives the node whose name a snapshot's id was made with, so that nobody else need be asked. gone
// reports that no node has such a snapshot: the id is of something else, or its node is gone. While the node is not
// connected, or may still appear after a start of the controller, the error is Unavailable.
func (l locator) peerOfSnapshot(ctx context.Context, id string) (p *fleet.Peer, gone bool, err error) {
	if !isSnapshot(id) {
		return nil, true, nil
	}
	for _, p := range l.Fleet.All() {
		if nodeapi.IsSnapshotOf(id, p.Name) {
			return p, false, nil
		}
	}
	names, since := l.Cluster.NodeNames()
	names = append(names, l.Fleet.Remembered()...)
	i := slices.IndexFunc(names, func(node string) bool { return nodeapi.IsSnapshotOf(id, node) })
	if i >= 0 {
		if p, err = l.Fleet.Peer(names[i]); err != nil {
			err = l.confirmGone(ctx, names[i], err)
		}
		return p, p == nil && err == nil, err
	}
	if since.IsZero() || l.Fleet.Now().Sub(since) < l.Fleet.GoneAfter {
		return nil, false, status.Errorf(codes.Unavailable, "no node that is known has made snapshot %s; it counts as "+
			"gone once no such node has appeared for %s", id, l.Fleet.GoneAfter)
	}
	return nil, true, nil
}

// isSnapshot reports whether an id, which may be any text, can be one of a snapshot.
func isSnapshot(id string) bool { return nodeapi.ValidateID(id) == nil && nodeapi.IsSnapshotID(id) }

// ListSnapshots implements csi.ControllerServer. Without a snapshot that is asked for it lists those of the connected
// nodes, in the order of their names; a page's token is the name of a node, a slash, and what that node gave as token.
func (c *Controller) ListSnapshots(ctx context.Context, q *pb.ListSnapshotsRequest) (*pb.ListSnapshotsResponse, error) {
	if q.GetMaxEntries() < 0 {
		return nil, status.Error(codes.InvalidArgument, "invalid request: max_entries: want 0 or more")
	}
	if id := q.GetSnapshotId(); id != "" {
		p, gone, err := c.peerOfSnapshot(ctx, id)
		if gone || err != nil {
			return &pb.ListSnapshotsResponse{}, err
		}
		return c.listSnapshotsOn(ctx, p, q)
	}
	start, token, ok := strings.Cut(q.GetStartingToken(), "/")
	if q.GetStartingToken() != "" && (!ok || !slices.Contains(c.Fleet.Remembered(), start)) {
		return nil, status.Errorf(codes.Aborted, "starting_token %.64q was not given by this controller, or its node "+
			"is gone; list from the start", q.GetStartingToken())
	}
	peers, err := c.peersWithSnapshots(ctx, q.GetSourceVolumeId())
	if err != nil {
		return nil, err
	}
	peers = slices.DeleteFunc(peers, func(p *fleet.Peer) bool { return p.Name < start })
	if len(peers) > 0 && peers[0].Name != start {
		token = "" // of a node that is away by now
	}
	return c.listSnapshotsFrom(ctx, q, peers, token)
}

// peersWithSnapshots are the connected nodes that may have snapshots of a volume, by name, or of any volume where
// source is empty. Those of a deleted volume, which no PersistentVolume names, may be anywhere.
func (c *Controller) peersWithSnapshots(ctx context.Context, source string) ([]*fleet.Peer, error) {
	if source == "" {
		return c.Fleet.All(), nil
	}
	if possible := nodeapi.ValidateID(source) == nil; !possible {
		return nil, nil
	}
	pv, named, err := c.Cluster.Get(ctx, source)
	switch {
	case err != nil:
		return nil, status.Errorf(codes.Unavailable, "see which PersistentVolume names %s: %v", source, err)
	case !named || len(pv.Nodes) != 1:
		return c.Fleet.All(), nil
	}
	p, away := c.Fleet.Peer(pv.Nodes[0])
	if away != nil {
		return nil, c.confirmGone(ctx, pv.Nodes[0], away)
	}
	return []*fleet.Peer{p}, nil
}

// listSnapshotsFrom lists a page of the snapshots of nodes; token is where to begin on the first.
func (c *Controller) listSnapshotsFrom(
	ctx context.Context, q *pb.ListSnapshotsRequest, peers []*fleet.Peer, token string,
) (*pb.ListSnapshotsResponse, error) {
	most := int32(maxSnapshots)
	if q.GetMaxEntries() > 0 {
		most = min(most, q.GetMaxEntries())
	}
	answer := &pb.ListSnapshotsResponse{}
	for _, p := range peers {
		if most <= 0 {
			answer.NextToken = p.Name + "/"
			break
		}
		page, err := c.listSnapshotsOn(ctx, p, &pb.ListSnapshotsRequest{
			MaxEntries: most, StartingToken: token, SourceVolumeId: q.GetSourceVolumeId(),
		})
		if err != nil && status.Code(err) != codes.Unimplemented { // an older driver has none
			return nil, err
		}
		answer.Entries = append(answer.Entries, page.GetEntries()...)
		if page.GetNextToken() != "" {
			answer.NextToken = p.Name + "/" + page.GetNextToken()
			break
		}
		token, most = "", most-int32(len(page.GetEntries()))
	}
	return answer, nil
}

// listSnapshotsOn hands a request on to a node, and drops what it cannot have: no node speaks for another.
func (c *Controller) listSnapshotsOn(
	ctx context.Context, p *fleet.Peer, q *pb.ListSnapshotsRequest,
) (*pb.ListSnapshotsResponse, error) {
	page, err := pb.NewControllerClient(p).ListSnapshots(ctx, q)
	if err != nil {
		return nil, err
	}
	page.Entries = slices.DeleteFunc(page.GetEntries(), func(e *pb.ListSnapshotsResponse_Entry) bool {
		id := e.GetSnapshot().GetSnapshotId()
		foreign := !isSnapshot(id) || !nodeapi.IsSnapshotOf(id, p.Name) ||
			(q.GetSnapshotId() != "" && q.GetSnapshotId() != id)
		if foreign {
			c.Fleet.Log.WarnContext(ctx, "a node lists a snapshot that is not its own, or was not asked for",
				logging.KeyNode, p.Name, logging.KeyID, id[:min(len(id), maxSnapshotName)])
		}
		return foreign
	})
	return page, nil
}
