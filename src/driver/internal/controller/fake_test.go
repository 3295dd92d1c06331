package controller_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	pb "github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/names"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/controller"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/controller/fleet"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/tunnel/tunneltest"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/logging/loggingtest"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/poolspec"
)

const gib = int64(1) << 30

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// cluster is what the API server knows. It panics when it is asked about what a test has not set.
type cluster struct {
	mu        sync.Mutex
	local     poolspec.Pool // configured, as the only one
	now       time.Time
	silent    bool // the API does not answer
	syncing   bool
	unsure    bool // the API does not say whether a node is gone
	pvs       []nodeapi.PersistentVolume
	drivers   []string             // nodes with the driver
	nvme      []string             // those of them with the label disk=nvme
	tunnel    map[string]bool      // whether a node's driver has one
	gone      map[string]time.Time // since when there is no Node object, zero where there is one
	claims    map[string]string    // selected nodes, by uid of the claim
	other     string               // is selected by somebody else at the moment of SelectNode
	events    []string
	cleared   map[string]bool   // nodes whose old capacity was removed
	ids       map[string]string // of shared pools
	version   int               // of ids
	waiting   []controller.WaitingClaim
	missed    int // how often it was asked which nodes there are
	lists     int // of old capacity
	goneAsked int // how often NodeGone was asked
	gets      int // PersistentVolumes that were looked up
}

// set changes the cluster.
func (c *cluster) set(change func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change()
}

func (c *cluster) err() error {
	if c.silent {
		return fmt.Errorf("%w: connection refused", nodeapi.ErrClusterUnknown)
	}
	return nil
}

func (c *cluster) Get(_ context.Context, id string) (nodeapi.PersistentVolume, bool, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.gets++
	i := slices.IndexFunc(c.pvs, func(pv nodeapi.PersistentVolume) bool { return pv.Handle == id })
	if i < 0 || c.silent {
		return nodeapi.PersistentVolume{}, false, c.err()
	}
	return c.pvs[i], true, nil
}

func (c *cluster) List() []nodeapi.PersistentVolume {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.pvs)
}

func (c *cluster) Known(handle string) []nodeapi.PersistentVolume {
	return slices.DeleteFunc(c.List(), func(pv nodeapi.PersistentVolume) bool { return pv.Handle != handle })
}

func (c *cluster) Synced() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.syncing
}

func (c *cluster) NodesWithDriver(labels map[string]string) []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.missed++
	switch {
	case len(labels) == 0:
		return slices.Clone(c.drivers)
	case maps.Equal(labels, map[string]string{"disk": "nvme"}):
		return slices.Clone(c.nvme)
	}
	panic(fmt.Sprint("which nodes have the labels ", labels))
}

func (c *cluster) NodeGone(_ context.Context, name string) (time.Time, bool, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	since := c.gone[name]
	c.goneAsked++
	if c.unsure {
		return since, false, fmt.Errorf("%w: forbidden", nodeapi.ErrClusterUnknown)
	}
	return since, !since.IsZero() && !c.silent, c.err()
}

func (c *cluster) HasTunnel(_ context.Context, name string) (bool, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	has, ok := c.tunnel[name]
	if !ok {
		panic("has node " + name + " a tunnel?")
	}
	return has, c.err()
}

func (c *cluster) SelectedNode(_ context.Context, claim nodeapi.Claim) (string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	node, ok := c.claims[claim.UID]
	if !ok && !c.silent {
		return "", controller.ErrClaimGone
	}
	return node, c.err()
}

func (c *cluster) SelectNode(_ context.Context, claim nodeapi.Claim, node string) (string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	selected, ok := c.claims[claim.UID]
	switch {
	case !ok:
		panic("claim " + claim.UID + " is not there")
	case c.other != "":
		selected = c.other
	case selected == "":
		selected = node
	}
	c.claims[claim.UID] = selected
	return selected, c.err()
}

func (c *cluster) TellNode(node, kind, reason, message string) {
	c.set(func() { c.events = append(c.events, fmt.Sprintf("%s %s %s: %s", kind, node, reason, message)) })
}

func (c *cluster) TellVolume(pv nodeapi.PersistentVolume, reason, message string) {
	c.TellNode(pv.Name, "Warning", reason, message)
}

func (c *cluster) Waiting() []controller.WaitingClaim {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.waiting)
}

func (c *cluster) TellClaim(claim nodeapi.Claim, kind, reason, message string) {
	c.TellNode(claim.String(), kind, reason, message)
}

// told are the events with a text, and forgets them.
func (c *cluster) told(text string) (found []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.events = slices.DeleteFunc(c.events, func(e string) bool {
		if strings.Contains(e, text) {
			found = append(found, e)
			return true
		}
		return false
	})
	return found
}

func (c *cluster) RemoveOldCapacity(_ context.Context, connected func(string) bool) (found int, err error) {
	c.set(func() {
		c.lists++
		found = len(c.cleared)
		maps.DeleteFunc(c.cleared, func(node string, _ bool) bool { return connected(node) })
	})
	return found, c.err()
}

// node is a node with its CSI service.
type node struct {
	tunneltest.Node
	pb.UnimplementedControllerServer
	absent sync.Map // "pool" is there when a pool is absent

	mu     sync.Mutex
	calls  []string
	answer func(ctx context.Context, call string) error // nil: done
	lie    func(*pb.Volume)                             // changes what is answered about a new volume
}

func newNode(name string, room int64) *node {
	n := &node{Node: tunneltest.Node{Name: name}}
	n.Register = func(r grpc.ServiceRegistrar) { pb.RegisterControllerServer(r, n) }
	n.Search = func(_ context.Context, id string) (bool, error) {
		if _, absent := n.absent.Load("pool"); absent {
			return false, errors.New("pool local is absent")
		}
		return n.Has(id), nil
	}
	n.Show(nodeapi.PoolStatus{Name: "local", Growable: room, Allocatable: room, State: "present"})
	return n
}

func (n *node) called(ctx context.Context, call string) error {
	n.mu.Lock()
	n.calls = append(n.calls, call)
	answer := n.answer
	n.mu.Unlock()
	if answer != nil {
		return answer(ctx, call)
	}
	return nil
}

// asked are the calls since the last time.
func (n *node) asked() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	calls := strings.Join(n.calls, ", ")
	n.calls = nil
	return calls
}

func (n *node) answers(answer func(ctx context.Context, call string) error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.answer = answer
}

func (n *node) CreateVolume(ctx context.Context, q *pb.CreateVolumeRequest) (*pb.CreateVolumeResponse, error) {
	here := q.GetAccessibilityRequirements().GetRequisite()
	if len(here) != 1 || here[0].GetSegments()[tunneltest.TopologyKey] != n.Name {
		return nil, status.Errorf(codes.Internal, "asked for %v", here)
	}
	if err := n.called(ctx, "create "+q.GetName()); err != nil {
		return nil, err
	}
	bytes := q.GetCapacityRange().GetRequiredBytes()
	n.Put(nodeapi.VolumeStatus{ID: q.GetName(), Pool: "local", Bytes: bytes})
	answer := &pb.CreateVolumeResponse{Volume: &pb.Volume{
		VolumeId: q.GetName(), AccessibleTopology: here, CapacityBytes: bytes,
	}}
	if n.lie != nil {
		n.lie(answer.GetVolume())
	}
	return answer, nil
}

func (n *node) DeleteVolume(ctx context.Context, q *pb.DeleteVolumeRequest) (*pb.DeleteVolumeResponse, error) {
	err := n.called(ctx, "delete "+q.GetVolumeId())
	if err == nil {
		n.Remove(q.GetVolumeId())
	}
	return &pb.DeleteVolumeResponse{}, err
}

func (n *node) ControllerExpandVolume(
	ctx context.Context, q *pb.ControllerExpandVolumeRequest,
) (*pb.ControllerExpandVolumeResponse, error) {
	return &pb.ControllerExpandVolumeResponse{CapacityBytes: 7}, n.called(ctx, "expand "+q.GetVolumeId())
}

func (n *node) ValidateVolumeCapabilities(
	ctx context.Context, q *pb.ValidateVolumeCapabilitiesRequest,
) (*pb.ValidateVolumeCapabilitiesResponse, error) {
	return &pb.ValidateVolumeCapabilitiesResponse{}, n.called(ctx, "validate "+q.GetVolumeId())
}

// running is a controller that is served, as sidecars see it.
type running struct {
	pb.ControllerClient
	*cluster
	identity pb.IdentityClient
	hub      *tunneltest.Hub
	server   *controller.Server
}

func start(t *testing.T, nodes ...*node) running {
	t.Helper()
	return startWith(t, poolspec.Pool{Name: "local"}, nodes...)
}

func startWith(t *testing.T, local poolspec.Pool, nodes ...*node) running {
	t.Helper()
	c := &cluster{
		now: time.Unix(1e9, 0), claims: map[string]string{}, gone: map[string]time.Time{}, local: local,
		ids: map[string]string{},
	}
	for _, n := range nodes {
		c.drivers = append(c.drivers, n.Name)
	}
	return c.serve(t, nodes...)
}

// time is the cluster's.
func (c *cluster) time() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// serve is a controller process with these nodes.
func (c *cluster) serve(t *testing.T, nodes ...*node) running {
	t.Helper()
	r := running{cluster: c, hub: tunneltest.NewHub(t, "127.0.0.1:0", func(f *fleet.Config) {
		f.Cluster, f.NodeGrace, f.GoneAfter, f.Now = c, time.Minute, 10*time.Minute, c.time
	})}
	r.hub.Start(t)
	for _, n := range nodes {
		r.hub.Connect(t, &n.Node)
	}
	var err error
	if r.server, err = controller.New(controller.Config{
		DriverName: "driver", Version: "v1", TopologyKey: tunneltest.TopologyKey, Pools: []poolspec.Pool{c.local},
		Fleet: r.hub.Fleet, PVs: c, Claims: c, Events: c, Identities: c, OrphanAge: time.Hour,
		Log: (&loggingtest.Log{}).Logger(), Now: c.time,
	}); err != nil {
		t.Fatal(err)
	}
	server, listener, done := grpc.NewServer(), bufconn.Listen(1<<16), make(chan struct{})
	r.server.Register(server)
	go func() { defer close(done); _ = server.Serve(listener) }()
	conn, err := grpc.NewClient("passthrough:///controller", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(); server.Stop(); <-done })
	r.ControllerClient, r.identity = pb.NewControllerClient(conn), pb.NewIdentityClient(conn)
	return r
}

// look runs what looks after nodes.
func (r running) look(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var running sync.WaitGroup
	running.Go(func() { r.hub.Run(ctx) })
	running.Go(func() { r.server.Run(ctx) })
	t.Cleanup(func() { cancel(); running.Wait() })
}

func (r running) pass(d time.Duration) { r.set(func() { r.now = r.now.Add(d) }) }

// create asks for a volume of a claim; nodes are those that the request allows.
func (r running) create(t *testing.T, uid string, bytes int64, nodes ...string) (node string, err error) {
	t.Helper()
	q := &pb.CreateVolumeRequest{
		Name: "pvc-" + uid, CapacityRange: &pb.CapacityRange{RequiredBytes: bytes},
		Parameters: map[string]string{nodeapi.KeyClaimNS: "default", nodeapi.KeyClaimName: "claim"},
	}
	if len(nodes) > 0 {
		q.AccessibilityRequirements = &pb.TopologyRequirement{}
	}
	for _, n := range nodes {
		q.AccessibilityRequirements.Requisite = append(q.AccessibilityRequirements.Requisite, topology(n))
	}
	answer, err := r.CreateVolume(t.Context(), q)
	if err == nil {
		node = answer.GetVolume().GetAccessibleTopology()[0].GetSegments()[tunneltest.TopologyKey]
	}
	return node, err
}

func (r running) remove(t *testing.T, id string) error {
	t.Helper()
	_, err := r.DeleteVolume(t.Context(), &pb.DeleteVolumeRequest{VolumeId: id})
	return err
}

func (r running) expand(t *testing.T, id string) error {
	t.Helper()
	_, err := r.ControllerExpandVolume(t.Context(), &pb.ControllerExpandVolumeRequest{VolumeId: id})
	return err
}

func (r running) capacity(t *testing.T, node string) (int64, error) {
	t.Helper()
	answer, err := r.GetCapacity(t.Context(), &pb.GetCapacityRequest{
		AccessibleTopology: topology(node), Parameters: map[string]string{names.StoragePoolParameter: "local"},
	})
	return answer.GetAvailableCapacity(), err
}

func topology(node string) *pb.Topology {
	return &pb.Topology{Segments: map[string]string{tunneltest.TopologyKey: node}}
}

// named is the PersistentVolume of a volume.
func named(id string, nodes ...string) nodeapi.PersistentVolume {
	return nodeapi.PersistentVolume{Name: "pv-" + id, Handle: id, Nodes: nodes, Pool: "local", Bytes: gib}
}

func wantCode(t *testing.T, err error, want codes.Code, text string) {
	t.Helper()
	if status.Code(err) != want || want != codes.OK && !strings.Contains(err.Error(), text) {
		t.Errorf("got %v, want %s with %q", err, want, text)
	}
}

// reconnect ends a node's connection and makes another.
func (r running) reconnect(t *testing.T, n *node, stop func()) (again func()) {
	t.Helper()
	stop()
	tunneltest.Until(t, n.Name+" is away", func() bool { return r.hub.Get(n.Name) == nil })
	return r.hub.Connect(t, &n.Node)
}

func (r running) samples(t *testing.T, metric string) map[string]float64 {
	t.Helper()
	metrics := prometheus.NewRegistry()
	metrics.MustRegister(r.server)
	return tunneltest.Samples(t, metrics, metric)
}
