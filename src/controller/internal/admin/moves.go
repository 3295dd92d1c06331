package admin

import (
	"context"

	"google.golang.org/grpc"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi/wire"
)

// Moves are those of volumes to other nodes. Errors have a gRPC status.
type Moves interface {
	Start(ctx context.Context, q *wire.StartMoveRequest) (*wire.Move, error)
	List(ctx context.Context) ([]*wire.Move, error)
	Abort(ctx context.Context, pv string) (*wire.Move, error)
}

func (s *server) StartMove(ctx context.Context, q *wire.StartMoveRequest) (*wire.Move, error) {
	return s.Config.Moves.Start(ctx, q)
}

func (s *server) Moves(_ *wire.ListMovesRequest, out grpc.ServerStreamingServer[wire.Move]) error {
	all, err := s.Config.Moves.List(out.Context())
	for i := 0; i < len(all) && err == nil; i++ {
		err = out.Send(all[i])
	}
	return err
}

func (s *server) AbortMove(ctx context.Context, q *wire.AbortMoveRequest) (*wire.Move, error) {
	return s.Config.Moves.Abort(ctx, q.GetPv())
}
