package csi

import (
	"context"

	pb "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi/wire"
)

// Moving is a volume that is brought to another node. It is one that leaves its own: nothing of it changes.
type Moving struct {
	ID, From, To string
	Move         string // which move it is
	Bytes        int64
	Parameters   map[string]string // as of a StorageClass
}

// request asks for the volume on its new node.
func (m Moving) request(topologyKey string) *pb.CreateVolumeRequest {
	here := []*pb.Topology{{Segments: map[string]string{topologyKey: m.To}}}
	source := &pb.VolumeContentSource_VolumeSource{VolumeId: m.ID}
	return &pb.CreateVolumeRequest{
		Name: m.ID, Parameters: m.Parameters,
		CapacityRange:             &pb.CapacityRange{RequiredBytes: m.Bytes}, // which is rounded up to whole blocks
		AccessibilityRequirements: &pb.TopologyRequirement{Requisite: here, Preferred: here},
		VolumeContentSource: &pb.VolumeContentSource{
			Type: &pb.VolumeContentSource_Volume{Volume: source},
		},
		VolumeCapabilities: []*pb.VolumeCapability{{
			AccessType: &pb.VolumeCapability_Mount{Mount: &pb.VolumeCapability_MountVolume{}},
			AccessMode: &pb.VolumeCapability_AccessMode{Mode: pb.VolumeCapability_AccessMode_SINGLE_NODE_WRITER},
		}},
	}
}

// Remove deletes what there is of a volume on a node.
func (c *Controller) Remove(ctx context.Context, node, id string) error {
	p, err := c.Fleet.Peer(node)
	if err == nil {
		_, err = pb.NewControllerClient(p).DeleteVolume(ctx, &pb.DeleteVolumeRequest{VolumeId: id})
	}
	return err
}

// Bring makes a volume of what is of the same volume on another node. It is Aborted until all is there, and is then to
// be asked for again.
func (c *Controller) Bring(ctx context.Context, m Moving) error {
	source, err := c.Fleet.Peer(m.From)
	if err != nil {
		return err
	}
	target, err := c.Fleet.Peer(m.To)
	if err != nil {
		return err
	}
	c.deletions.forget(m.ID)
	from := wire.Source{ID: m.ID, Bytes: m.Bytes, Move: m.Move}
	answer, err := c.bring(ctx, m.request(c.Fleet.TopologyKey), way{from, source, target})
	if err == nil && answer.GetVolume().GetVolumeId() != from.ID {
		err = status.Errorf(codes.Internal, "node %s was asked for volume %s and answered about another", m.To, from.ID)
	}
	return err
}
