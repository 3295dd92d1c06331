// Package csitest is a controller with nodes and a cluster in memory, as sidecars see it: the gRPC is real, and so are
// the nodes' connections.
package csitest

import (
	"context"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	pb "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/names"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/controller/internal/csi"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/controller/internal/fleet"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/controller/internal/fleet/fleettest"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/controller/internal/inventory"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/controller/internal/sharedpools"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/link/linktest"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/poolspec"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/waittest"
)

// GiB is in bytes.
const GiB = int64(1) << 30

// Controller is a controller that is served, as sidecars see it.
type Controller struct {
	pb.ControllerClient
	*Cluster
	Identity pb.IdentityClient
	Hub      *fleettest.Hub
	Shared   *sharedpools.Pools
	CSI      *csi.Controller
	// Inventory is what is on its nodes; a volume counts as an orphan after an hour.
	Inventory *inventory.Inventory
}

// Start is a controller with nodes that have the pool local.
func Start(t *testing.T, nodes ...*Node) Controller {
	t.Helper()
	return StartWith(t, []poolspec.Pool{{Name: "local"}}, nodes...)
}

// StartWith is one whose configured pools are others.
func StartWith(t *testing.T, pools []poolspec.Pool, nodes ...*Node) Controller {
	t.Helper()
	c := &Cluster{
		Clock: time.Unix(1e9, 0), Since: time.Unix(1e9, 0), Claims: map[string]string{}, Gone: map[string]time.Time{},
		Pools: pools, IDs: map[string]string{},
	}
	for _, n := range nodes {
		c.Drivers = append(c.Drivers, n.Name)
	}
	return c.Serve(t, nodes...)
}

// StartShared is a controller whose pool local is a shared one.
func StartShared(t *testing.T, nodes ...*Node) Controller {
	t.Helper()
	return StartWith(t, []poolspec.Pool{{Name: "local", Scope: poolspec.ScopeShared}}, nodes...)
}

// StartKnown has told the nodes that the shared pool is AAAA.
func StartKnown(t *testing.T, nodes ...*Node) Controller {
	t.Helper()
	r := StartShared(t, nodes...)
	r.Set(func() { r.IDs = map[string]string{"local": "AAAA"} })
	r.Look(t)
	for _, n := range nodes {
		waittest.Until(t, "the node is told", func() bool { return n.ToldOfLocal().GetId() == "AAAA" })
	}
	return r
}

// Serve is a controller process with these nodes.
func (c *Cluster) Serve(t *testing.T, nodes ...*Node) Controller {
	t.Helper()
	r := Controller{Cluster: c, Hub: fleettest.NewHub(t, "127.0.0.1:0", func(f *fleet.Config) {
		f.Cluster, f.NodeGrace, f.GoneAfter, f.Now = c, time.Minute, 10*time.Minute, c.time
	})}
	r.Hub.Start(t)
	for _, n := range nodes {
		r.Hub.Connect(t, &n.Node)
	}
	var err error
	if r.Shared, err = sharedpools.New(c.Pools, r.Hub.Fleet, c); err != nil {
		t.Fatal(err)
	}
	if r.Inventory, err = inventory.New(c, r.Hub.Fleet, r.Shared, time.Hour, c.moving); err != nil {
		t.Fatal(err)
	}
	if r.CSI, err = csi.New(csi.Config{
		DriverName: "driver", Cluster: c, Fleet: r.Hub.Fleet, Shared: r.Shared, Moving: c.moving,
	}); err != nil {
		t.Fatal(err)
	}
	server, listener, done := grpc.NewServer(), bufconn.Listen(1<<16), make(chan struct{})
	r.CSI.Register(server)
	go func() { defer close(done); _ = server.Serve(listener) }()
	conn, err := grpc.NewClient("passthrough:///controller", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			return listener.DialContext(ctx)
		}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(); server.Stop(); <-done })
	r.ControllerClient, r.Identity = pb.NewControllerClient(conn), pb.NewIdentityClient(conn)
	return r
}

// Look runs what looks after nodes.
func (r Controller) Look(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var running sync.WaitGroup
	running.Go(func() { r.Hub.Run(ctx) })
	running.Go(func() { r.Shared.Run(ctx) })
	running.Go(func() { r.Inventory.Run(ctx) })
	running.Go(func() { r.CSI.Run(ctx) })
	t.Cleanup(func() { cancel(); running.Wait() })
}

// Pass lets time pass.
func (r Controller) Pass(d time.Duration) { r.Set(func() { r.Clock = r.Clock.Add(d) }) }

// Create asks for a volume of a claim; nodes are those that the request allows.
func (r Controller) Create(t *testing.T, uid string, bytes int64, nodes ...string) (node string, err error) {
	t.Helper()
	q := &pb.CreateVolumeRequest{
		Name: "pvc-" + uid, CapacityRange: &pb.CapacityRange{RequiredBytes: bytes},
		Parameters: map[string]string{nodeapi.KeyClaimNS: "default", nodeapi.KeyClaimName: "claim"},
	}
	if len(nodes) > 0 {
		q.AccessibilityRequirements = &pb.TopologyRequirement{}
	}
	for _, n := range nodes {
		q.AccessibilityRequirements.Requisite = append(q.AccessibilityRequirements.Requisite, Topology(n))
	}
	answer, err := r.CreateVolume(t.Context(), q)
	if err == nil {
		node = answer.GetVolume().GetAccessibleTopology()[0].GetSegments()[linktest.TopologyKey]
	}
	return node, err
}

// Remove asks for a deletion.
func (r Controller) Remove(t *testing.T, id string) error {
	t.Helper()
	_, err := r.DeleteVolume(t.Context(), &pb.DeleteVolumeRequest{VolumeId: id})
	return err
}

// Expand asks for growth.
func (r Controller) Expand(t *testing.T, id string) error {
	t.Helper()
	_, err := r.ControllerExpandVolume(t.Context(), &pb.ControllerExpandVolumeRequest{VolumeId: id})
	return err
}

// Capacity is what is published for a node, in bytes.
func (r Controller) Capacity(t *testing.T, node string) (int64, error) {
	t.Helper()
	answer, err := r.GetCapacity(t.Context(), &pb.GetCapacityRequest{
		AccessibleTopology: Topology(node), Parameters: map[string]string{names.StoragePoolParameter: "local"},
	})
	return answer.GetAvailableCapacity(), err
}

// CreateShared makes a volume of the shared pool, for a pod on one of the nodes.
func (r Controller) CreateShared(t *testing.T, id string, nodes ...string) {
	t.Helper()
	q := &pb.CreateVolumeRequest{
		Name: id, CapacityRange: &pb.CapacityRange{RequiredBytes: GiB},
		Parameters:                map[string]string{nodeapi.KeyClaimNS: "default", nodeapi.KeyClaimName: "claim"},
		AccessibilityRequirements: &pb.TopologyRequirement{},
	}
	for _, n := range nodes {
		q.AccessibilityRequirements.Requisite = append(q.AccessibilityRequirements.Requisite, Topology(n))
	}
	answer, err := r.CreateVolume(t.Context(), q)
	if err != nil {
		t.Fatal(err)
	}
	if got := answer.GetVolume().GetAccessibleTopology(); got != nil {
		t.Errorf("the volume is tied to %v", got)
	}
}

// Topology is the segment of a node.
func Topology(node string) *pb.Topology {
	return &pb.Topology{Segments: map[string]string{linktest.TopologyKey: node}}
}

// Named is the PersistentVolume of a volume.
func Named(id string, nodes ...string) nodeapi.PersistentVolume {
	return nodeapi.PersistentVolume{Name: "pv-" + id, Handle: id, Nodes: nodes, Pool: "local", Bytes: GiB}
}

// WantCode expects a code, and a text where that is not OK.
func WantCode(t *testing.T, err error, want codes.Code, text string) {
	t.Helper()
	if status.Code(err) != want || want != codes.OK && !strings.Contains(err.Error(), text) {
		t.Errorf("got %v, want %s with %q", err, want, text)
	}
}

// Reconnect ends a node's connection and makes another.
func (r Controller) Reconnect(t *testing.T, n *Node, stop func()) (again func()) {
	t.Helper()
	stop()
	waittest.Until(t, n.Name+" is away", func() bool { return r.Hub.Get(n.Name) == nil })
	return r.Hub.Connect(t, &n.Node)
}

// Samples are the values of a metric by the values of its labels.
func (r Controller) Samples(t *testing.T, metric string) map[string]float64 {
	t.Helper()
	return linktest.Samples(t, r.Hub.Metrics, metric)
}
