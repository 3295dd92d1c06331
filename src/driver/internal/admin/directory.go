package admin

import (
	"context"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/csi"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/volume"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi/wire"
)

// Directories are what an admin can do with directories of the node that are in no pool.
type Directories interface {
	LookDirectory(ctx context.Context, pool, path string) (nodeapi.Directory, error)
	TakeDirectory(ctx context.Context, s volume.TakeSpec) (nodeapi.TakenDirectory, error)
	ReturnDirectory(ctx context.Context, id string) (nodeapi.ReturnedDirectory, error)
}

func (s *server) LookDirectory(
	ctx context.Context, q *wire.LookDirectoryRequest,
) (*wire.LookDirectoryResponse, error) {
	var found nodeapi.Directory
	err := s.own(q.GetNode())
	if err == nil {
		found, err = s.Config.Volumes.LookDirectory(ctx, q.GetPool(), q.GetPath())
	}
	if err != nil {
		return nil, csi.Status(err)
	}
	found.Node = s.Node
	return wire.FromDirectory(found), nil
}

func (s *server) TakeDirectory(
	ctx context.Context, q *wire.TakeDirectoryRequest,
) (*wire.TakeDirectoryResponse, error) {
	var taken nodeapi.TakenDirectory
	err := s.own(q.GetNode())
	if err == nil {
		taken, err = s.Config.Volumes.TakeDirectory(ctx, volume.TakeSpec{
			ID: q.GetId(), Pool: q.GetPool(), Path: q.GetPath(), Bytes: q.GetBytes(), Enforce: q.GetEnforce(),
			Claim: nodeapi.Claim{Namespace: q.GetClaimNamespace(), Name: q.GetClaimName()}, Group: q.FsGroup,
		})
	}
	if err != nil {
		return nil, csi.Status(err)
	}
	taken.Node, taken.Driver, taken.TopologyKey = s.Node, s.Driver, s.TopologyKey
	return wire.FromTaken(taken), nil
}

func (s *server) ReturnDirectory(
	ctx context.Context, q *wire.ReturnDirectoryRequest,
) (*wire.ReturnDirectoryResponse, error) {
	var back nodeapi.ReturnedDirectory
	err := s.own(q.GetNode())
	if err == nil {
		back, err = s.Config.Volumes.ReturnDirectory(ctx, q.GetId())
	}
	if err != nil {
		return nil, csi.Status(err)
	}
	back.Node = s.Node
	return wire.FromReturned(back), nil
}
