// Package csi speaks CSI (spec v1.13.0): the identity, controller and node services of one node's driver. Each call is
// parsed, handed to one method of the domain, and its one error mapped to a code (errors.go).
package csi

import (
	"context"
	"errors"
	"path"
	"slices"
	"strings"

	pb "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/store"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/volume"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/csi"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/kernel/copytree"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi/wire"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/poolspec"
)

// Volumes makes, removes and finds volumes.
type Volumes interface {
	Create(ctx context.Context, spec volume.Spec) (volume.Volume, error)
	// Delete and Expand take what the caller knows of the volume in Kubernetes, nil for nothing.
	Delete(ctx context.Context, id string, said *volume.Said) error
	Get(ctx context.Context, id string) (volume.Volume, volume.Health, error)
	// List gives up to limit volumes (0: all) after an id, sorted by id; next is the last id given where there are
	// more.
	List(ctx context.Context, after string, limit int) (volumes []volume.Volume, next string, err error)
	// Published reports whether a volume is mounted anywhere on this node.
	Published(id string) bool
}

// Snapshots makes, removes and finds snapshots of volumes.
type Snapshots interface {
	Snapshot(ctx context.Context, spec volume.SnapshotSpec) (store.Record, error)
	DeleteSnapshot(ctx context.Context, id string) error
	GetSnapshot(ctx context.Context, id string) (store.Record, error)
	// Snapshots gives those of one volume, or with an empty id of all, as Volumes.List gives volumes.
	Snapshots(ctx context.Context, of, after string, limit int) (snapshots []store.Record, next string, err error)
}

// Copies moves the data of snapshots and volumes from node to node.
type Copies interface {
	Read(ctx context.Context, source store.Source, from []byte, send func(copytree.Batch) error) error
	Fill(ctx context.Context, id string, source volume.Source) error
}

// Publisher works on volumes where pods find them.
type Publisher interface {
	Publish(ctx context.Context, request volume.PublishRequest) error
	Unpublish(ctx context.Context, id, target string) error
	Stats(ctx context.Context, id, path string) (volume.Stats, error)
	// Expand makes a volume at least as large as asked, in bytes, and with a limit other than 0 at most that.
	Expand(ctx context.Context, id string, bytes, limit int64, said *volume.Said) (volume.Volume, error)
}

// Pools answers for the pools of this node.
type Pools interface {
	// Resolve gives the pools that a StorageClass means by its parameter storagePool, "" where it has none: at least
	// one.
	Resolve(named string) (pools []string, err error)
	// Capacity is what volumes may grow by, and the largest one that could be created, in bytes.
	Capacity(pool string) (growable, largest int64)
	// Spec is the configuration of the pool, the zero one of a pool that is not configured.
	Spec(pool string) poolspec.Pool
	// Status is the state of every pool.
	Status() []nodeapi.PoolStatus
}

// Config is what the services are made of; every field is required.
type Config struct {
	DriverName, Version string
	// NodeName is the node's name in the cluster and the value of TopologyKey.
	NodeName, TopologyKey string
	// KubeletDir is the directory that every target path lies in.
	KubeletDir string
	Volumes    Volumes
	Snapshots  Snapshots
	Copies     Copies
	Publisher  Publisher
	Pools      Pools
}

// server is the three services of a node's driver.
type server struct {
	csi.Identity
	pb.UnimplementedControllerServer
	pb.UnimplementedNodeServer
	Config
}

// New returns the services.
func New(c Config) (*server, error) {
	texts := []string{c.DriverName, c.Version, c.NodeName, c.TopologyKey, c.KubeletDir}
	if slices.Contains(texts, "") || c.Volumes == nil || c.Snapshots == nil || c.Copies == nil ||
		c.Publisher == nil || c.Pools == nil {
		return nil, errors.New("csi services: a field of their Config is missing")
	}
	// Pools that are absent do not count: to restart the driver would not help them.
	ready := func() bool { return true }
	return &server{Identity: csi.Identity{Name: c.DriverName, Version: c.Version, Ready: ready}, Config: c}, nil
}

// Register adds the services to a gRPC server that the kubelet calls.
func (s *server) Register(r grpc.ServiceRegistrar) {
	pb.RegisterIdentityServer(r, s)
	s.RegisterController(r)
	pb.RegisterNodeServer(r, s)
}

// RegisterController adds what the controller of the cluster calls.
func (s *server) RegisterController(r grpc.ServiceRegistrar) {
	pb.RegisterControllerServer(r, s)
	wire.RegisterCopiesServer(r, copies{Copies: s.Copies})
}

func (c Config) topology() *pb.Topology {
	return &pb.Topology{Segments: map[string]string{c.TopologyKey: c.NodeName}}
}

// target checks a path that the kubelet wants something mounted at, or unmounted from.
func (c Config) target(name string) (string, error) {
	clean := path.Clean(name)
	switch {
	case name == "":
		return "", invalid("target_path", "missing")
	case !path.IsAbs(name) || strings.ContainsRune(name, 0) || strings.Contains(name+"/", "/../"):
		return "", invalid("target_path", "%.128q is not an absolute path without ..", name)
	case !strings.HasPrefix(clean, path.Clean(c.KubeletDir)+"/"):
		return "", invalid("target_path", "%.128q does not lie in the kubelet's directory %s", name, c.KubeletDir)
	}
	return clean, nil
}
