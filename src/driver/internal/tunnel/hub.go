package tunnel

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
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

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/tunnel/wire"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/logging"
)

const (
	// maxMessage bounds what a node sends at once, in bytes.
	maxMessage = 1 << 20
	// maxStrangers bounds the connections that have not shown who they are yet: anything in the cluster may dial.
	maxStrangers = 512
)

// HubConfig is what the controller's end is made of; every field is required.
type HubConfig struct {
	TLS                  *tls.Config
	TopologyKey, Version string
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
	strangers chan struct{}
	patience  time.Duration // for everything up to a token that passes

	mu    sync.Mutex
	nodes map[string]*Peer
}

// NewHub returns an end that does not listen yet.
func NewHub(c HubConfig) (*Hub, error) {
	if c.TLS == nil || c.TopologyKey == "" || c.Version == "" || c.Review == nil || c.Changed == nil || c.Metrics == nil ||
		c.Log == nil {
		return nil, errors.New("tunnel: a field of the controller's Config is missing")
	}
	h := &Hub{
		HubConfig: c, metrics: newMetrics(), nodes: map[string]*Peer{}, strangers: make(chan struct{}, maxStrangers),
		patience: dialPatience,
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
	for {
		h.strangers <- struct{}{}
		conn, err := listener.Accept()
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return fmt.Errorf("accept nodes: %w", err)
		}
		connections.Go(func() {
			known := sync.OnceFunc(func() { <-h.strangers })
			defer known()
			if err := h.serve(ctx, conn, known); err != nil && ctx.Err() == nil {
				h.Log.WarnContext(ctx, "a node's connection has ended", logging.KeyAddress, conn.RemoteAddr().String(),
					logging.KeyError, err)
			}
			_ = conn.Close()
		})
	}
}

// serve is one connection, from its first byte to its last.
func (h *Hub) serve(ctx context.Context, raw net.Conn, known func()) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	handshake, done := context.WithTimeoutCause(ctx, h.patience, errors.New("it did not show who it is in time"))
	defer done()
	conn := tls.Server(raw, h.TLS)
	if err := conn.HandshakeContext(handshake); err != nil {
		return fmt.Errorf("TLS: %w", err)
	}
	client, err := dialled(conn)
	if err != nil {
		return err
	}
	defer func() { _ = client.Close() }()
	late := context.AfterFunc(handshake, func() { cancel(context.Cause(handshake)) })
	stream, err := wire.NewNodeClient(client).Session(ctx, &wire.SessionRequest{Version: h.Version})
	if err != nil {
		return cmp.Or(context.Cause(ctx), err)
	}
	peer, err := h.greet(ctx, stream, client)
	if err != nil || !late() {
		return cmp.Or(context.Cause(ctx), err)
	}
	known()
	peer.end = cancel
	peer.expiry = time.AfterFunc(time.Until(peer.expires), func() {
		peer.Close(errors.New("its token has expired, and it has shown no other"))
	})
	defer peer.expiry.Stop()
	h.enter(ctx, peer)
	err = h.listen(ctx, stream, peer)
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

// greet reads the first message and verifies who sent it.
func (h *Hub) greet(
	ctx context.Context, stream grpc.ServerStreamingClient[wire.News], client *grpc.ClientConn,
) (*Peer, error) {
	news, err := stream.Recv()
	if err != nil {
		return nil, fmt.Errorf("read its first message: %w", err)
	}
	hello := news.GetHello()
	switch {
	case hello == nil:
		return nil, errors.New("its first message does not say who it is")
	case hello.GetTopologyKey() != h.TopologyKey:
		return nil, fmt.Errorf("node %.63q has the topology key %.317q, the controller %q; both come from driver.topologyKey",
			hello.GetNode(), hello.GetTopologyKey(), h.TopologyKey)
	case hello.GetTopologyValue() != hello.GetNode():
		return nil, fmt.Errorf("node %.63q announces volumes of %.63q", hello.GetNode(), hello.GetTopologyValue())
	}
	p := &Peer{
		Name: hello.GetNode(), Version: hello.GetVersion(), Since: time.Now(),
		client: client, features: hello.GetFeatures(), metrics: h.metrics, seen: time.Now(),
	}
	p.expires, err = h.review(ctx, p.Name, hello.GetToken())
	return p, err
}

// review verifies a token and gives the time of its end.
func (h *Hub) review(ctx context.Context, node, token string) (expires time.Time, err error) {
	bound, err := h.Review(ctx, token)
	if err != nil {
		return expires, fmt.Errorf("the token of node %.63q: %w", node, err)
	}
	if bound != node {
		return expires, fmt.Errorf("node %.63q shows a token of node %q", node, bound)
	}
	return expiryOf(token)
}

// expiryOf reads the claim exp of a JSON web token (RFC 7519) that has been verified.
func expiryOf(token string) (time.Time, error) {
	var claims struct {
		Expires int64 `json:"exp"`
	}
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return time.Time{}, errors.New("the token is no JSON web token")
	}
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err == nil {
		err = json.Unmarshal(payload, &claims)
	}
	if err != nil {
		return time.Time{}, fmt.Errorf("the token is no JSON web token: %w", err)
	}
	if claims.Expires == 0 {
		return time.Time{}, errors.New("the token does not say when it ends")
	}
	return time.Unix(claims.Expires, 0), nil
}

// listen takes what a node has to say until it says no more.
func (h *Hub) listen(ctx context.Context, stream grpc.ServerStreamingClient[wire.News], p *Peer) error {
	for {
		news, err := stream.Recv()
		if err != nil {
			return err
		}
		switch said := news.GetNews().(type) {
		case *wire.News_Pools:
			p.learn(said.Pools.GetPools())
		case *wire.News_Token:
			expires, err := h.review(ctx, p.Name, said.Token)
			if err != nil { // the old one is good until it expires
				h.Log.WarnContext(ctx, "a renewed token is refused", logging.KeyNode, p.Name, logging.KeyError, err)
				continue
			}
			p.expiry.Reset(time.Until(expires))
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
