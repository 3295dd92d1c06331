// Package csi is the CSI controller service of the whole cluster, for upstream's sidecars. It keeps no truth of its
// own: it finds the node that a call is about, hands the call on, and answers for nodes that are gone.
package csi

import (
	"context"
	"errors"
	"sync"
	"time"

	pb "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/controller/internal/fleet"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/controller/internal/sharedpools"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/csi"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
)

// Cluster is what Kubernetes knows of volumes; nodeapi.ErrClusterUnknown where the API does not answer.
type Cluster interface {
	Claims
	// Get finds the PersistentVolume whose volumeHandle is id; ok is false where there surely is none.
	Get(ctx context.Context, id string) (pv nodeapi.PersistentVolume, ok bool, err error)
	// Known gives all with that volumeHandle that are known without a question to the API, by name.
	Known(handle string) []nodeapi.PersistentVolume
	// SnapshotContents are the names of VolumeSnapshotContents by handle, nil where the cluster has no snapshots.
	SnapshotContents(ctx context.Context) (map[string][]string, error)
	// NodeNames are those of all Node objects that are there or were lately, and since when there has been no other,
	// the zero time while not all are known.
	NodeNames() (names []string, since time.Time)
	// Cordoned reports whether pods are not to be scheduled on a node.
	Cordoned(ctx context.Context, node string) (bool, error)
	// TellVolume puts a warning on a PersistentVolume.
	TellVolume(pv nodeapi.PersistentVolume, reason, message string)
}

// Claims carry the node that was chosen for them.
type Claims interface {
	// SelectedNode gives "" where none is; found is false where the claim is gone.
	SelectedNode(ctx context.Context, claim nodeapi.Claim) (node string, found bool, err error)
	// SelectNode selects a node unless one is selected, and gives the one that is, "" where the claim is gone.
	SelectNode(ctx context.Context, claim nodeapi.Claim, node string) (selected string, err error)
	// Waiting are those of the driver's classes that have no volume.
	Waiting() []nodeapi.WaitingClaim
	// TellClaim puts an event on a claim; kind is Normal or Warning.
	TellClaim(claim nodeapi.Claim, kind, reason, message string)
}

// Config is what the service is made of; every field is required.
type Config struct {
	Cluster    Cluster
	Fleet      *fleet.Fleet
	Shared     *sharedpools.Pools
	DriverName string
	// Moving is the node on which a volume is that is being moved to another, "" of one that is not.
	Moving func(id string) (node string)
}

// Controller is the service.
type Controller struct {
	csi.Identity
	pb.UnimplementedControllerServer
	locator
	deletions deletions
	refusals  refusals
	relays    relays

	mu sync.Mutex
	// unenforced are the classes, by pool and parameters, whose first volume that nothing keeps to its size was
	// reported.
	unenforced map[string]bool
}

// New returns the service.
func New(c Config) (*Controller, error) {
	if c.Cluster == nil || c.Fleet == nil || c.Shared == nil || c.Moving == nil || c.DriverName == "" {
		return nil, errors.New("controller: a field of its Config is missing")
	}
	ready := func() bool { return c.Fleet.Ready() == nil }
	return &Controller{
		Identity: csi.Identity{Name: c.DriverName, Version: c.Fleet.Version, Ready: ready},
		locator:  locator{c}, deletions: deletions{Config: c, all: map[string]*deletion{}},
		refusals:   refusals{now: c.Fleet.Now, all: map[string]refusal{}},
		relays:     relays{log: c.Fleet.Log, now: c.Fleet.Now, wait: relayWait, all: map[string]*relay{}},
		unenforced: map[string]bool{},
	}, nil
}

// Register adds the service to a gRPC server.
func (c *Controller) Register(r grpc.ServiceRegistrar) {
	pb.RegisterIdentityServer(r, c)
	pb.RegisterControllerServer(r, c)
}

// ControllerGetCapabilities implements csi.ControllerServer.
func (c *Controller) ControllerGetCapabilities(
	context.Context, *pb.ControllerGetCapabilitiesRequest,
) (*pb.ControllerGetCapabilitiesResponse, error) {
	return csi.ControllerCapabilities(
		pb.ControllerServiceCapability_RPC_CREATE_DELETE_VOLUME,
		pb.ControllerServiceCapability_RPC_GET_CAPACITY,
		pb.ControllerServiceCapability_RPC_EXPAND_VOLUME,
		pb.ControllerServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER,
		pb.ControllerServiceCapability_RPC_CREATE_DELETE_SNAPSHOT,
		pb.ControllerServiceCapability_RPC_LIST_SNAPSHOTS,
		pb.ControllerServiceCapability_RPC_CLONE_VOLUME,
	), nil
}
