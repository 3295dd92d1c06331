package tunnel

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/logging"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi/wire"
)

// maxMessage bounds what a node sends at once, in bytes.
const maxMessage = 1 << 20

// HubConfig is what the controller's end is made of; every field is required.
type HubConfig struct {
	TLS                  *tls.Config
	TopologyKey, Version string
	// Claimed gives the node that a token says it is for, before anybody has verified that; an error where the token says
	// of itself that it is not for this.
	Claimed func(token string) (node string, err error)
	// Review gives the node of the pod that a token is bound to; it ends by itself.
	Review func(ctx context.Context, token string) (node string, err error)
	// Changed is told when a node has come or gone, in that order; it must not ask the hub.
	Changed func(node string, connected bool)
	Metrics prometheus.Registerer
	Log     *slog.Logger
}

// Hub is the controller's end: the connections of all nodes.
type Hub struct {
	HubConfig
	metrics   metrics
	strangers strangers
	refusals  refusals
	logins    *turns        // of strangers
	renewals  *turns        // of nodes that are connected
	patience  time.Duration // for everything up to a token that passes
	retry     time.Duration // of the review of a renewed token

	mu    sync.Mutex
	nodes map[string]*Peer
}

// NewHub returns an end that does not listen yet.
func NewHub(c HubConfig) (*Hub, error) {
	if c.TLS == nil || c.TopologyKey == "" || c.Version == "" || c.Claimed == nil || c.Review == nil || c.Changed == nil ||
		c.Metrics == nil || c.Log == nil {
		return nil, errors.New("tunnel: a field of the controller's Config is missing")
	}
	h := &Hub{
		HubConfig: c, metrics: newMetrics(), nodes: map[string]*Peer{},
		strangers: strangers{most: maxStrangers, byAddress: map[string][]*stranger{}},
		logins:    newTurns(), renewals: newTurns(), patience: dialPatience, retry: renewalRetry,
	}
	if err := errors.Join(c.Metrics.Register(h.metrics.calls), c.Metrics.Register(h.metrics.hops)); err != nil {
		return nil, fmt.Errorf("register the metrics of the tunnel: %w", err)
	}
	return h, nil
}

// Get gives a node that is connected, else nil.
func (h *Hub) Get(name string) *Peer {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.nodes[name]
}

// All gives the nodes that are connected, by name.
func (h *Hub) All() []*Peer {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := make([]*Peer, 0, len(h.nodes))
	for _, p := range h.nodes {
		all = append(all, p)
	}
	slices.SortFunc(all, func(a, b *Peer) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// Serve accepts nodes until ctx ends, and then closes all connections.
func (h *Hub) Serve(ctx context.Context, listener net.Listener) error {
	var connections sync.WaitGroup
	defer connections.Wait()
	ctx, stop := context.WithCancel(ctx)
	defer stop() // also where nodes can be accepted no more
	defer context.AfterFunc(ctx, func() { _ = listener.Close() })()
	h.Log.InfoContext(ctx, "waiting for nodes", logging.KeyAddress, listener.Addr().String())
	connections.Go(func() { h.refusals.log(ctx, h.Log) })
	for {
		conn, err := listener.Accept()
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return fmt.Errorf("accept nodes: %w", err)
		}
		own, cancel := context.WithCancelCause(ctx)
		n := h.strangers.enter(conn, cancel)
		connections.Go(func() {
			defer close(n.ended)
			defer cancel(nil)
			err := h.serve(own, n)
			_ = n.Close()
			h.strangers.leave(n)
			switch {
			case err == nil || ctx.Err() != nil:
			case isClosed(n.known):
				h.Log.WarnContext(ctx, "a node's connection has ended", logging.KeyAddress, n.address, logging.KeyError, err)
			default:
				h.refusals.add(n.address, err)
			}
		})
	}
}

// serve is one connection, from its first byte to its last.
func (h *Hub) serve(ctx context.Context, n *stranger) error {
	peer, stream, err := h.login(ctx, n)
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
	renewing.Go(func() { h.renew(session, peer) })
	h.enter(ctx, peer)
	err = h.listen(stream, peer)
	h.leave(ctx, peer)
	if errors.Is(err, io.EOF) { // the node stops, and answers what it has begun
		peer.drain(stopGrace)
		return nil
	}
	return cmp.Or(context.Cause(ctx), err)
}

// dialled makes a client of a connection that somebody else has dialled. There is no second one.
func dialled(conn net.Conn) (*grpc.ClientConn, error) {
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
			Time: pingAfter, Timeout: pingPatience, PermitWithoutStream: true,
		}),
	)
}

// listen takes what a node has to say until it says no more.
func (h *Hub) listen(stream newsStream, p *Peer) error {
	for {
		news, err := stream.Recv()
		if err != nil {
			return err
		}
		switch said := news.GetNews().(type) {
		case *wire.News_Pools:
			p.learn(said.Pools.GetPools())
		case *wire.News_Token:
			select {
			case <-p.renewed: // it was not reviewed yet
			default:
			}
			p.renewed <- said.Token
		}
	}
}

// renew reviews renewed tokens until ctx ends. A node sends each one once: one that does not pass, as while the API
// does not answer, is reviewed again until the old one expires.
func (h *Hub) renew(ctx context.Context, p *Peer) {
	var again <-chan time.Time
	for token := ""; ; {
		select {
		case <-ctx.Done():
			return
		case token = <-p.renewed:
		case <-again:
		}
		again = nil
		expires, err := h.review(ctx, h.renewals, p.Name, p.Name, token)
		switch {
		case err == nil:
			p.expiry.Reset(time.Until(expires))
		case ctx.Err() == nil: // the old one is good until it expires
			h.Log.WarnContext(ctx, "a renewed token is refused", logging.KeyNode, p.Name, logging.KeyError, err)
			again = time.After(wait.Jitter(h.retry, 0.2))
		}
	}
}

// enter makes a connection the node's, in place of an older one.
func (h *Hub) enter(ctx context.Context, p *Peer) {
	h.mu.Lock()
	old := h.nodes[p.Name]
	h.nodes[p.Name] = p
	h.Changed(p.Name, true)
	h.mu.Unlock()
	if old != nil {
		old.Close(errors.New("the node has made another connection"))
	}
	h.Log.InfoContext(ctx, "a node is connected", logging.KeyNode, p.Name, logging.KeyVersion, p.Version)
}

func (h *Hub) leave(ctx context.Context, p *Peer) {
	h.mu.Lock()
	current := h.nodes[p.Name] == p
	if current {
		delete(h.nodes, p.Name)
		h.Changed(p.Name, false)
	}
	h.mu.Unlock()
	if current {
		h.Log.InfoContext(ctx, "a node is not connected any more", logging.KeyNode, p.Name)
	}
}
