package fleet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/logging"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi/wire"
)

// maxMessage bounds what a node sends at once, in bytes.
const maxMessage = 1 << 20

// Listen takes the address that nodes connect to.
func (f *Fleet) Listen(ctx context.Context) (net.Listener, error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", f.Address)
	if err != nil {
		return nil, fmt.Errorf("listen for nodes (--tunnel-address): %w", err)
	}
	return listener, nil
}

// Serve accepts nodes until ctx ends, and then closes all connections.
func (f *Fleet) Serve(ctx context.Context, listener net.Listener) error {
	var connections sync.WaitGroup
	defer connections.Wait()
	ctx, stop := context.WithCancel(ctx)
	defer stop() // also where nodes can be accepted no more
	defer context.AfterFunc(ctx, func() { _ = listener.Close() })()
	f.Log.InfoContext(ctx, "waiting for nodes", logging.KeyAddress, listener.Addr().String())
	connections.Go(func() { f.refusals.logRegularly(ctx, f.Log) })
	for {
		conn, err := listener.Accept()
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return fmt.Errorf("accept nodes: %w", err)
		}
		own, cancel := context.WithCancelCause(ctx)
		n := f.unauthenticated.add(conn, cancel)
		connections.Go(func() {
			defer close(n.ended)
			defer cancel(nil)
			err := f.serveNode(own, n)
			_ = n.Close()
			f.unauthenticated.remove(n)
			switch {
			case err == nil || ctx.Err() != nil:
			case n.isKnown():
				f.Log.WarnContext(ctx, "a node's connection has ended", logging.KeyAddress, n.address,
					logging.KeyError, err)
			default:
				f.refusals.add(n.address, err)
			}
		})
	}
}

// serveNode is one connection, from its first byte to its last.
func (f *Fleet) serveNode(ctx context.Context, n *newcomer) error {
	peer, stream, err := f.logIn(ctx, n)
	if err != nil {
		return err
	}
	defer func() { _ = peer.client.Close() }()
	peer.expiry = time.AfterFunc(time.Until(peer.expires), func() {
		peer.Close(errors.New("its token has expired, and it has shown no other"))
	})
	defer peer.expiry.Stop()
	var renewing sync.WaitGroup
	defer renewing.Wait()
	session, end := context.WithCancel(ctx)
	defer end()
	renewing.Go(func() { f.reviewRenewals(session, peer) })
	f.addPeer(ctx, peer)
	err = receiveUpdates(stream, peer)
	f.removePeer(ctx, peer)
	if errors.Is(err, io.EOF) { // the node stops, and answers what it has begun
		peer.awaitCalls(wire.StopGrace)
		return nil
	}
	return cmp.Or(context.Cause(ctx), err)
}

// clientOf makes a client of a connection that somebody else has dialled. There is no second one.
func clientOf(conn net.Conn) (*grpc.ClientConn, error) {
	once := make(chan net.Conn, 1)
	once <- conn
	return grpc.NewClient("passthrough:///node",
		grpc.WithTransportCredentials(insecure.NewCredentials()), // TLS is below
		grpc.WithContextDialer(func(context.Context, string) (net.Conn, error) {
			select {
			case c := <-once:
				return c, nil
			default:
				return nil, errors.New("the connection has ended; it is the node that dials")
			}
		}),
		grpc.WithIdleTimeout(0), grpc.WithDisableRetry(), grpc.WithDisableServiceConfig(),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessage)), grpc.WithMaxHeaderListSize(16<<10),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{
			Time: wire.PingAfter, Timeout: wire.PingTimeout, PermitWithoutStream: true,
		}),
	)
}

// receiveUpdates takes what a node has to say until it says no more.
func receiveUpdates(stream updateStream, p *Peer) error {
	for {
		update, err := stream.Recv()
		if err != nil {
			return err
		}
		switch said := update.GetUpdate().(type) {
		case *wire.Update_Pools:
			p.setStatus(said.Pools.GetPools())
		case *wire.Update_Token:
			select {
			case <-p.renewed: // it was not reviewed yet
			default:
			}
			p.renewed <- said.Token
		}
	}
}

// reviewRenewals reviews renewed tokens until ctx ends. A node sends each one once: one that does not pass, as while
// the API does not answer, is reviewed again until the old one expires.
func (f *Fleet) reviewRenewals(ctx context.Context, p *Peer) {
	var again <-chan time.Time
	for token := ""; ; {
		select {
		case <-ctx.Done():
			return
		case token = <-p.renewed:
		case <-again:
		}
		again = nil
		expires, err := f.review(ctx, f.renewals, p.Name, p.Name, token)
		switch {
		case err == nil:
			p.expiry.Reset(time.Until(expires))
		case ctx.Err() == nil: // the old one is good until it expires
			f.Log.WarnContext(ctx, "a renewed token is refused", logging.KeyNode, p.Name, logging.KeyError, err)
			again = time.After(wait.Jitter(f.retry, 0.2))
		}
	}
}
