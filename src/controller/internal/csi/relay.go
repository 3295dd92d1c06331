package csi

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"time"

	pb "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/controller/internal/fleet"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/logging"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi/wire"
)

// copyNode gives the node for a new volume whose node would be source: for a copy that is where its pod is to run, if
// that is known, unless the class says otherwise, or an earlier request has begun at the source. A volume that a pod
// uses is copied where it is.
func (c *Controller) copyNode(
	ctx context.Context, q *pb.CreateVolumeRequest, source *fleet.Peer, pod string,
) (*fleet.Peer, error) {
	if q.GetVolumeContentSource() == nil || !source.Has(wire.FeatureCopy) ||
		q.GetParameters()[nodeapi.KeyRestoreTo] == nodeapi.RestoreToSource {
		return source, nil
	}
	if pod == "" || pod == source.Name {
		return source, nil
	}
	allowed, err := c.allowedNodes(q.GetAccessibilityRequirements())
	if err == nil {
		err = checkAllowed(allowed, pod)
	}
	if err != nil {
		return nil, err
	}
	// A pool of that node may be absent: it makes no difference to what is in the others.
	if _, begun, _ := source.Find(ctx, q.GetName()); begun {
		return source, nil
	}
	target, err := c.awaitPeer(ctx, pod)
	if err != nil {
		return nil, err
	}
	if stays, err := c.staysAtSource(ctx, q, source, target); stays || err != nil {
		return source, err
	}
	return target, nil
}

// staysAtSource reports whether another node cannot have a copy: its driver is older, or the source is a volume that a
// pod uses, unless the copy has begun there.
func (c *Controller) staysAtSource(
	ctx context.Context, q *pb.CreateVolumeRequest, source, target *fleet.Peer,
) (bool, error) {
	if !target.Has(wire.FeatureCopy) {
		return true, nil
	}
	of := q.GetVolumeContentSource().GetVolume()
	if of == nil {
		return false, nil
	}
	if _, begun, _ := target.Find(ctx, q.GetName()); begun {
		return false, nil
	}
	is, err := volumeOn(ctx, source, of.GetVolumeId())
	return len(is.GetStatus().GetPublishedNodeIds()) > 0, err
}

// volumeOn gives what a node says of a volume.
func volumeOn(ctx context.Context, p *fleet.Peer, id string) (*pb.ControllerGetVolumeResponse, error) {
	return pb.NewControllerClient(p).ControllerGetVolume(ctx, &pb.ControllerGetVolumeRequest{VolumeId: id})
}

// createOn makes a volume on a node. Where its source is on another one, that node's data is brought to it.
func (c *Controller) createOn(
	ctx context.Context, q *pb.CreateVolumeRequest, source, target *fleet.Peer, pod string,
) (*pb.CreateVolumeResponse, error) {
	if source == target {
		if err := c.checkPodCanFollow(ctx, q, source, pod); err != nil {
			return nil, err
		}
		answer, err := pb.NewControllerClient(target).CreateVolume(ctx, q)
		if err != nil {
			err = c.noteRefusal(q, target.Name, err)
		}
		return answer, err
	}
	from, err := c.sourceOn(ctx, q.GetVolumeContentSource(), source)
	if err != nil {
		return nil, err
	}
	return c.bring(ctx, q, way{from, source, target})
}

// way is how data goes from node to node.
type way struct {
	from           wire.Source
	source, target *fleet.Peer
}

// bring makes a volume of what is on another node, and waits a moment for its data.
func (c *Controller) bring(ctx context.Context, q *pb.CreateVolumeRequest, w way) (*pb.CreateVolumeResponse, error) {
	client, about := pb.NewControllerClient(w.target), wire.WithSource(ctx, w.from)
	answer, err := client.CreateVolume(about, q)
	if status.Code(err) != codes.Aborted {
		return answer, err
	}
	ended, why := c.relays.await(ctx, q.GetName(), w)
	if !ended {
		if why != nil {
			err = status.Errorf(codes.Aborted, "%s; it waits: %v", status.Convert(err).Message(), why)
		}
		return answer, err
	}
	answer, err = client.CreateVolume(about, q)
	if why != nil && status.Code(err) == codes.Aborted { // the target does not know what the source has said
		err = status.Errorf(codes.Aborted, "%s; its data has not all come: %v", status.Convert(err).Message(), why)
	}
	return answer, err
}

// sourceOn gives the source of a copy, which is on a node, with its size.
func (c *Controller) sourceOn(
	ctx context.Context, of *pb.VolumeContentSource, p *fleet.Peer,
) (is wire.Source, err error) {
	if of.GetVolume() != nil {
		v, err := volumeOn(ctx, p, of.GetVolume().GetVolumeId())
		return wire.Source{ID: of.GetVolume().GetVolumeId(), Bytes: v.GetVolume().GetCapacityBytes()}, err
	}
	id := of.GetSnapshot().GetSnapshotId()
	page, err := c.listSnapshotsOn(ctx, p, &pb.ListSnapshotsRequest{SnapshotId: id})
	if err == nil && len(page.GetEntries()) != 1 {
		err = status.Errorf(codes.NotFound, "node %s has no snapshot %s", p.Name, id)
	}
	if err != nil {
		return is, err
	}
	return wire.Source{ID: id, Bytes: page.GetEntries()[0].GetSnapshot().GetSizeBytes()}, nil
}

// relays are the copies that are on their way from node to node, by the ids of the new volumes.
type relays struct {
	log *slog.Logger
	mu  sync.Mutex
	all map[string]*relay
}

// relay is one of them.
type relay struct {
	way
	ended chan struct{}
	err   error // once it has ended
}

const (
	// relayWait is how long a request waits for its data.
	relayWait = 5 * time.Second
	// maxRelays is how many copies a node reads, and writes, for others at once: each takes about a megabyte there.
	maxRelays = 16
)

// await begins to bring a volume its data, unless that is under way, and reports whether that has ended in time, and
// why before all was there, or why it has not begun.
func (r *relays) await(ctx context.Context, id string, w way) (ended bool, err error) {
	r.mu.Lock()
	is, ok := r.all[id]
	if !ok || is.way != w { // the node ends the older one
		if busy := r.busy(w.source, w.target); busy != "" {
			r.mu.Unlock()
			return false, fmt.Errorf("node %s is in %d copies from node to node already: this one waits for its turn",
				busy, maxRelays)
		}
		is = &relay{way: w, ended: make(chan struct{})}
		r.all[id] = is
		go r.run(context.WithoutCancel(ctx), is, id)
	}
	r.mu.Unlock()
	timer := time.NewTimer(relayWait)
	defer timer.Stop()
	select {
	case <-is.ended:
		return true, is.err
	case <-timer.C:
	case <-ctx.Done():
	}
	return false, nil
}

// busy is the node that takes no further copy, "" where both do. It needs the lock.
func (r *relays) busy(source, target *fleet.Peer) string {
	reads, writes := 0, 0
	for _, is := range r.all {
		if is.source == source {
			reads++
		}
		if is.target == target {
			writes++
		}
	}
	switch {
	case reads >= maxRelays:
		return source.Name
	case writes >= maxRelays:
		return target.Name
	}
	return ""
}

func (r *relays) run(ctx context.Context, is *relay, id string) {
	r.log.InfoContext(ctx, "bringing data from node to node", logging.KeyID, id, logging.KeyNode, is.target.Name)
	err := is.move(ctx, id)
	if is.err = err; err != nil {
		r.log.WarnContext(ctx, "data is not all there; that goes on, or ends, when the volume is asked for again",
			logging.KeyID, id, logging.KeyNode, is.target.Name, logging.KeyError, err)
	}
	r.mu.Lock()
	if r.all[id] == is {
		delete(r.all, id)
	}
	r.mu.Unlock()
	close(is.ended)
}

// move hands batches on, as fast as the slower node takes or gives them. It does not look into them, and has one in
// memory, besides what gRPC's windows allow.
func (is *relay) move(ctx context.Context, id string) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	fill, err := wire.NewCopiesClient(is.target).Fill(ctx)
	if err != nil {
		return err
	}
	first := &wire.FillResponse{}
	if err = fill.Send(&wire.FillRequest{Id: id}); err == nil {
		first, err = fill.Recv()
	}
	if err == nil {
		err = is.handOn(ctx, fill, &wire.ReadRequest{Id: is.from.ID, From: first.GetFrom(), Move: is.from.Move})
	}
	if err == nil {
		err = fill.CloseSend()
	}
	if err == nil || errors.Is(err, io.EOF) { // the stream has ended, or is to; now it says how
		_, err = fill.Recv()
	}
	if errors.Is(err, io.EOF) {
		return nil
	}
	return fmt.Errorf("fill volume %s on node %s: %s", id, is.target.Name, status.Convert(err).Message())
}

// maxBatch is the largest batch that a node sends, in bytes (tunnel.proto): more than any other message.
const maxBatch = 3 << 20

// handOn hands on what the source gives. A source that cannot be copied ends the copy: nothing of that is to be left
// when whoever asked for it hears why.
func (is *relay) handOn(ctx context.Context, fill wire.Copies_FillClient, from *wire.ReadRequest) error {
	read, err := wire.NewCopiesClient(is.source).Read(ctx, from, grpc.MaxCallRecvMsgSize(maxBatch))
	for err == nil {
		var b *wire.Batch
		b, err = read.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			break
		}
		if err := fill.Send(&wire.FillRequest{Batch: b}); err != nil {
			return err
		}
	}
	switch said := status.Convert(err); said.Code() {
	case codes.FailedPrecondition, codes.NotFound, codes.InvalidArgument, codes.DataLoss:
		return fill.Send(&wire.FillRequest{Failed: fmt.Sprintf("node %s: %s", is.source.Name, said.Message())})
	default:
		return fmt.Errorf("read %s on node %s: %s", from.GetId(), is.source.Name, said.Message())
	}
}
