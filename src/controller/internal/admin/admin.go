// Package admin answers administrators for all nodes: what the controller knows itself, and what it has a node do.
package admin

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/controller/internal/works"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/abridge"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi/wire"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/poolspec"
)

// Nodes is what the controller knows of the nodes.
type Nodes interface {
	Nodes() []nodeapi.NodeStatus
	Volumes(ctx context.Context) ([]nodeapi.VolumeStatus, error)
	// Connection is that of a node; its error has a gRPC status.
	Connection(node string) (grpc.ClientConnInterface, error)
	// Everywhere reports whether a pool is on all nodes.
	Everywhere(pool string) bool
}

// server is the controller's Admin service.
type server struct {
	wire.UnimplementedAdminServer
	Config
}

// Config is what a server is made of.
type Config struct {
	Driver, Version, TopologyKey string
	Nodes                        Nodes
	Works                        *works.Room // of what takes longer than anybody may wait
	Moves                        Moves
}

// New returns the service of a driver's controller.
func New(c Config) *server { return &server{Config: c} }

func (s *server) Register(r grpc.ServiceRegistrar) { wire.RegisterAdminServer(r, s) }

func (s *server) Status(context.Context, *wire.StatusRequest) (*wire.StatusResponse, error) {
	return wire.FromStatus(nodeapi.Status{Driver: s.Driver, Version: s.Version, Nodes: s.Config.Nodes.Nodes()}), nil
}

func (s *server) Volumes(_ *wire.ListVolumesRequest, out grpc.ServerStreamingServer[wire.ListedVolume]) error {
	all, err := s.Config.Nodes.Volumes(out.Context())
	if err != nil {
		return status.Error(codes.Unavailable, err.Error())
	}
	slices.SortFunc(all, func(a, b nodeapi.VolumeStatus) int {
		return cmp.Or(strings.Compare(a.Node, b.Node), strings.Compare(a.Pool, b.Pool), strings.Compare(a.ID, b.ID))
	})
	for _, v := range all {
		if err := out.Send(wire.FromListed(v)); err != nil {
			return err
		}
	}
	return nil
}

// Adopt implements wire.AdminServer. An administrator makes a PersistentVolume of the answer, so a node decides nothing
// in it but the volume's size, pool and claim.
func (s *server) Adopt(ctx context.Context, q *wire.AdoptRequest) (*wire.AdoptResponse, error) {
	answer, err := forward(ctx, s, q, wire.AdminClient.Adopt)
	if err != nil {
		return nil, err
	}
	return s.described(q.GetNode(), q.GetId(), answer.GetVolume())
}

// described is what an administrator makes a PersistentVolume of, where a node's answer is about the volume that it was
// asked for.
func (s *server) described(node, id string, v *wire.Volume) (*wire.AdoptResponse, error) {
	if v.GetId() != id || !sound(v) {
		return nil, status.Errorf(codes.Internal, "node %s was asked for volume %s and answered about another", node,
			id)
	}
	return &wire.AdoptResponse{
		Volume: v, Shared: s.Config.Nodes.Everywhere(v.GetPool()), Driver: s.Driver,
		TopologyKey: s.TopologyKey, Node: node,
	}, nil
}

// sound reports whether what a node says can be a volume.
func sound(v *wire.Volume) bool {
	claimed := len(validation.IsDNS1123Subdomain(v.GetClaimName())) == 0 &&
		len(validation.IsDNS1123Label(v.GetClaimNamespace())) == 0
	return nodeapi.ValidateID(v.GetId()) == nil && v.GetBytes() > 0 && poolspec.ValidName(v.GetPool()) &&
		(v.GetClaimName() == "" || claimed)
}

// Discard implements wire.AdminServer. A node that is said to have the volume too has to have all of it: after etcd
// was restored, a PersistentVolume may name the node that a volume was moved from.
func (s *server) Discard(ctx context.Context, q *wire.DiscardRequest) (*wire.DiscardResponse, error) {
	if other := q.GetPvOn(); other != "" {
		v, err := forward(ctx, s, &wire.MovingRequest{Node: other, Id: q.GetId()}, wire.AdminClient.Moving)
		switch {
		case status.Code(err) == codes.NotFound,
			err == nil && (v.GetId() != q.GetId() || v.GetFilling() || v.GetLost()):
			return nil, status.Errorf(codes.FailedPrecondition, "node %s does not have the volume, or not all of it: "+
				"what node %s has may be all there is; replace the PersistentVolume, see docs/how-to/move-a-disk.md",
				other, q.GetNode())
		case err != nil:
			return nil, err
		}
	}
	return forward(ctx, s, q, wire.AdminClient.Discard)
}

func (s *server) ForgetPool(ctx context.Context, q *wire.ForgetPoolRequest) (*wire.ForgetPoolResponse, error) {
	return forward(ctx, s, q, wire.AdminClient.ForgetPool)
}

func (s *server) TakePool(ctx context.Context, q *wire.TakePoolRequest) (*wire.TakePoolResponse, error) {
	return forward(ctx, s, q, wire.AdminClient.TakePool)
}

// forward has the node that a request names do it.
func forward[Q interface{ GetNode() string }, R any](
	ctx context.Context, s *server, q Q,
	method func(wire.AdminClient, context.Context, Q, ...grpc.CallOption) (R, error),
) (answer R, err error) {
	node := q.GetNode()
	connection, err := s.connection(node)
	if err != nil {
		return answer, err
	}
	answer, err = method(wire.NewAdminClient(connection), ctx, q)
	return answer, explained(node, err)
}

// connection is that of the node that is to do something.
func (s *server) connection(node string) (grpc.ClientConnInterface, error) {
	if node == "" {
		return nil, status.Error(codes.InvalidArgument, "node: the controller has no pools; name the node with --node")
	}
	return s.Config.Nodes.Connection(node)
}

// explained says which node refused, and why an older one did.
func explained(node string, err error) error {
	if err == nil {
		return nil
	}
	said := status.Convert(err).Proto()
	if said.GetCode() == int32(codes.Unimplemented) {
		return status.Errorf(codes.FailedPrecondition, "node %s: its driver is of an older version, which takes no "+
			"commands from the controller; run the command in its pod", node)
	}
	said.Message = "node " + node + ": " + abridge.Printable(said.GetMessage())
	return status.ErrorProto(said)
}
