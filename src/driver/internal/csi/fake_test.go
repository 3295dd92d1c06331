package csi_test

import (
	"context"
	"fmt"
	"net"
	"path/filepath"
	"testing"

	pb "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/csi"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/pool"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/store"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/volume"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/kernel/copytree"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/poolspec"
)

// fake stands in for the domain; a call that the test did not expect panics.
type fake struct {
	create    func(volume.Spec) (volume.Volume, error)
	remove    func(id string) error
	get       func(id string) (volume.Volume, volume.Health, error)
	expand    func(id string, bytes, limit int64) (volume.Volume, error)
	list      func(after string, limit int) ([]volume.Volume, string, error)
	publish   func(volume.PublishRequest) error
	unpublish func(id, target string) error
	stats     func(id, path string) (volume.Stats, error)
	resolve   func(name string) (string, error)
	several   func(named string) ([]string, error)
	capacity  func(pool string) (room, largest int64)
	spec      func(pool string) poolspec.Pool
	status    func() []nodeapi.PoolStatus
	said      *volume.Said // of the last call that may have it

	snapshot       func(volume.SnapshotSpec) (store.Record, error)
	published      string // a volume
	deleteSnapshot func(id string) error
	getSnapshot    func(id string) (store.Record, error)
	snapshots      func(of, after string, limit int) ([]store.Record, string, error)
}

func must[F any](name string, set bool, f F) F {
	if !set {
		panic("unexpected call of " + name)
	}
	return f
}

func (f *fake) Create(_ context.Context, s volume.Spec) (volume.Volume, error) {
	return must("Create", f.create != nil, f.create)(s)
}

func (f *fake) Delete(_ context.Context, id string, said *volume.Said) error {
	f.said = said
	return must("Delete", f.remove != nil, f.remove)(id)
}

func (f *fake) Get(_ context.Context, id string) (volume.Volume, volume.Health, error) {
	return must("Get", f.get != nil, f.get)(id)
}

func (f *fake) Published(id string) bool { return id == f.published }

func (f *fake) Expand(_ context.Context, id string, bytes, limit int64, said *volume.Said) (volume.Volume, error) {
	f.said = said
	return must("Expand", f.expand != nil, f.expand)(id, bytes, limit)
}

func (f *fake) List(_ context.Context, after string, limit int) ([]volume.Volume, string, error) {
	return must("List", f.list != nil, f.list)(after, limit)
}

func (f *fake) Snapshot(_ context.Context, s volume.SnapshotSpec) (store.Record, error) {
	return must("Snapshot", f.snapshot != nil, f.snapshot)(s)
}

func (f *fake) DeleteSnapshot(_ context.Context, id string) error {
	return must("DeleteSnapshot", f.deleteSnapshot != nil, f.deleteSnapshot)(id)
}

func (f *fake) GetSnapshot(_ context.Context, id string) (store.Record, error) {
	return must("GetSnapshot", f.getSnapshot != nil, f.getSnapshot)(id)
}

func (f *fake) Snapshots(_ context.Context, of, after string, limit int) ([]store.Record, string, error) {
	return must("Snapshots", f.snapshots != nil, f.snapshots)(of, after, limit)
}

func (f *fake) Publish(_ context.Context, q volume.PublishRequest) error {
	return must("Publish", f.publish != nil, f.publish)(q)
}

func (f *fake) Unpublish(_ context.Context, id, target string) error {
	return must("Unpublish", f.unpublish != nil, f.unpublish)(id, target)
}

func (f *fake) Stats(_ context.Context, id, path string) (volume.Stats, error) {
	return must("Stats", f.stats != nil, f.stats)(id, path)
}

func (f *fake) Resolve(named string) ([]string, error) {
	if poolspec.Several(named) {
		return must("Resolve", f.several != nil, f.several)(named)
	}
	name, err := must("Resolve", f.resolve != nil, f.resolve)(named)
	return []string{name}, err
}

func (f *fake) Capacity(pool string) (room, largest int64) {
	return must("Capacity", f.capacity != nil, f.capacity)(pool)
}

func (f *fake) Spec(pool string) poolspec.Pool { return must("Spec", f.spec != nil, f.spec)(pool) }

func (f *fake) Status() []nodeapi.PoolStatus {
	return must("Status", f.status != nil, f.status)()
}

// onePool resolves the absent name to "local" and knows no other.
func onePool(name string) (string, error) {
	switch name {
	case "", "local":
		return "local", nil
	default:
		return "", fmt.Errorf("%w: %q", pool.ErrUnknown, name)
	}
}

// configured is a configuration in which the pool local is as given.
func configured(local poolspec.Pool) func(string) poolspec.Pool {
	return func(pool string) poolspec.Pool {
		if pool == "local" {
			return local
		}
		return poolspec.Pool{}
	}
}

const (
	nodeName    = "worker-1"
	topologyKey = "topology.hostpath.csi/node"
)

// client is a real gRPC client of the services over a unix socket.
type client struct {
	pb.IdentityClient
	pb.ControllerClient
	pb.NodeClient
}

func serve(t *testing.T, f *fake) client {
	t.Helper()
	services, err := csi.New(csi.Config{
		DriverName: "kubevirt.io.hostpath-provisioner", Version: "0.1.0", NodeName: nodeName, TopologyKey: topologyKey,
		KubeletDir: "/var/lib/kubelet", Volumes: f, Snapshots: f, Copies: f, Publisher: f, Pools: f,
	})
	if err != nil {
		t.Fatal(err)
	}
	conn := dial(t, services)
	return client{pb.NewIdentityClient(conn), pb.NewControllerClient(conn), pb.NewNodeClient(conn)}
}

// dial serves on a unix socket and connects to it.
func dial(t *testing.T, services interface{ Register(grpc.ServiceRegistrar) }) *grpc.ClientConn {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "csi.sock")
	listener, err := new(net.ListenConfig).Listen(t.Context(), "unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	services.Register(server)
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func mountCapability(mode pb.VolumeCapability_AccessMode_Mode, flags ...string) *pb.VolumeCapability {
	return &pb.VolumeCapability{
		AccessMode: &pb.VolumeCapability_AccessMode{Mode: mode},
		AccessType: &pb.VolumeCapability_Mount{Mount: &pb.VolumeCapability_MountVolume{
			FsType:     "xfs",
			MountFlags: flags,
		}},
	}
}

func blockCapability() *pb.VolumeCapability {
	return &pb.VolumeCapability{
		AccessMode: &pb.VolumeCapability_AccessMode{Mode: pb.VolumeCapability_AccessMode_SINGLE_NODE_WRITER},
		AccessType: &pb.VolumeCapability_Block{Block: &pb.VolumeCapability_BlockVolume{}},
	}
}

// writer is the capability of an ordinary claim.
func writer() []*pb.VolumeCapability {
	return []*pb.VolumeCapability{mountCapability(pb.VolumeCapability_AccessMode_SINGLE_NODE_WRITER)}
}

func (f *fake) Read(context.Context, store.Source, []byte, func(copytree.Batch) error) error {
	panic("not asked for")
}
func (f *fake) Fill(context.Context, string, volume.Source) error { panic("not asked for") }
