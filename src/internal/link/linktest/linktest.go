// Package linktest gives tests nodes that connect to a controller over real TLS, with volumes in memory.
package linktest

import (
	"context"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/link"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/logging/loggingtest"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi/wire"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/waittest"
)

// Host is the name in the controller's certificate, TopologyKey what all nodes announce.
const (
	Host        = "127.0.0.1"
	TopologyKey = "topology.example/node"
)

// Logged waits until a log says something.
func Logged(t testing.TB, log *loggingtest.Log, want string) {
	t.Helper()
	defer func() {
		if t.Failed() {
			t.Log(log.String())
		}
	}()
	waittest.Until(t, "the log says: "+want, func() bool { return strings.Contains(log.String(), want) })
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

// Node is one whose volumes are in memory. Its fields are set before it runs.
type Node struct {
	Name string
	// Search answers Find, in place of a look at the volumes, unless it is nil.
	Search func(ctx context.Context, id string) (bool, error)
	// Register adds services beside the session, unless it is nil.
	Register func(grpc.ServiceRegistrar)
	// Options are those of its server beside its end's.
	Options []grpc.ServerOption
	Log     loggingtest.Log
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

// Pools implements link.Source.
func (n *Node) Pools() []nodeapi.PoolStatus {
	n.mu.Lock()
	defer n.mu.Unlock()
	return append([]nodeapi.PoolStatus{}, n.pools...)
}

// Find implements link.Source.
func (n *Node) Find(ctx context.Context, id string) (pool string, found bool, err error) {
	found = n.Has(id)
	if n.Search != nil {
		found, err = n.Search(ctx, id)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.volumes[id].Pool, found, err
}

// Share implements link.Source.
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

// Volumes implements link.Source.
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
func (n *Node) Config(address string, authorities []byte) link.NodeConfig {
	n.Metrics = prometheus.NewRegistry()
	return link.NodeConfig{
		Periods: link.DefaultPeriods(), LookUp: new(net.Resolver).LookupHost, Metrics: n.Metrics,
		Address: address, Node: n.Name, TopologyKey: TopologyKey, Version: "v1", Source: n, Log: n.Log.Logger(),
		Token:       func() (string, error) { return Token(n.Name, time.Now().Add(time.Hour).Unix()), nil },
		Authorities: func(context.Context) ([]byte, error) { return authorities, nil },
		Server: func(options ...grpc.ServerOption) *grpc.Server {
			server := grpc.NewServer(append(options, n.Options...)...)
			if n.Register != nil {
				n.Register(server)
			}
			return server
		},
	}
}

// Run runs a node's end until stop, or the end of the test.
func Run(t testing.TB, end *link.Node) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan struct{})
	go func() { defer close(ended); end.Run(ctx) }()
	stop = func() { cancel(); <-ended }
	t.Cleanup(stop)
	return stop
}
