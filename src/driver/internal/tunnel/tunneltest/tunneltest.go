// Package tunneltest gives tests a controller's end and nodes that connect to it over real TLS, with volumes in memory.
package tunneltest

import (
	"context"
	"crypto/tls"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/controller/fleet"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/tunnel"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/logging/loggingtest"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi/wire"
)

// Host is the name in the controller's certificate, TopologyKey what all nodes announce.
const (
	Host        = "127.0.0.1"
	TopologyKey = "topology.example/node"
)

// Until waits for a condition; only one that never comes fails the test.
func Until(t testing.TB, what string, condition func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !condition(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited for a minute until %s", what)
		}
	}
}

// Logged waits until a log says something.
func Logged(t testing.TB, log *loggingtest.Log, want string) {
	t.Helper()
	defer func() {
		if t.Failed() {
			t.Log(log.String())
		}
	}()
	Until(t, "the log says: "+want, func() bool { return strings.Contains(log.String(), want) })
}

// Hub is a controller's end on a port of its own.
type Hub struct {
	*fleet.Fleet
	Authority *Authority
	Address   string
	Log       *loggingtest.Log
	Metrics   *prometheus.Registry
	listener  net.Listener
}

// nowhere is a cluster that knows of no node.
type nowhere struct{}

func (nowhere) Synced() bool                                    { return true }
func (nowhere) NodesWithDriver(map[string]string) []string      { return nil }
func (nowhere) HasTunnel(context.Context, string) (bool, error) { return true, nil }
func (nowhere) TellNode(string, string, string, string)         {}
func (nowhere) NodeGone(context.Context, string) (since time.Time, gone bool, err error) {
	return since, false, nil
}

func (nowhere) RemoveOldCapacity(context.Context, func(string) bool) (found int, err error) {
	return 0, nil
}

// NewHub makes one that is served by Start; change may be nil.
func NewHub(t testing.TB, address string, change func(*fleet.Config)) *Hub {
	t.Helper()
	h := &Hub{Authority: NewAuthority(t), Log: &loggingtest.Log{}, Metrics: prometheus.NewRegistry()}
	certificate := h.Authority.Issue(t, Host, time.Now().Add(-time.Minute))
	c := fleet.Config{
		Cluster: nowhere{}, Address: address,
		TLS:         &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{*certificate}},
		TopologyKey: TopologyKey, Version: "v1", Claimed: Claimed, Review: Review,
		NodeGrace: time.Minute, GoneAfter: 10 * time.Minute,
		Metrics: h.Metrics, Log: h.Log.Logger(), Now: time.Now,
	}
	if change != nil {
		change(&c)
	}
	var err error
	if h.Fleet, err = fleet.New(c); err == nil {
		h.listener, err = h.Listen(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	h.Address = h.listener.Addr().String()
	return h
}

// Start serves until stop, or the end of the test.
func (h *Hub) Start(t testing.TB) (stop func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	served := make(chan error, 1)
	go func() { served <- h.Serve(ctx, h.listener) }()
	stop = sync.OnceValue(func() error { cancel(); return <-served })
	t.Cleanup(func() { _ = stop() })
	return stop
}

// Samples are the values of a metric by the values of its labels, a histogram's the number of its observations.
func Samples(t testing.TB, metrics prometheus.Gatherer, name string) map[string]float64 {
	t.Helper()
	families, err := metrics.Gather()
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() != name {
				continue
			}
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, l.GetValue())
			}
			found[strings.Join(labels, " ")] = m.GetCounter().GetValue() + m.GetGauge().GetValue() +
				float64(m.GetHistogram().GetSampleCount())
		}
	}
	return found
}

// BreakListener makes accepting fail.
func (h *Hub) BreakListener() { _ = h.listener.Close() }

// Node is one whose volumes are in memory. Its fields are set before it runs.
type Node struct {
	Name string
	// Search answers Find, in place of a look at the volumes, unless it is nil.
	Search func(ctx context.Context, id string) (bool, error)
	// Register adds services beside the session, unless it is nil.
	Register func(grpc.ServiceRegistrar)
	Log      loggingtest.Log
	// Metrics are those of its end, once Config was called.
	Metrics *prometheus.Registry

	mu      sync.Mutex
	pools   []nodeapi.PoolStatus
	shared  []*wire.SharedPool
	volumes map[string]nodeapi.VolumeStatus
	fails   error
}

// Show sets the node's pools.
func (n *Node) Show(pools ...nodeapi.PoolStatus) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.pools = pools
}

// Put adds volumes to the node.
func (n *Node) Put(volumes ...nodeapi.VolumeStatus) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.volumes == nil {
		n.volumes = map[string]nodeapi.VolumeStatus{}
	}
	for _, v := range volumes {
		n.volumes[v.ID] = v
	}
}

// Pools implements tunnel.Source.
func (n *Node) Pools() []nodeapi.PoolStatus {
	n.mu.Lock()
	defer n.mu.Unlock()
	return append([]nodeapi.PoolStatus{}, n.pools...)
}

// Find implements tunnel.Source.
func (n *Node) Find(ctx context.Context, id string) (pool string, found bool, err error) {
	found = n.Has(id)
	if n.Search != nil {
		found, err = n.Search(ctx, id)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.volumes[id].Pool, found, err
}

// Share implements tunnel.Source.
func (n *Node) Share(pools []*wire.SharedPool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.shared = pools
}

// Told is what the controller has said of shared pools last.
func (n *Node) Told() []*wire.SharedPool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.shared
}

// Has reports whether a volume was put there.
func (n *Node) Has(id string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	_, has := n.volumes[id]
	return has
}

// Remove takes volumes away, without ids all of them.
func (n *Node) Remove(ids ...string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	maps.DeleteFunc(n.volumes, func(id string, _ nodeapi.VolumeStatus) bool {
		return len(ids) == 0 || slices.Contains(ids, id)
	})
}

// Volumes implements tunnel.Source.
func (n *Node) Volumes(_ context.Context, visit func(nodeapi.VolumeStatus) error) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, v := range n.volumes {
		if err := visit(v); err != nil {
			return err
		}
	}
	return n.fails
}

// Fail lets lists of volumes end with an error.
func (n *Node) Fail(err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.fails = err
}

// Config is that of the node's end; address is the hub's, authorities are the ones that it trusts.
func (n *Node) Config(address string, authorities []byte) tunnel.NodeConfig {
	n.Metrics = prometheus.NewRegistry()
	return tunnel.NodeConfig{
		Metrics: n.Metrics,
		Address: address, Node: n.Name, TopologyKey: TopologyKey, Version: "v1", Source: n, Log: n.Log.Logger(),
		Token:       func() (string, error) { return Token(n.Name, time.Now().Add(time.Hour).Unix()), nil },
		Authorities: func(context.Context) ([]byte, error) { return authorities, nil },
		Server: func(options ...grpc.ServerOption) *grpc.Server {
			server := grpc.NewServer(options...)
			if n.Register != nil {
				n.Register(server)
			}
			return server
		},
	}
}

// Run runs a node's end until stop, or the end of the test.
func Run(t testing.TB, end *tunnel.Node) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan struct{})
	go func() { defer close(ended); end.Run(ctx) }()
	stop = func() { cancel(); <-ended }
	t.Cleanup(stop)
	return stop
}

// Connect runs a node's end and waits until it is connected.
func (h *Hub) Connect(t testing.TB, n *Node) (stop func()) {
	t.Helper()
	end, err := tunnel.NewNode(n.Config(h.Address, h.Authority.PEM))
	if err != nil {
		t.Fatal(err)
	}
	stop = Run(t, end)
	Until(t, n.Name+" is connected and has shown its pools", func() bool {
		p := h.Get(n.Name)
		if p == nil {
			return false
		}
		pools, _ := p.Pools()
		return pools != nil
	})
	return stop
}
