package admin

import (
	"context"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/abridge"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi/wire"
)

func (s *server) LookDirectory(
	ctx context.Context, q *wire.LookDirectoryRequest,
) (*wire.LookDirectoryResponse, error) {
	answer, err := forward(ctx, s, q, wire.AdminClient.LookDirectory)
	if err != nil {
		return nil, err
	}
	problems := answer.GetProblems()
	for i := range problems {
		problems[i] = abridge.Printable(problems[i])
	}
	return &wire.LookDirectoryResponse{
		Node: q.GetNode(), Pool: q.GetPool(), Path: q.GetPath(), Exists: answer.GetExists(), Files: answer.GetFiles(),
		Bytes: answer.GetBytes(), Partial: answer.GetPartial(), SameMount: answer.GetSameMount(),
		FsType: abridge.Printable(answer.GetFsType()), Enforceable: answer.GetEnforceable(),
		EnforcementReason: abridge.Printable(answer.GetEnforcementReason()),
		MountInside:       abridge.Printable(answer.GetMountInside()), UsedAt: abridge.Printable(answer.GetUsedAt()),
		Problems: problems,
	}, nil
}

// TakeDirectory implements wire.AdminServer. An administrator makes a PersistentVolume of the answer, so a node decides
// nothing in it but how far it is; but it cannot make of a size another one.
func (s *server) TakeDirectory(
	ctx context.Context, q *wire.TakeDirectoryRequest,
) (*wire.TakeDirectoryResponse, error) {
	answer, err := forward(ctx, s, q, wire.AdminClient.TakeDirectory)
	if err != nil {
		return nil, err
	}
	if answer.GetId() != q.GetId() || answer.GetBytes() < q.GetBytes() {
		return nil, status.Errorf(codes.Internal, "node %s was asked for volume %s and answered about another",
			q.GetNode(), q.GetId())
	}
	return &wire.TakeDirectoryResponse{
		Node: q.GetNode(), Id: q.GetId(), Pool: q.GetPool(), Path: q.GetPath(), Bytes: answer.GetBytes(),
		Shared: s.Config.Nodes.Everywhere(q.GetPool()), Enforcing: answer.GetEnforcing(), Files: answer.GetFiles(),
		Failed: abridge.Printable(answer.GetFailed()), Enforcement: abridge.Printable(answer.GetEnforcement()),
		Reason: abridge.Printable(answer.GetReason()), Driver: s.Driver, TopologyKey: s.TopologyKey,
	}, nil
}

func (s *server) ReturnDirectory(
	ctx context.Context, q *wire.ReturnDirectoryRequest,
) (*wire.ReturnDirectoryResponse, error) {
	answer, err := forward(ctx, s, q, wire.AdminClient.ReturnDirectory)
	if err != nil {
		return nil, err
	}
	return &wire.ReturnDirectoryResponse{
		Node: q.GetNode(), Id: q.GetId(), Path: abridge.Printable(answer.GetPath()), Done: answer.GetDone(),
		Files: answer.GetFiles(),
	}, nil
}
