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
	Request  *pb.CreateVolumeRequest // of the volume there
	From, To string
	Move     string // which move it is
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
	c.deletions.forget(m.Request.GetName())
	from := wire.Source{ID: m.Request.GetName(), Bytes: m.Request.GetCapacityRange().GetRequiredBytes(), Move: m.Move}
	answer, err := c.bring(ctx, m.Request, way{from, source, target})
	if err == nil && answer.GetVolume().GetVolumeId() != from.ID {
		err = status.Errorf(codes.Internal, "node %s was asked for volume %s and answered about another", m.To, from.ID)
	}
	return err
}
