package csi

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/controller/internal/fleet"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/logging"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi/wire"
)

// relays are the copies that are on their way from node to node, by the ids of the new volumes.
type relays struct {
	log *slog.Logger
	now func() time.Time
	// wait is how long a request waits for its data.
	wait time.Duration
	mu   sync.Mutex
	all  map[string]*relay
}

// relay is one of them.
type relay struct {
	way
	now    func() time.Time
	silent atomic.Pointer[silence]
	cancel context.CancelCauseFunc
	ended  chan struct{}
	err    error // once it has ended
}

// silence is the node that a relay waits for, and since when.
type silence struct {
	node  string
	since time.Time
}

func (is *relay) waitFor(p *fleet.Peer) { is.silent.Store(&silence{p.Name, is.now()}) }

const (
	// relayWait is the wait of relays.
	relayWait = 5 * time.Second
	// maxRelays is how many copies a node reads, and writes, for others at once: each takes about a megabyte there.
	maxRelays = 16
	// maxSilence is after how long a relay whose node is silent is ended where another copy waits for its turn. No
	// other relay is ended for its silence, since nodes that do their work are silent too: for minutes while they make
	// what they have written durable, and after the last batch until all hard links are looked after; and a copy of a
	// volume that is interrupted begins anew.
	maxSilence = 5 * time.Minute
)

var (
	errReplaced   = errors.New("its source has changed, or a node has connected anew: another has taken its place")
	errTwoAnswers = errors.New("it has answered twice")
)

// await begins to bring a volume its data, unless that is under way, and reports whether that has ended in time, and
// why before all was there, or why it has not begun.
func (r *relays) await(ctx context.Context, id string, w way) (ended bool, err error) {
	is, err := r.joinRelay(ctx, id, w)
	if err != nil {
		return false, err
	}
	timer := time.NewTimer(r.wait)
	defer timer.Stop()
	select {
	case <-is.ended:
		return true, is.err
	case <-timer.C:
	case <-ctx.Done():
	}
	return false, nil
}

// joinRelay gives the relay that brings a volume its data in this way. It begins one unless that is under way, and ends
// one that brings the data in another way.
func (r *relays) joinRelay(ctx context.Context, id string, w way) (*relay, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if is, ok := r.all[id]; ok && is.way == w {
		return is, nil
	}
	r.endRelay(id, errReplaced)
	if err := r.makePlace(w); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	is := &relay{way: w, now: r.now, cancel: cancel, ended: make(chan struct{})}
	is.waitFor(w.target)
	r.all[id] = is
	go r.run(ctx, is, id)
	return is, nil
}

// endRelay cancels a relay, if there is one, which does not count any more. It needs the lock.
func (r *relays) endRelay(id string, why error) {
	if is, ok := r.all[id]; ok {
		is.cancel(why)
		delete(r.all, id)
	}
}

// makePlace gives an error where a node takes no further copy. Of a node that is in as many as it may, the relay that
// waits longest gives its place up, after maxSilence. It needs the lock.
func (r *relays) makePlace(w way) error {
	var silent []string
	for _, side := range []struct {
		node string
		uses func(*relay) bool
	}{
		{w.source.Name, func(is *relay) bool { return is.source == w.source }},
		{w.target.Name, func(is *relay) bool { return is.target == w.target }},
	} {
		count, longest, since := 0, "", r.now()
		for id, is := range r.all {
			if !side.uses(is) {
				continue
			}
			count++
			if s := is.silent.Load().since; longest == "" || s.Before(since) {
				longest, since = id, s
			}
		}
		if count < maxRelays {
			continue
		}
		if r.now().Sub(since) < maxSilence {
			return fmt.Errorf("node %s is in %d copies from node to node already: this one waits for its turn",
				side.node, maxRelays)
		}
		silent = append(silent, longest)
	}
	for _, id := range silent {
		if is, ok := r.all[id]; ok {
			s := is.silent.Load()
			r.endRelay(id, fmt.Errorf("node %s was silent for %s, and another copy has taken this one's place; it "+
				"goes on when the volume is asked for again", s.node, r.now().Sub(s.since).Round(time.Second)))
		}
	}
	return nil
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
	is.cancel(nil)
	close(is.ended)
}

// move has the target say where the data is to begin, and hands on what is behind that.
func (is *relay) move(ctx context.Context, id string) error {
	streams, cancel := context.WithCancel(ctx)
	defer cancel()
	fill, err := wire.NewCopiesClient(is.target).Fill(streams)
	first := &wire.FillResponse{}
	if err == nil {
		err = fill.Send(&wire.FillRequest{Id: id})
	}
	if err == nil || errors.Is(err, io.EOF) { // the stream has ended; now it says how
		first, err = fill.Recv()
	}
	if err == nil {
		err = is.fillFrom(streams, fill, &wire.ReadRequest{Id: is.from.ID, From: first.GetFrom(), Move: is.from.Move})
	}
	if errors.Is(err, io.EOF) {
		return nil
	}
	err = cmp.Or(context.Cause(ctx), err) // a stream knows only that it was cancelled
	return fmt.Errorf("fill volume %s on node %s: %s", id, is.target.Name, status.Convert(err).Message())
}

// fillFrom hands on what the source gives until the target ends it, which is io.EOF where all is there. Nothing is read
// for a target that has ended.
func (is *relay) fillFrom(ctx context.Context, fill wire.Copies_FillClient, from *wire.ReadRequest) error {
	reading, stop := context.WithCancelCause(ctx)
	go func() {
		_, err := fill.Recv()
		stop(cmp.Or(err, errTwoAnswers))
	}()
	err := is.handOn(reading, fill, from)
	if err == nil {
		err = fill.CloseSend()
	}
	if err == nil || errors.Is(err, io.EOF) {
		is.waitFor(is.target)
		<-reading.Done()
	}
	return cmp.Or(context.Cause(reading), err)
}

// maxBatch is the largest batch that a node sends, in bytes (tunnel.proto): more than any other message.
const maxBatch = 3 << 20

// handOn hands batches on, as fast as the slower node takes or gives them. It does not look into them, and has one in
// memory, besides what gRPC's windows allow. A source that cannot be copied ends the copy: nothing of that is to be
// left when whoever asked for it hears why.
func (is *relay) handOn(ctx context.Context, fill wire.Copies_FillClient, from *wire.ReadRequest) error {
	is.waitFor(is.source)
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
		is.waitFor(is.target)
		if err := fill.Send(&wire.FillRequest{Batch: b}); err != nil {
			return err
		}
		is.waitFor(is.source)
	}
	switch said := status.Convert(err); said.Code() {
	case codes.FailedPrecondition, codes.NotFound, codes.InvalidArgument, codes.DataLoss:
		return fill.Send(&wire.FillRequest{Failed: fmt.Sprintf("node %s: %s", is.source.Name, said.Message())})
	default:
		return fmt.Errorf("read %s on node %s: %s", from.GetId(), is.source.Name, said.Message())
	}
}
