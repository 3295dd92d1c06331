// Package link is the node's end of the connection that it keeps to the controller. The node dials and is the client
// of TLS; on the connection it serves gRPC, and the controller is the client of that. So nodes open no port and keep no
// key. It is beside the driver, not in it, so that the controller's tests have both ends.
package link

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/logging"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi/wire"
)

const (
	// dialTimeout bounds everything up to the first call.
	dialTimeout = 10 * time.Second
	// resolveInterval is how often the Service's addresses are asked for, resolveSoon while there are none.
	resolveInterval, resolveSoon = 10 * time.Second, 2 * time.Second
	// newController is how soon the authorities of a controller that has never run are looked for again, or twice that.
	newController = 3 * time.Second
	// lasting is how long a connection must have been there for the next one to be dialled at once.
	lasting = time.Minute
)

// Errors of connecting.
var (
	ErrRefused = errors.New("the controller's certificate is refused")
	// ErrNoAuthorities says that the controller has never run yet.
	ErrNoAuthorities = errors.New("the controller's authorities (--controller-ca) are not there yet: the controller " +
		"writes them")
)

// Source is what a node shows of itself.
type Source interface {
	Pools() []nodeapi.PoolStatus
	// Find reports whether a volume is on the node, complete or not, and in which pool, "" while it is worked on.
	Find(ctx context.Context, id string) (pool string, found bool, err error)
	Volumes(ctx context.Context, visit func(nodeapi.VolumeStatus) error) error
	// Share takes what the controller says of shared pools.
	Share(pools []*wire.SharedPool)
}

// Periods are how often the Service's addresses are looked up, how soon after there were none, how often the token is
// read, and how long a connection that failed is not tried again.
type Periods struct {
	Resolve, ResolveSoon, Renew time.Duration
	Pause                       wait.Backoff
}

// DefaultPeriods are those of a node that is no test's.
func DefaultPeriods() Periods { return Periods{resolveInterval, resolveSoon, tokenInterval, backoff()} }

// NodeConfig is what the node's end is made of; every field is required.
type NodeConfig struct {
	Periods
	// LookUp gives the addresses of the controller's Service, as net.Resolver.LookupHost does.
	LookUp func(ctx context.Context, host string) ([]string, error)
	// Address is host:port of the controller's Service. The host is the name in the controller's certificate.
	Address string
	// Node is the node's name and the value of its topology segment.
	Node, TopologyKey, Version string
	// Token gives the token of the driver's pod as it is now.
	Token func() (string, error)
	// Authorities gives those that sign the controller's certificate, in PEM.
	Authorities func(ctx context.Context) ([]byte, error)
	Source      Source
	// Server makes a gRPC server with everything that is served beside the session.
	Server  func(options ...grpc.ServerOption) *grpc.Server
	Metrics prometheus.Registerer
	Log     *slog.Logger
}

// Node is the node's end.
type Node struct {
	NodeConfig
	host, port string
	pushes     *prometheus.CounterVec
	troubles   logging.Troubles

	mu        sync.Mutex
	addresses []string
	roots     *x509.CertPool // nil: to be read
}

// NewNode returns an end that does not dial yet.
func NewNode(c NodeConfig) (*Node, error) {
	if slices.Contains([]string{c.Address, c.Node, c.TopologyKey, c.Version}, "") || c.Token == nil ||
		c.Authorities == nil || c.Source == nil || c.Server == nil || c.Metrics == nil || c.Log == nil ||
		c.LookUp == nil || min(c.Resolve, c.ResolveSoon, c.Renew, c.Pause.Duration) <= 0 {
		return nil, errors.New("link: a field of the node's Config is missing")
	}
	host, port, err := net.SplitHostPort(c.Address)
	if err != nil {
		return nil, fmt.Errorf("address of the controller: %w", err)
	}
	n := &Node{
		NodeConfig: c, host: host, port: port,
		pushes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "hpp_node_pushes_total",
			Help: "What this node told controllers of its pools: because something changed, or to refresh what they " +
				"know.",
		}, []string{"cause"}),
	}
	if err := c.Metrics.Register(n.pushes); err != nil {
		return nil, fmt.Errorf("register the metrics of the tunnel: %w", err)
	}
	return n, nil
}

// Run keeps a connection to every address of the Service until ctx ends. Then calls under way get time to end.
func (n *Node) Run(ctx context.Context) {
	var connections sync.WaitGroup
	defer connections.Wait()
	kept := map[string]chan struct{}{}
	for ctx.Err() == nil {
		pause := n.Resolve
		found, err := n.LookUp(ctx, n.host)
		if err != nil { // those that are known may be right
			pause = n.ResolveSoon
			if ctx.Err() == nil && n.troubles.Fresh(n.host, err) {
				n.Log.WarnContext(ctx, "cannot find the controller's Service", logging.KeyAddress, n.host,
					logging.KeyError, err)
			}
			found = n.knownAddresses()
		}
		n.setAddresses(found)
		for _, address := range found {
			if ended, ok := kept[address]; ok && !isClosed(ended) {
				continue
			}
			ended := make(chan struct{})
			kept[address] = ended
			connections.Go(func() {
				defer close(ended)
				n.keepConnected(ctx, address)
			})
		}
		sleep(ctx, wait.Jitter(pause, 0.2))
	}
}

func (n *Node) knownAddresses() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.addresses
}

func (n *Node) setAddresses(addresses []string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.addresses = addresses
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

func sleep(ctx context.Context, pause time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(pause):
	}
}

// keepConnected connects to an address again and again, as long as the Service has it.
func (n *Node) keepConnected(ctx context.Context, address string) {
	pause := n.Pause
	for ctx.Err() == nil && slices.Contains(n.knownAddresses(), address) {
		start := time.Now()
		err := n.serveController(ctx, address)
		if err != nil && ctx.Err() == nil && n.troubles.Fresh(address, err) {
			n.Log.WarnContext(ctx, "no connection to the controller", logging.KeyAddress, address,
				logging.KeyError, err)
		}
		if errors.Is(err, ErrNoAuthorities) { // a new controller writes them at once
			sleep(ctx, wait.Jitter(newController, 1))
			continue
		}
		if time.Since(start) > lasting {
			pause = n.Pause
		}
		sleep(ctx, pause.Step())
	}
}

// serveController dials and serves until the connection or ctx ends.
func (n *Node) serveController(ctx context.Context, address string) error {
	conn, err := n.dialController(ctx, address)
	if err != nil {
		return err
	}
	n.Log.InfoContext(ctx, "connected to the controller", logging.KeyAddress, address)
	server := n.Server(
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: wire.PingAfter, Timeout: wire.PingTimeout}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{
			MinTime: wire.PingTimeout, PermitWithoutStream: true,
		}),
		grpc.ChainUnaryInterceptor(reportHandling),
	)
	stopping, stop := context.WithCancel(ctx)
	defer stop()
	wire.RegisterNodeServer(server, &session{Node: n, stopping: stopping})
	ended := make(chan struct{})
	defer close(ended)
	go func() {
		select {
		case <-ctx.Done():
			hurry := time.AfterFunc(wire.StopGrace, server.Stop)
			defer hurry.Stop()
			server.GracefulStop()
		case <-ended:
		}
	}()
	err = server.Serve(NewSingle(conn))
	server.Stop()
	if err != nil && !errors.Is(err, net.ErrClosed) {
		return fmt.Errorf("serve the controller: %w", err)
	}
	return errors.New("the connection has ended; the controller's log says why, if it was refused")
}

func (n *Node) dialController(ctx context.Context, address string) (net.Conn, error) {
	brief, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	roots, err := n.trustedRoots(brief)
	if err != nil {
		return nil, err
	}
	dialer := tls.Dialer{Config: &tls.Config{MinVersion: tls.VersionTLS13, ServerName: n.host, RootCAs: roots}}
	conn, err := dialer.DialContext(brief, "tcp", net.JoinHostPort(address, n.port))
	if failed := new(tls.CertificateVerificationError); errors.As(err, &failed) {
		n.mu.Lock()
		n.roots = nil // they may have been renewed
		n.mu.Unlock()
		return nil, fmt.Errorf("%w: %w; see the ConfigMap with its authorities (--controller-ca), and the clocks",
			ErrRefused, err)
	}
	return conn, err
}

// trustedRoots gives the authorities, which are read again after they have failed.
func (n *Node) trustedRoots(ctx context.Context) (*x509.CertPool, error) {
	n.mu.Lock()
	roots := n.roots
	n.mu.Unlock()
	if roots != nil {
		return roots, nil
	}
	bundle, err := n.Authorities(ctx)
	if err != nil {
		return nil, fmt.Errorf("read the controller's authorities (--controller-ca): %w", err)
	}
	roots = x509.NewCertPool()
	if !roots.AppendCertsFromPEM(bundle) {
		return nil, ErrNoAuthorities
	}
	n.mu.Lock()
	n.roots = roots
	n.mu.Unlock()
	return roots, nil
}
