package controller

import (
	"context"
	"fmt"
	"slices"

	pb "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/names"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/controller/fleet"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/abridge"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/bytesize"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/csi"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/poolspec"
)

// CreateVolume implements csi.ControllerServer on the node that is asked for, or that is chosen.
func (s *Server) CreateVolume(ctx context.Context, q *pb.CreateVolumeRequest) (*pb.CreateVolumeResponse, error) {
	s.forgetDeletion(q.GetName())
	node, err := s.choose(ctx, q)
	if err != nil {
		return nil, err
	}
	p, err := s.await(ctx, node)
	if err != nil {
		return nil, err
	}
	if err := s.allowMany(ctx, q, p); err != nil {
		return nil, err
	}
	here := []*pb.Topology{s.topology(node)}
	q = proto.CloneOf(q)
	q.AccessibilityRequirements = &pb.TopologyRequirement{Requisite: here, Preferred: here}
	answer, err := pb.NewControllerClient(p).CreateVolume(ctx, q)
	if err != nil {
		return nil, err
	}
	v, limit := answer.GetVolume(), q.GetCapacityRange().GetLimitBytes()
	if v.GetVolumeId() != q.GetName() || v.GetCapacityBytes() < q.GetCapacityRange().GetRequiredBytes() ||
		(limit > 0 && v.GetCapacityBytes() > limit) {
		return nil, status.Errorf(codes.Internal, "node %s was asked for volume %s and answered about another: id %.128q, "+
			"%s", node, q.GetName(), v.GetVolumeId(), bytesize.Format(v.GetCapacityBytes()))
	}
	v.AccessibleTopology, v.ContentSource = here, q.GetVolumeContentSource() // no node speaks for another
	v.VolumeContext = csi.Attributes(v.GetVolumeContext(), q.GetParameters(),
		poolspec.DefaultPool(s.Shared.Names, q.GetParameters()[names.StoragePoolParameter]))
	if s.sharedPoolOf(q) != "" {
		v.AccessibleTopology = nil
	}
	s.forgetDeletion(q.GetName()) // one may have begun before, and ended meanwhile
	s.reportUnenforced(q, v.GetVolumeContext(), node)
	return answer, nil
}

// maxUnenforced is how many classes are remembered.
const maxUnenforced = 1000

// reportUnenforced tells the owner of a claim that nothing keeps its volume to its size: the first of each class, for
// the volume's attribute says it of all.
func (s *Server) reportUnenforced(q *pb.CreateVolumeRequest, attributes map[string]string, node string) {
	claim := claimOf(q)
	if claim.Name == "" || !csi.NotEnforced(attributes) {
		return
	}
	class := fmt.Sprint(attributes) // printed in the order of its keys
	s.mu.Lock()
	told := s.unenforced[class] || len(s.unenforced) >= maxUnenforced
	s.unenforced[class] = true
	s.mu.Unlock()
	if !told {
		s.Events.TellClaim(claim, "Normal", "SizeNotEnforced", fmt.Sprintf("pool %s has no quota on node %s: nothing keeps "+
			"this volume, or others of its StorageClass, to its size; each has the attribute enforcement=none",
			attributes[names.StoragePoolParameter], node))
	}
}

// DeleteVolume implements csi.ControllerServer. It goes to the one node that has the volume; of a node that is gone,
// the volume is let go.
func (s *Server) DeleteVolume(ctx context.Context, q *pb.DeleteVolumeRequest) (*pb.DeleteVolumeResponse, error) {
	id := q.GetVolumeId()
	if err := csi.CheckVolumeID("volume_id", id); err != nil {
		return nil, err
	}
	if err := s.deletable(id); err != nil {
		return nil, err
	}
	begun, done := s.beginDeletion(id)
	if done {
		return &pb.DeleteVolumeResponse{}, nil
	}
	node, in, err := s.locate(ctx, id)
	if err != nil {
		return nil, err
	}
	if node == "" {
		return s.deleteUnseen(ctx, q)
	}
	p, err := s.peer(node)
	if err != nil {
		released, unknown := s.release(ctx, id, node)
		if unknown != nil {
			return nil, status.Errorf(codes.Unavailable, "see whether node %s, which is not connected, is gone: %v",
				node, unknown)
		}
		if !released {
			return nil, err
		}
		return &pb.DeleteVolumeResponse{}, nil
	}
	answer, err := pb.NewControllerClient(p).DeleteVolume(ctx, q)
	if err == nil && s.Shared.Everywhere(in) {
		err = s.confirm(ctx, in, id, node)
	}
	if err != nil {
		return nil, err
	}
	s.endDeletion(id, begun)
	return answer, nil
}

// deletable refuses a volume that several PersistentVolumes name, on whichever nodes: a call names none of them, and
// the data is that of the others too.
func (s *Server) deletable(id string) error {
	if !s.Fleet.Synced() {
		return status.Errorf(codes.Unavailable, "waiting for the Kubernetes API to say which PersistentVolumes have the "+
			"volumeHandle %s", id)
	}
	if known := s.PVs.Known(id); len(known) > 1 {
		names := make([]string, len(known))
		for i, pv := range known {
			names[i] = pv.Name
		}
		return status.Errorf(codes.FailedPrecondition, "PersistentVolumes %s all have the volumeHandle %s, and its data is "+
			"theirs; keep one of them, and set the reclaim policy of the others to Retain before you delete them",
			abridge.Names(names), id)
	}
	return nil
}

// deleteUnseen answers for a volume that no node has shown. Where a PersistentVolume names it, a node says whether it
// is gone, if there is one a node that has its pool: nobody has looked into a pool that no node knows any more.
func (s *Server) deleteUnseen(ctx context.Context, q *pb.DeleteVolumeRequest) (*pb.DeleteVolumeResponse, error) {
	id := q.GetVolumeId()
	pv, named, err := s.PVs.Get(ctx, id)
	if err != nil {
		return nil, status.Errorf(codes.Unavailable, "see which PersistentVolume names %s: %v", id, err)
	}
	if !named {
		return &pb.DeleteVolumeResponse{}, nil
	}
	peers := s.Fleet.All()
	if len(peers) == 0 {
		return nil, status.Errorf(codes.Unavailable, "no node is connected that could say where volume %s is", id)
	}
	name := s.Shared.PoolOf(pv)
	has := func(p *fleet.Peer) bool { return p.Pool(name).Served() }
	p := peers[max(0, slices.IndexFunc(peers, has))]
	answer, err := pb.NewControllerClient(p).DeleteVolume(ctx, q)
	if err != nil {
		said := status.Convert(err).Proto()
		said.Message = "node " + p.Name + ": " + said.GetMessage()
		return nil, status.ErrorProto(said)
	}
	return answer, nil
}

// release reports whether a volume may be forgotten because its node is gone, or because an administrator gave it up.
// The PersistentVolume's event says that data may be left.
func (s *Server) release(ctx context.Context, id, node string) (bool, error) {
	pv, ok, err := s.PVs.Get(ctx, id)
	if err != nil || !ok {
		return false, err
	}
	why := fmt.Sprintf("its annotation gives up what is on node %s", node)
	if pv.Released != node {
		if lost, err := s.Fleet.IsGone(ctx, node); err != nil || !lost {
			return false, err
		}
		why = fmt.Sprintf("node %s is gone", node)
	}
	s.Events.TellVolume(pv, "VolumeReleased",
		why+": the volume counts as deleted; its data may be left on that node's disk")
	return true, nil
}

// ControllerExpandVolume implements csi.ControllerServer.
func (s *Server) ControllerExpandVolume(
	ctx context.Context, q *pb.ControllerExpandVolumeRequest,
) (*pb.ControllerExpandVolumeResponse, error) {
	client, err := s.client(ctx, q.GetVolumeId())
	if err != nil {
		return nil, err
	}
	return client.ControllerExpandVolume(ctx, q)
}

// ValidateVolumeCapabilities implements csi.ControllerServer.
func (s *Server) ValidateVolumeCapabilities(
	ctx context.Context, q *pb.ValidateVolumeCapabilitiesRequest,
) (*pb.ValidateVolumeCapabilitiesResponse, error) {
	client, err := s.client(ctx, q.GetVolumeId())
	if err != nil {
		return nil, err
	}
	return client.ValidateVolumeCapabilities(ctx, q)
}

// client gives the node of a volume that must be there.
func (s *Server) client(ctx context.Context, id string) (pb.ControllerClient, error) {
	if err := csi.CheckVolumeID("volume_id", id); err != nil {
		return nil, err
	}
	node, _, err := s.locate(ctx, id)
	if err == nil && node == "" {
		err = status.Errorf(codes.NotFound, "no node has volume %s", id)
	}
	if err != nil {
		return nil, err
	}
	p, err := s.peer(node)
	if err != nil {
		return nil, err
	}
	return pb.NewControllerClient(p), nil
}

// GetCapacity implements csi.ControllerServer from what the nodes have said last. An error leaves the figures that are
// published: so it is while a node is away, until the scheduler is to choose another.
func (s *Server) GetCapacity(_ context.Context, q *pb.GetCapacityRequest) (*pb.GetCapacityResponse, error) {
	name := poolspec.DefaultPool(s.Shared.Names, q.GetParameters()[names.StoragePoolParameter])
	segments := q.GetAccessibleTopology().GetSegments()
	if q.GetAccessibleTopology() == nil { // nobody in Kubernetes asks this
		var room, largest int64
		for _, p := range s.Fleet.All() {
			r, l, _ := s.room(p.Name, name)
			room, largest = max(room, r), max(largest, l)
		}
		return csi.Capacity(room, largest), nil
	}
	node := segments[s.TopologyKey]
	room, largest, known := s.room(node, name)
	_, away := s.peer(node)
	switch {
	case known:
	case away == nil:
		return nil, status.Errorf(codes.Unavailable, "node %s has not shown its pools yet", node)
	case s.Fleet.Away(node) < s.Fleet.NodeGrace:
		return nil, away
	}
	return csi.Capacity(room, largest), nil
}

// room is what a pool has on a node that is connected; known is false where the node has not said so yet.
func (s *Server) room(node, name string) (room, largest int64, known bool) {
	p := s.Fleet.Get(node)
	if p == nil {
		return 0, 0, false
	}
	is := p.Pool(name)
	pools, _ := p.Pools()
	if s.Shared.Everywhere(name) && is.Allocatable > 0 {
		room, largest = s.Shared.Room(name)
		return room, largest, pools != nil
	}
	return is.Growable, is.Allocatable, pools != nil
}
