package fleet

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/abridge"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/bytesize"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi/wire"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/poolspec"
)

// Peer is a node that is connected, to its controller.
type Peer struct {
	Name, Version string
	// Since is when it connected.
	Since time.Time

	client   *grpc.ClientConn
	features []string
	metrics  metrics
	now      func() time.Time
	expires  time.Time // of the first token
	expiry   *time.Timer
	renewed  chan string // the last token that was not reviewed yet
	end      context.CancelCauseFunc
	calls    atomic.Int64 // under way

	mu    sync.Mutex
	pools []nodeapi.PoolStatus
	seen  time.Time
}

// Peer gives the connection of a node. The error has a gRPC status.
func (f *Fleet) Peer(node string) (*Peer, error) {
	if p := f.Get(node); p != nil {
		return p, nil
	}
	return nil, status.Errorf(codes.Unavailable, "node %s is not connected to the controller, for %s; it is asked "+
		"again; see docs/how-to/lose-a-node.md", node, f.Away(node).Round(time.Second))
}

// Close ends the connection.
func (p *Peer) Close(why error) { p.end(why) }

// awaitCalls waits for the calls under way, but not for ever.
func (p *Peer) awaitCalls(grace time.Duration) {
	const look = 20 * time.Millisecond
	for waited := time.Duration(0); p.calls.Load() > 0 && waited < grace; waited += look {
		time.Sleep(look)
	}
}

// maxPools is how many pools a node may have: each becomes a condition of its pod, which is one object.
const maxPools = 256

// setStatus takes what a node shows of its pools, but for what can be none: each name is there once.
func (p *Peer) setStatus(pools []*wire.Pool) {
	legal, names := []nodeapi.PoolStatus{}, map[string]bool{}
	for _, is := range pools {
		if name := is.GetName(); poolspec.ValidName(name) && len(is.GetId()) <= maxPoolID && !names[name] &&
			len(names) < maxPools {
			names[name] = true
			p := wire.ToPool(is)
			for _, text := range []*string{
				&p.State, &p.Reason, &p.Message, &p.Backend, &p.Enforcement, &p.EnforcementReason, &p.Path, &p.ID,
			} {
				*text = abridge.Printable(*text)
			}
			p.Warnings = legalWarnings(p.Warnings)
			legal = append(legal, p)
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pools, p.seen = slices.Clip(legal), p.now()
}

// maxWarnings is how many a pool may have; there are fewer kinds.
const maxWarnings = 10

// legalWarnings are those that can be some: of a known kind, as any other could be some other program's word, and about
// volumes with ids.
func legalWarnings(all []nodeapi.Warning) (legal []nodeapi.Warning) {
	for _, w := range all[:min(len(all), maxWarnings)] {
		if !nodeapi.IsWarning(w.Reason) {
			continue
		}
		w.Message = abridge.Printable(w.Message)
		w.Volumes = slices.DeleteFunc(w.Volumes, func(id string) bool { return nodeapi.ValidateID(id) != nil })
		slices.Sort(w.Volumes)
		w.Volumes = slices.Compact(w.Volumes)
		w.Volumes = w.Volumes[:min(len(w.Volumes), nodeapi.MaxWarned)]
		legal = append(legal, w)
	}
	return legal
}

// Pools are those of the node as it showed them last, and when that was; nil before the first time.
func (p *Peer) Pools() (pools []nodeapi.PoolStatus, seen time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.pools, p.seen
}

// Pool is one as the node showed it last, the zero one where it did not.
func (p *Peer) Pool(name string) (is nodeapi.PoolStatus) {
	pools, _ := p.Pools()
	if i := slices.IndexFunc(pools, func(is nodeapi.PoolStatus) bool { return is.Name == name }); i >= 0 {
		is = pools[i]
	}
	return is
}

// Has reports whether the node knows a feature.
func (p *Peer) Has(feature string) bool { return slices.Contains(p.features, feature) }

// Find reports whether a volume is on the node, complete or not, and in which pool, "" while it is worked on.
func (p *Peer) Find(ctx context.Context, id string) (pool string, found bool, err error) {
	answer, err := wire.NewNodeClient(p).Find(ctx, &wire.FindRequest{Id: id})
	return answer.GetPool(), answer.GetFound(), err
}

// Share tells the node of shared pools.
func (p *Peer) Share(ctx context.Context, q *wire.ShareRequest) error {
	_, err := wire.NewNodeClient(p).Share(ctx, q)
	return err
}

const (
	// maxVolumes and maxListed are what a node may list at most, the latter in bytes: the list is kept in memory.
	maxVolumes = 1 << 18
	maxListed  = 64 << 20
	// maxVolume bounds what it says of one, in bytes: two names of a claim have 316 at most.
	maxVolume = 2 << 10
	// maxPoolID bounds the id of a pool's marker, in bytes; one has 36.
	maxPoolID = 64
)

// Volumes visits all volumes and snapshots of the node, until an error. What can be none is left out.
func (p *Peer) Volumes(ctx context.Context, visit func(nodeapi.VolumeStatus) error) error {
	if !p.Has(wire.FeatureVolumes) {
		return status.Errorf(codes.Unavailable, "the driver on node %s is too old for that (%s); upgrade it", p.Name,
			p.Version)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	q := &wire.VolumesRequest{Snapshots: true}
	stream, err := wire.NewNodeClient(p).Volumes(ctx, q, grpc.MaxCallRecvMsgSize(maxVolume))
	for count, bytes := 0, 0; err == nil; count++ {
		var v *wire.Volume
		if v, err = stream.Recv(); err == nil && nodeapi.ValidateID(v.GetId()) == nil &&
			poolspec.ValidName(v.GetPool()) {
			err = visit(printable(wire.ToVolume(v)))
		}
		if bytes += proto.Size(v); err == nil && (count > maxVolumes || bytes > maxListed) {
			err = fmt.Errorf("more than %d, or than %s of text", maxVolumes, bytesize.Format(maxListed))
		}
	}
	if errors.Is(err, io.EOF) {
		return nil
	}
	return fmt.Errorf("volumes of node %s: %w", p.Name, withKnownCode(err))
}

// printable is what a node says of a volume, as a terminal may have it.
func printable(v nodeapi.VolumeStatus) nodeapi.VolumeStatus {
	for _, text := range []*string{&v.Claim, &v.Enforcement, &v.SnapshotOf, &v.Copying} {
		*text = abridge.Printable(*text)
	}
	return v
}

// Invoke implements grpc.ClientConnInterface. A call whose answer the end of the connection has cut off is Unavailable:
// it may have been done.
func (p *Peer) Invoke(ctx context.Context, method string, q, answer any, options ...grpc.CallOption) error {
	p.calls.Add(1)
	defer p.calls.Add(-1)
	var trailer metadata.MD
	start := time.Now()
	err := withKnownCode(p.client.Invoke(ctx, method, q, answer, append(options, grpc.Trailer(&trailer))...))
	took := time.Since(start)
	p.metrics.calls.WithLabelValues(p.Name, path.Base(method), status.Code(err).String()).Inc()
	if handling := trailer.Get(wire.HandlingKey); len(handling) == 1 {
		if ns, err := strconv.ParseInt(handling[0], 10, 64); err == nil {
			p.metrics.hops.Observe(max(0, took-time.Duration(ns)).Seconds())
		}
	}
	if status.Code(err) == codes.Canceled && ctx.Err() == nil {
		return status.Errorf(codes.Unavailable, "the connection of node %s has ended before its answer; it is asked "+
			"again", p.Name)
	}
	return err
}

// withKnownCode makes an answer that has none of gRPC's codes Internal. Each code is a series of metrics, here and
// where it is passed on, and a hostile node has four billion.
func withKnownCode(err error) error {
	if said := status.Convert(err); said.Code() > codes.Unauthenticated {
		return status.Error(codes.Internal, said.Message())
	}
	return err
}

// NewStream implements grpc.ClientConnInterface.
func (p *Peer) NewStream(
	ctx context.Context, description *grpc.StreamDesc, method string, options ...grpc.CallOption,
) (grpc.ClientStream, error) {
	return p.client.NewStream(ctx, description, method, options...)
}

// metrics are those of all calls to nodes.
type metrics struct {
	calls *prometheus.CounterVec
	hops  prometheus.Histogram
}

func newMetrics() metrics {
	return metrics{
		calls: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "hpp_controller_calls_total",
			Help: "Calls that the controller made to nodes, by node, method and code.",
		}, []string{"node", "grpc_method", "grpc_code"}),
		hops: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "hpp_controller_hop_seconds",
			Help:    "How long calls to nodes took beside their handling there.",
			Buckets: []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, 1, 10},
		}),
	}
}

// Describe implements prometheus.Collector.
func (f *Fleet) Describe(descriptions chan<- *prometheus.Desc) {
	prometheus.DescribeByCollect(f, descriptions)
}

// Collect implements prometheus.Collector.
func (f *Fleet) Collect(metrics chan<- prometheus.Metric) {
	connected := prometheus.NewDesc("hpp_controller_node_connected",
		"Whether a node that has the driver is connected to this controller.", []string{"node"}, nil)
	for _, name := range f.Names() {
		value := 0.0
		if f.Get(name) != nil {
			value = 1
		}
		metrics <- prometheus.MustNewConstMetric(connected, prometheus.GaugeValue, value, name)
	}
}
