// Package csi speaks CSI (spec v1.13.0): the identity, controller and node services of one node's driver. Each call is
// parsed, handed to one method of the domain, and its one error mapped to a code (errors.go).
package csi

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	pb "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/records"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/volume"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/poolspec"
)

// Volumes makes, removes and finds volumes.
type Volumes interface {
	Create(ctx context.Context, spec volume.Spec) (volume.Volume, error)
	Delete(ctx context.Context, id string) error
	Get(ctx context.Context, id string) (volume.Volume, volume.Health, error)
	// List gives up to limit volumes (0: all) after an id, sorted by id; next is the last id given where there are more.
	List(ctx context.Context, after string, limit int) (volumes []volume.Volume, next string, err error)
}

// Publisher works on volumes where pods find them.
type Publisher interface {
	Publish(ctx context.Context, request volume.PublishRequest) error
	Unpublish(ctx context.Context, id, target string) error
	Stats(ctx context.Context, id, path string) (volume.Stats, error)
	// Expand makes a volume at least as large as asked, in bytes, and with a limit other than 0 at most that.
	Expand(ctx context.Context, id string, bytes, limit int64) (volume.Volume, error)
}

// Pools answers for the pools of this node.
type Pools interface {
	// Resolve gives the pool that a StorageClass means by its parameter storagePool, "" where it has none.
	Resolve(name string) (string, error)
	// Capacity is the room that volumes can be promised, and the largest one that could be created, in bytes.
	Capacity(pool string) (room, largest int64)
	// Spec is the configuration of the pool, the zero one of a pool that is not configured.
	Spec(pool string) poolspec.Pool
	// Health is that of every pool that this node has or should have.
	Health() []PoolHealth
}

// PoolHealth is a pool with its health.
type PoolHealth struct {
	Pool string
	volume.Health
}

// Config is what the services are made of; every field is required.
type Config struct {
	DriverName, Version string
	// NodeName is the node's name in the cluster and the value of TopologyKey.
	NodeName, TopologyKey string
	// KubeletDir is the directory that every target path lies in.
	KubeletDir string
	Volumes    Volumes
	Publisher  Publisher
	Pools      Pools
}

// server is the three services of a node's driver.
type server struct {
	Identity
	pb.UnimplementedControllerServer
	pb.UnimplementedNodeServer
	Config
}

// New returns the services.
func New(c Config) (*server, error) {
	texts := []string{c.DriverName, c.Version, c.NodeName, c.TopologyKey, c.KubeletDir}
	if slices.Contains(texts, "") || c.Volumes == nil || c.Publisher == nil || c.Pools == nil {
		return nil, errors.New("csi services: a field of their Config is missing")
	}
	ready := func() bool { return true } // pools that are absent do not count: restarting the driver would not help them
	return &server{Identity: Identity{Name: c.DriverName, Version: c.Version, Ready: ready}, Config: c}, nil
}

// Register adds the services to a gRPC server that the kubelet calls.
func (s *server) Register(r grpc.ServiceRegistrar) {
	pb.RegisterIdentityServer(r, s)
	s.RegisterController(r)
	pb.RegisterNodeServer(r, s)
}

// RegisterController adds what the controller of the cluster calls.
func (s *server) RegisterController(r grpc.ServiceRegistrar) { pb.RegisterControllerServer(r, s) }

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

func volumeID(field, id string) error {
	if id == "" {
		return invalid(field, "missing")
	}
	if err := records.ValidateID(id); err != nil {
		return invalid(field, "%w", err)
	}
	return nil
}

// CheckVolumeID is the status of a call with a field that has to be a volume's id and cannot be one, else nil.
func CheckVolumeID(field, id string) error { return toStatus(read, volumeID(field, id)) }

// Identity is the identity service of a driver.
type Identity struct {
	pb.UnimplementedIdentityServer
	Name, Version string
	// Ready reports whether calls are to be made already.
	Ready func() bool
}

// GetPluginInfo implements csi.IdentityServer.
func (i Identity) GetPluginInfo(context.Context, *pb.GetPluginInfoRequest) (*pb.GetPluginInfoResponse, error) {
	return &pb.GetPluginInfoResponse{Name: i.Name, VendorVersion: i.Version}, nil
}

// GetPluginCapabilities implements csi.IdentityServer.
func (i Identity) GetPluginCapabilities(
	context.Context, *pb.GetPluginCapabilitiesRequest,
) (*pb.GetPluginCapabilitiesResponse, error) {
	service := func(t pb.PluginCapability_Service_Type) *pb.PluginCapability {
		return &pb.PluginCapability{Type: &pb.PluginCapability_Service_{Service: &pb.PluginCapability_Service{Type: t}}}
	}
	online := &pb.PluginCapability_VolumeExpansion{Type: pb.PluginCapability_VolumeExpansion_ONLINE}
	return &pb.GetPluginCapabilitiesResponse{Capabilities: []*pb.PluginCapability{
		service(pb.PluginCapability_Service_CONTROLLER_SERVICE),
		service(pb.PluginCapability_Service_VOLUME_ACCESSIBILITY_CONSTRAINTS),
		{Type: &pb.PluginCapability_VolumeExpansion_{VolumeExpansion: online}},
	}}, nil
}

// Probe implements csi.IdentityServer.
func (i Identity) Probe(context.Context, *pb.ProbeRequest) (*pb.ProbeResponse, error) {
	return &pb.ProbeResponse{Ready: wrapperspb.Bool(i.Ready())}, nil
}

// Alive is nil where a CSI driver answers, ready or not: restarting one that only waits would not help it.
func Alive(ctx context.Context, conn grpc.ClientConnInterface) error {
	if _, err := pb.NewIdentityClient(conn).Probe(ctx, &pb.ProbeRequest{}); err != nil {
		return fmt.Errorf("probe the driver on its socket: %w", err)
	}
	return nil
}
