// Package admin does what administrators ask of a node: root on its own socket, and the controller for them.
package admin

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"math"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/csi"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/ledger"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/store"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/volume"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi/wire"
)

// Pools is what an admin can ask about and change.
type Pools interface {
	Status() []nodeapi.PoolStatus
	Forget(ctx context.Context, name string) error
	Take(ctx context.Context, name, from string) error
	Find(id string) (pool string, v ledger.Volume, ok bool)
	Each(visit func(pool, id string, v ledger.Volume))
}

// Volumes is what an admin can do with single volumes, and all of them.
type Volumes interface {
	Directories
	Each(ctx context.Context, visit func(nodeapi.VolumeStatus) error) error
	Enforce(ctx context.Context, id string, inodes *int64, progress func(files int64)) error
	Measure(ctx context.Context, id string, progress func(files, bytes int64)) error
	Adopt(ctx context.Context, id string, bytes int64) (store.Record, error)
	Discard(ctx context.Context, id, node string, keep time.Duration) error
	EachDeleted(ctx context.Context, visit func(nodeapi.DeletedVolume) error) error
	Undelete(ctx context.Context, entry string) (store.Record, error)
}

// Mover is what a move of a volume to another node asks of this one.
type Mover interface {
	Moving(ctx context.Context, id string) (volume.Moving, error)
	Leave(
		ctx context.Context, id string, move store.Leaving, leaveSnapshots bool,
	) (v volume.Moving, before bool, err error)
	Stay(ctx context.Context, id string) error
}

// Config is what a server is made of; every field is required.
type Config struct {
	Driver, Version, Node, TopologyKey string
	Pools                              Pools
	Volumes                            Volumes
	Mover                              Mover
	Log                                *slog.Logger
}

// server is a node's Admin service.
type server struct {
	wire.UnimplementedAdminServer
	Config
}

// New returns the service.
func New(c Config) (*server, error) {
	if slices.Contains([]string{c.Driver, c.Version, c.Node, c.TopologyKey}, "") || c.Pools == nil ||
		c.Volumes == nil || c.Mover == nil || c.Log == nil {
		return nil, errors.New("admin: a field of its Config is missing")
	}
	return &server{Config: c}, nil
}

func (s *server) Register(r grpc.ServiceRegistrar) { wire.RegisterAdminServer(r, s) }

// own refuses what is asked of another node.
func (s *server) own(node string) error {
	if node != "" && node != s.Node {
		return status.Errorf(codes.InvalidArgument, "node: this is %s, not %s; ask the controller, or run the command "+
			"in the driver's pod on that node", s.Node, node)
	}
	return nil
}

func (s *server) Status(context.Context, *wire.StatusRequest) (*wire.StatusResponse, error) {
	return wire.FromStatus(nodeapi.Status{
		Driver: s.Driver, Version: s.Version, Node: s.Node, Pools: s.Pools.Status(),
	}), nil
}

func (s *server) Volumes(_ *wire.ListVolumesRequest, out grpc.ServerStreamingServer[wire.ListedVolume]) error {
	var all []nodeapi.VolumeStatus
	err := s.Config.Volumes.Each(out.Context(), func(v nodeapi.VolumeStatus) error {
		if v.Node, v.State = s.Node, v.OnItsNode(); v.Ephemeral {
			v.State = "inline"
		}
		all = append(all, v)
		return nil
	})
	if err != nil {
		return csi.Status(err)
	}
	slices.SortFunc(all, func(a, b nodeapi.VolumeStatus) int {
		return cmp.Or(strings.Compare(a.Pool, b.Pool), strings.Compare(a.ID, b.ID))
	})
	for _, v := range all {
		if err := out.Send(wire.FromListed(v)); err != nil {
			return err
		}
	}
	return nil
}

func (s *server) ForgetPool(ctx context.Context, q *wire.ForgetPoolRequest) (*wire.ForgetPoolResponse, error) {
	err := s.own(q.GetNode())
	known := slices.ContainsFunc(s.Pools.Status(), func(p nodeapi.PoolStatus) bool {
		return p.Name == q.GetPool() && p.Used
	})
	if err == nil {
		err = s.Pools.Forget(ctx, q.GetPool())
	}
	return &wire.ForgetPoolResponse{Known: known}, csi.Status(err)
}

func (s *server) TakePool(ctx context.Context, q *wire.TakePoolRequest) (*wire.TakePoolResponse, error) {
	err := s.own(q.GetNode())
	if err == nil {
		err = s.Pools.Take(ctx, q.GetPool(), q.GetFrom())
	}
	return &wire.TakePoolResponse{}, csi.Status(err)
}

func (s *server) Discard(ctx context.Context, q *wire.DiscardRequest) (*wire.DiscardResponse, error) {
	err := s.own(q.GetNode())
	if err == nil {
		keep := time.Duration(min(q.GetKeepSeconds(), math.MaxInt64/int64(time.Second))) * time.Second
		err = s.Config.Volumes.Discard(ctx, q.GetId(), q.GetPvOn(), keep)
	}
	return &wire.DiscardResponse{}, csi.Status(err)
}

func (s *server) Adopt(ctx context.Context, q *wire.AdoptRequest) (*wire.AdoptResponse, error) {
	var record store.Record
	err := s.own(q.GetNode())
	if err == nil {
		record, err = s.Config.Volumes.Adopt(ctx, q.GetId(), q.GetBytes())
	}
	return s.described(record, err)
}

func (s *server) Deleted(_ *wire.DeletedRequest, out grpc.ServerStreamingServer[wire.DeletedVolume]) error {
	return csi.Status(s.Config.Volumes.EachDeleted(out.Context(), func(v nodeapi.DeletedVolume) error {
		v.Node = s.Node
		return out.Send(wire.FromDeleted(v))
	}))
}

func (s *server) Undelete(ctx context.Context, q *wire.UndeleteRequest) (*wire.AdoptResponse, error) {
	var record store.Record
	err := s.own(q.GetNode())
	if err == nil {
		record, err = s.Config.Volumes.Undelete(ctx, q.GetEntry())
	}
	return s.described(record, err)
}

// described is what a PersistentVolume has to say of a volume.
func (s *server) described(record store.Record, err error) (*wire.AdoptResponse, error) {
	if err != nil {
		return nil, csi.Status(err)
	}
	return &wire.AdoptResponse{
		Volume: &wire.Volume{
			Id: record.ID, Pool: record.Pool, Bytes: record.Bytes,
			ClaimNamespace: record.Claim.Namespace, ClaimName: record.Claim.Name,
		},
		Shared: slices.ContainsFunc(s.Pools.Status(), func(p nodeapi.PoolStatus) bool {
			return p.Name == record.Pool && p.Shared
		}),
		Driver: s.Driver, TopologyKey: s.TopologyKey, Node: s.Node,
	}, nil
}
