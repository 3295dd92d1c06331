// Package controller is the CSI controller service of the whole cluster, for upstream's sidecars. It keeps no truth of
// its own: it finds the node that a call is about, hands the call on, and answers for nodes that are gone.
package controller

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	pb "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/tunnel"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/csi"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/poolspec"
)

// PVs are the PersistentVolumes of this driver; nodeapi.ErrClusterUnknown where the API does not answer.
type PVs interface {
	// Get finds the one whose volumeHandle is id; ok is false where there surely is none.
	Get(ctx context.Context, id string) (pv nodeapi.PersistentVolume, ok bool, err error)
	// Known gives all with that volumeHandle that are known without a question to the API, by name.
	Known(handle string) []nodeapi.PersistentVolume
	List() []nodeapi.PersistentVolume
}

// Members are the nodes of the cluster, connected or not.
type Members interface {
	Synced() bool
	// NodesWithDriver are those that the kubelet has registered the driver on, of them those with these labels.
	NodesWithDriver(labels map[string]string) []string
	// NodeGone reports whether there is no Node object of that name, and since when.
	NodeGone(ctx context.Context, name string) (since time.Time, gone bool, err error)
	// HasTunnel is false for a node whose driver is of a version without a controller.
	HasTunnel(ctx context.Context, name string) (bool, error)
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
	TellNode(node, kind, reason, message string)
	TellVolume(pv nodeapi.PersistentVolume, reason, message string)
	TellClaim(claim nodeapi.Claim, kind, reason, message string)
}

// Config is what the service is made of; every field but Identities and Settling is required.
type Config struct {
	DriverName, Version, TopologyKey string
	// Pools are the configured ones.
	Pools   []poolspec.Pool
	PVs     PVs
	Members Members
	Claims  Claims
	Events  Events
	// Identities is required where a pool is shared.
	Identities Identities
	// RemoveOldCapacity removes what drivers without a controller have published for nodes that are connected now, and
	// gives how much there was, of all nodes.
	RemoveOldCapacity func(ctx context.Context, connected func(node string) bool) (found int, err error)
	// NodeGrace is how long a node may be away before claims go elsewhere; GoneAfter how long there must be no Node object
	// before its volumes are let go; OrphanAge how old a volume must be before it counts as an orphan.
	NodeGrace, GoneAfter, OrphanAge time.Duration
	// Settling is how long a driver that has connected may look at its pools before it is asked for its volumes.
	Settling time.Duration
	Log      *slog.Logger
	Now      func() time.Time
}

// Server is the service.
type Server struct {
	csi.Identity
	pb.UnimplementedControllerServer
	Config
	// pools are the names of Pools.
	pools []string
	hub   *tunnel.Hub
	start time.Time
	// arrived are nodes that have connected and were not asked for their volumes since.
	arrived chan string

	// mu is not locked while the hub is asked, which calls Changed under its own lock.
	mu sync.Mutex
	// left are the nodes that are not connected any more, since when; awaited those that have not been yet; gone those
	// without a Node object, for GoneAfter.
	left, awaited, gone map[string]time.Time
	// found are the volumes that no PersistentVolume of their node names, by node and pool.
	found map[string]map[string]orphans
	// identities are the ids of the shared pools, as last loaded: never changed, only replaced.
	identities map[string]string
	// missed are nodes whose absence was reported.
	missed map[string]bool
	// leftPools are the pools that left the configuration and that nodes serve, and whether they are shared; twins the
	// nodes that show one marker, of pools that are not. Never changed, only replaced.
	leftPools map[string]bool
	twins     map[poolID][]string
	// deleted are the volumes that were deleted lately.
	deleted map[string]*deletion
	// unenforced are the classes, by pool and parameters, whose first volume that nothing keeps to its size was reported.
	unenforced map[string]bool
	// searched is when a node that had connected was asked for its volumes.
	searched map[string]time.Time
}

// New returns a service without nodes.
func New(c Config) (*Server, error) {
	if err := c.validate(); err != nil {
		return nil, err
	}
	s := &Server{
		Config: c, start: c.Now(), arrived: make(chan string, 1024), left: map[string]time.Time{},
		awaited: map[string]time.Time{}, gone: map[string]time.Time{},
		found: map[string]map[string]orphans{}, missed: map[string]bool{},
		searched: map[string]time.Time{}, deleted: map[string]*deletion{}, unenforced: map[string]bool{},
	}
	for _, p := range c.Pools {
		s.pools = append(s.pools, p.Name)
	}
	s.Identity = csi.Identity{Name: c.DriverName, Version: c.Version, Ready: func() bool { return s.Ready() == nil }}
	return s, nil
}

func (c Config) validate() error {
	texts := []string{c.DriverName, c.Version, c.TopologyKey}
	if slices.Contains(texts, "") || c.PVs == nil || c.Members == nil || c.Claims == nil || c.Events == nil ||
		c.RemoveOldCapacity == nil || c.Log == nil || c.Now == nil {
		return errors.New("controller: a field of its Config is missing")
	}
	if min(c.NodeGrace, c.GoneAfter, c.OrphanAge) <= 0 {
		return errors.New("controller: want positive times")
	}
	isShared := func(p poolspec.Pool) bool { return p.Shared() }
	if slices.ContainsFunc(c.Pools, isShared) && c.Identities == nil {
		return errors.New("controller: a pool is shared, and Identities of its Config is missing")
	}
	return nil
}

// Connect gives the service its nodes, before it is served.
func (s *Server) Connect(hub *tunnel.Hub) { s.hub = hub }

// Register adds the service to a gRPC server.
func (s *Server) Register(r grpc.ServiceRegistrar) {
	pb.RegisterIdentityServer(r, s)
	pb.RegisterControllerServer(r, s)
}

// Ready is nil once calls are to be made. At the start they would be answered wrongly until the nodes are there; those
// that do not come are waited for as long as their grace.
func (s *Server) Ready() error {
	if !s.Members.Synced() {
		return errors.New("waiting for the Kubernetes API")
	}
	if s.Now().Sub(s.start) >= s.NodeGrace {
		return nil
	}
	for _, node := range s.Members.NodesWithDriver(nil) {
		if s.hub.Get(node) == nil {
			return fmt.Errorf("waiting for node %s to connect", node)
		}
	}
	return nil
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
