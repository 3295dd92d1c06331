package csitest

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"

	pb "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/link/linktest"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi/wire"
)

// copies is a node's end of copies. A position is how many batches are before it, and each batch is a call.
type copies struct {
	wire.UnimplementedCopiesServer
	*Node
}

// fill is a copy that is being made; newest is the call that writes it, failed why it has ended, until that is said.
type fill struct {
	batches []*wire.Batch
	newest  grpc.ServerStream
	failed  string
}

func (f *fill) whole() bool { return len(f.batches) > 0 && f.batches[len(f.batches)-1].GetLast() }

// Read implements wire.CopiesServer.
func (c copies) Read(q *wire.ReadRequest, out grpc.ServerStreamingServer[wire.Batch]) error {
	from, err := strconv.Atoi(string(q.GetFrom()))
	for i := from; i < len(c.Batches) && err == nil; i++ {
		if err = c.called(out.Context(), fmt.Sprint("read ", i)); err == nil {
			err = out.Send(c.Batches[i])
		}
	}
	return err
}

// Fill implements wire.CopiesServer. The newest one of a volume wins.
func (c copies) Fill(stream grpc.BidiStreamingServer[wire.FillRequest, wire.FillResponse]) error {
	q, err := stream.Recv()
	if err != nil {
		return err
	}
	c.mu.Lock()
	f := c.fills[q.GetId()]
	f.newest = stream
	at := len(f.batches)
	c.mu.Unlock()
	err = stream.Send(&wire.FillResponse{From: []byte(strconv.Itoa(at))})
	for whole := false; err == nil && !whole; at++ {
		if q, err = stream.Recv(); err == nil {
			err = c.called(stream.Context(), fmt.Sprint("fill ", at))
		}
		c.mu.Lock()
		switch {
		case err == nil && f.newest != stream:
			err = status.Error(codes.Aborted, "a newer one fills it")
		case q.GetFailed() != "":
			err = status.Error(codes.FailedPrecondition, q.GetFailed())
			f.failed, f.batches = q.GetFailed(), nil
		case err == nil:
			f.batches = append(f.batches, q.GetBatch())
		}
		whole = f.whole()
		c.mu.Unlock()
	}
	return err
}

// awaitsData says that a volume is not whole whose source is on another node.
func (n *Node) awaitsData(ctx context.Context, q *pb.CreateVolumeRequest) error {
	of := q.GetVolumeContentSource()
	if wire.SourceOf(ctx, cmp.Or(of.GetSnapshot().GetSnapshotId(), of.GetVolume().GetVolumeId())).Bytes != GiB {
		return nil
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.fills[q.GetName()] == nil {
		n.fills[q.GetName()] = &fill{}
	}
	f := n.fills[q.GetName()]
	switch failed := f.failed; {
	case failed != "":
		f.failed = ""
		return status.Error(codes.FailedPrecondition, failed)
	case !f.whole():
		return status.Errorf(codes.Aborted, "%d batches are copied", len(f.batches))
	default:
		return nil
	}
}

// ControllerGetVolume implements csi.ControllerServer.
func (n *Node) ControllerGetVolume(
	ctx context.Context, q *pb.ControllerGetVolumeRequest,
) (answer *pb.ControllerGetVolumeResponse, err error) {
	err = n.Volumes(ctx, func(v nodeapi.VolumeStatus) error {
		if v.ID == q.GetVolumeId() {
			answer = &pb.ControllerGetVolumeResponse{
				Volume: &pb.Volume{VolumeId: v.ID, CapacityBytes: v.Bytes},
				Status: &pb.ControllerGetVolumeResponse_VolumeStatus{},
			}
			if v.Published {
				answer.Status.PublishedNodeIds = []string{n.Name}
			}
		}
		return nil
	})
	if err == nil && answer == nil {
		err = status.Errorf(codes.NotFound, "node %s has no volume %s", n.Name, q.GetVolumeId())
	}
	return answer, err
}

// Filled are the batches that a volume was filled with, in their order.
func (n *Node) Filled(id string) []*wire.Batch {
	n.mu.Lock()
	defer n.mu.Unlock()
	if f := n.fills[id]; f != nil {
		return slices.Clone(f.batches)
	}
	return nil
}

// Restore asks for a volume of a claim that begins as what is in source, and gives its node; to is the class's
// restoreTo.
func (r Controller) Restore(
	ctx context.Context, uid string, source *pb.VolumeContentSource, to string, nodes ...string,
) (at string, err error) {
	answer, err := r.CreateVolume(ctx, copyRequest(uid, source, to, nodes...))
	if err == nil {
		at = answer.GetVolume().GetAccessibleTopology()[0].GetSegments()[linktest.TopologyKey]
	}
	return at, err
}
