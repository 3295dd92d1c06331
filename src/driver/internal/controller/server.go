// Package controller is the CSI controller service of the whole cluster, for upstream's sidecars. It keeps no truth of
// its own: it finds the node that a call is about, hands the call on, and answers for nodes that are gone.
package controller

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	pb "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/controller/fleet"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/controller/sharedpools"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/csi"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
)

// PVs are the PersistentVolumes of this driver; nodeapi.ErrClusterUnknown where the API does not answer.
type PVs interface {
	// Get finds the one whose volumeHandle is id; ok is false where there surely is none.
	Get(ctx context.Context, id string) (pv nodeapi.PersistentVolume, ok bool, err error)
	// Known gives all with that volumeHandle that are known without a question to the API, by name.
	Known(handle string) []nodeapi.PersistentVolume
}

// ErrClaimGone is for a claim that is gone, or another one of that name.
var ErrClaimGone = errors.New("claim is gone")

// Claims carry the node that was chosen for them; ErrClaimGone where there is none.
type Claims interface {
	SelectedNode(ctx context.Context, claim nodeapi.Claim) (node string, err error)
	// SelectNode selects a node unless one is selected, and gives the one that is.
	SelectNode(ctx context.Context, claim nodeapi.Claim, node string) (selected string, err error)
	// Waiting are those of the driver's classes that have no volume.
	Waiting() []WaitingClaim
}

// Events are told to people; kind is Normal or Warning.
type Events interface {
	TellVolume(pv nodeapi.PersistentVolume, reason, message string)
	TellClaim(claim nodeapi.Claim, kind, reason, message string)
}

// Config is what the service is made of; every field is required.
type Config struct {
	DriverName, Version, TopologyKey string
	Fleet                            *fleet.Fleet
	Shared                           *sharedpools.Pools
	PVs                              PVs
	Claims                           Claims
	Events                           Events
	Now                              func() time.Time
}

// Server is the service.
type Server struct {
	csi.Identity
	pb.UnimplementedControllerServer
	Config

	mu sync.Mutex
	// deleted are the volumes that were deleted lately.
	deleted map[string]*deletion
	// unenforced are the classes, by pool and parameters, whose first volume that nothing keeps to its size was reported.
	unenforced map[string]bool
}

// New returns a service without nodes.
func New(c Config) (*Server, error) {
	if err := c.validate(); err != nil {
		return nil, err
	}
	s := &Server{
		Config: c, deleted: map[string]*deletion{}, unenforced: map[string]bool{},
	}
	s.Identity = csi.Identity{Name: c.DriverName, Version: c.Version, Ready: func() bool { return c.Fleet.Ready() == nil }}
	return s, nil
}

func (c Config) validate() error {
	texts := []string{c.DriverName, c.Version, c.TopologyKey}
	if slices.Contains(texts, "") || c.PVs == nil || c.Fleet == nil || c.Shared == nil || c.Claims == nil || c.Events == nil ||
		c.Now == nil {
		return errors.New("controller: a field of its Config is missing")
	}
	return nil
}

// Register adds the service to a gRPC server.
func (s *Server) Register(r grpc.ServiceRegistrar) {
	pb.RegisterIdentityServer(r, s)
	pb.RegisterControllerServer(r, s)
}

// ControllerGetCapabilities implements csi.ControllerServer.
func (s *Server) ControllerGetCapabilities(
	context.Context, *pb.ControllerGetCapabilitiesRequest,
) (*pb.ControllerGetCapabilitiesResponse, error) {
	return csi.ControllerCapabilities(
		pb.ControllerServiceCapability_RPC_CREATE_DELETE_VOLUME,
		pb.ControllerServiceCapability_RPC_GET_CAPACITY,
		pb.ControllerServiceCapability_RPC_EXPAND_VOLUME,
		pb.ControllerServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER,
	), nil
}
