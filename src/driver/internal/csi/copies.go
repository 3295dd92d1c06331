package csi

import (
	"context"
	"fmt"
	"hash/crc32"

	"google.golang.org/grpc"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/store"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/volume"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/csi"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/kernel/copytree"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi/wire"
)

// copies is the service by which the controller brings data from one node to another.
type copies struct {
	wire.UnimplementedCopiesServer
	Copies
}

func (c copies) Read(q *wire.ReadRequest, out grpc.ServerStreamingServer[wire.Batch]) error {
	err := csi.CheckVolumeID("id", q.GetId())
	if err == nil {
		source := store.Source{Kind: store.OfVolume, ID: q.GetId(), Move: q.GetMove()}
		if nodeapi.IsSnapshotID(q.GetId()) {
			source.Kind = store.OfSnapshot
		}
		err = c.Copies.Read(out.Context(), source, q.GetFrom(), func(b copytree.Batch) error {
			return out.Send(&wire.Batch{
				Entries: b.Entries, Next: b.Next, Crc32C: checksum(b.Entries, b.Next), Files: b.Files, Bytes: b.Bytes,
				Last: b.Last,
			})
		})
	}
	return toStatus(read, err)
}

// checksum covers the way through the controller, on which TLS looks after each half.
func checksum(parts ...[]byte) (sum uint32) {
	for _, part := range parts {
		sum = crc32.Update(sum, crc32.MakeTable(crc32.Castagnoli), part)
	}
	return sum
}

func (c copies) Fill(stream grpc.BidiStreamingServer[wire.FillRequest, wire.FillResponse]) error {
	first, err := stream.Recv()
	if err != nil {
		return err
	}
	err = csi.CheckVolumeID("id", first.GetId())
	if err == nil {
		err = c.Copies.Fill(stream.Context(), first.GetId(), batchesOf(stream))
	}
	return toStatus(create, err)
}

// batchesOf gives the batches that a stream brings, to who may have to leave before the next one.
func batchesOf(stream grpc.BidiStreamingServer[wire.FillRequest, wire.FillResponse]) volume.Source {
	type received struct {
		copytree.Batch
		err error
	}
	return func(_ context.Context, from []byte) (func(context.Context) (copytree.Batch, error), error) {
		if err := stream.Send(&wire.FillResponse{From: from}); err != nil {
			return nil, fmt.Errorf("%w: %w", volume.ErrBusy, err)
		}
		batches := make(chan received)
		go func() {
			for {
				b, err := receive(stream)
				select {
				case batches <- received{b, err}:
				case <-stream.Context().Done():
				}
				if err != nil {
					return
				}
			}
		}()
		return func(ctx context.Context) (copytree.Batch, error) {
			select {
			case r := <-batches:
				return r.Batch, r.err
			case <-stream.Context().Done():
				return copytree.Batch{}, fmt.Errorf("%w: its data comes no more", volume.ErrBusy)
			case <-ctx.Done():
				return copytree.Batch{}, context.Cause(ctx)
			}
		}, nil
	}
}

// receive takes the next batch. Whatever is wrong with it, another stream may bring it.
func receive(stream grpc.BidiStreamingServer[wire.FillRequest, wire.FillResponse]) (b copytree.Batch, err error) {
	q, err := stream.Recv()
	if err != nil {
		return b, fmt.Errorf("%w: its data comes no more: %w", volume.ErrBusy, err)
	}
	if why := q.GetFailed(); why != "" {
		return b, fmt.Errorf("%w: %s", volume.ErrSource, why)
	}
	is := q.GetBatch()
	if is == nil || is.GetCrc32C() != checksum(is.GetEntries(), is.GetNext()) || min(is.GetBytes(), is.GetFiles()) < 0 {
		return b, fmt.Errorf("%w: a batch was damaged on its way", volume.ErrBusy)
	}
	return copytree.Batch{
		Entries: is.GetEntries(), Next: is.GetNext(), Files: is.GetFiles(), Bytes: is.GetBytes(), Last: is.GetLast(),
	}, nil
}
