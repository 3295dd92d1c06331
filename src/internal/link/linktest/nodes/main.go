// Command nodes plays the nodes of a cluster in one process, for measurements: each has the real end of the tunnel,
// with a token of its own, and volumes in memory. It is not shipped.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"path"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	pb "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/names"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/csi"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/link"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/link/linktest"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/logging"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
)

const (
	// topologyKey and pool are the chart's.
	topologyKey, pool = "topology.hostpath.csi/node", "local"
	// room is what every node always has, in bytes.
	room = 1 << 40
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	dir := flag.String("dir", "", "folder with tokens/<node> for each node, which serves CSI at sockets/<node>.sock; "+
		"ca.crt has the controller's authorities")
	controller := flag.String("controller", "", "host:port of the controller; empty for nodes without one")
	volumes := flag.Int("volumes", 0, "volumes that each node has, named <node>-<number from 0>")
	flag.Parse()
	err := run(ctx, *dir, *controller, *volumes)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "nodes:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, dir, controller string, volumes int) error {
	files := os.DirFS(dir)
	tokens, err := fs.ReadDir(files, "tokens")
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var running sync.WaitGroup
	for _, token := range tokens {
		n := newNode(token.Name(), volumes)
		running.Go(func() { cancel(n.listen(ctx, filepath.Join(dir, "sockets"))) })
		if controller == "" {
			continue
		}
		end, err := n.end(controller, files)
		if err != nil {
			cancel(err)
			break
		}
		running.Go(func() { end.Run(ctx) })
	}
	running.Wait()
	if err := context.Cause(ctx); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// node is one of them.
type node struct {
	csi.Identity
	pb.UnimplementedControllerServer
	pb.UnimplementedNodeServer
	memory *linktest.Node
}

func newNode(name string, volumes int) *node {
	n := &node{
		Identity: csi.Identity{Name: names.Driver, Version: "0", Ready: func() bool { return true }},
		memory:   &linktest.Node{Name: name},
	}
	n.memory.Register = n.register
	for i := range volumes {
		n.put(fmt.Sprintf("%s-%d", name, i), 1<<30)
	}
	n.memory.Show(nodeapi.PoolStatus{
		Name: pool, ID: name, State: "ok", Size: room, Free: room, Growable: room, Allocatable: room, Volumes: volumes,
	})
	return n
}

func (n *node) put(id string, bytes int64) {
	n.memory.Put(nodeapi.VolumeStatus{ID: id, Pool: pool, Bytes: bytes, Used: -1, Created: time.Now()})
}

func (n *node) register(r grpc.ServiceRegistrar) {
	pb.RegisterIdentityServer(r, n)
	pb.RegisterControllerServer(r, n)
	pb.RegisterNodeServer(r, n)
}

// end is the node's end of the tunnel, which does not dial yet.
func (n *node) end(controller string, files fs.FS) (*link.Node, error) {
	c := n.memory.Config(controller, nil)
	c.TopologyKey = topologyKey
	c.Log = slog.New(slog.NewTextHandler(os.Stderr, nil)).With(logging.KeyNode, n.memory.Name)
	c.Token = func() (string, error) {
		token, err := fs.ReadFile(files, path.Join("tokens", n.memory.Name))
		return string(token), err
	}
	c.Authorities = func(context.Context) ([]byte, error) { return fs.ReadFile(files, "ca.crt") }
	return link.NewNode(c)
}

// listen serves on a socket of this machine what the controller gets through the tunnel.
func (n *node) listen(ctx context.Context, dir string) error {
	listener, err := new(net.ListenConfig).Listen(ctx, "unix", filepath.Join(dir, n.memory.Name+".sock"))
	if err != nil {
		return err
	}
	server := grpc.NewServer()
	n.register(server)
	defer context.AfterFunc(ctx, server.Stop)()
	return server.Serve(listener)
}

func (n *node) topology() *pb.Topology {
	return &pb.Topology{Segments: map[string]string{topologyKey: n.memory.Name}}
}

// ControllerGetCapabilities implements csi.ControllerServer.
func (*node) ControllerGetCapabilities(
	context.Context, *pb.ControllerGetCapabilitiesRequest,
) (*pb.ControllerGetCapabilitiesResponse, error) {
	return csi.ControllerCapabilities(
		pb.ControllerServiceCapability_RPC_CREATE_DELETE_VOLUME, pb.ControllerServiceCapability_RPC_GET_CAPACITY,
		pb.ControllerServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER,
	), nil
}

// CreateVolume implements csi.ControllerServer.
func (n *node) CreateVolume(_ context.Context, q *pb.CreateVolumeRequest) (*pb.CreateVolumeResponse, error) {
	bytes := q.GetCapacityRange().GetRequiredBytes()
	n.put(q.GetName(), bytes)
	return &pb.CreateVolumeResponse{Volume: &pb.Volume{
		VolumeId: q.GetName(), CapacityBytes: bytes, AccessibleTopology: []*pb.Topology{n.topology()},
	}}, nil
}

// ListVolumes implements csi.ControllerServer, for whoever looks for a volume on more than one node.
func (n *node) ListVolumes(ctx context.Context, _ *pb.ListVolumesRequest) (*pb.ListVolumesResponse, error) {
	all := &pb.ListVolumesResponse{}
	return all, n.memory.Volumes(ctx, func(v nodeapi.VolumeStatus) error {
		all.Entries = append(all.Entries, &pb.ListVolumesResponse_Entry{Volume: &pb.Volume{VolumeId: v.ID}})
		return nil
	})
}

// GetCapacity implements csi.ControllerServer.
func (*node) GetCapacity(context.Context, *pb.GetCapacityRequest) (*pb.GetCapacityResponse, error) {
	return csi.Capacity(room, room), nil
}

// NodeGetInfo implements csi.NodeServer, for a csi-provisioner beside this node.
func (n *node) NodeGetInfo(context.Context, *pb.NodeGetInfoRequest) (*pb.NodeGetInfoResponse, error) {
	return &pb.NodeGetInfoResponse{NodeId: n.memory.Name, AccessibleTopology: n.topology()}, nil
}
