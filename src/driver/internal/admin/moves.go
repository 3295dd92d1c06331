package admin

import (
	"context"
	"fmt"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/csi"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/store"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/volume"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi/wire"
)

func (s *server) Leave(ctx context.Context, q *wire.LeaveRequest) (*wire.MovingVolume, error) {
	err := s.own(q.GetNode())
	if err == nil && q.GetTo() == s.Node {
		err = fmt.Errorf("%w: to: volume %s is on node %s already", volume.ErrInvalid, q.GetId(), s.Node)
	}
	if err != nil {
		return nil, csi.Status(err)
	}
	if q.GetTo() == "" {
		if err = s.Mover.Stay(ctx, q.GetId()); err == nil {
			return s.Moving(ctx, &wire.MovingRequest{Id: q.GetId()})
		}
		return nil, csi.Status(err)
	}
	move := store.Leaving{To: q.GetTo(), Move: q.GetMove()}
	v, before, err := s.Mover.Leave(ctx, q.GetId(), move, q.GetLeaveSnapshots())
	if err != nil {
		return nil, csi.Status(err)
	}
	answer := described(v)
	answer.To, answer.Move, answer.Marked = move.To, move.Move, before
	return answer, nil
}

func (s *server) Moving(ctx context.Context, q *wire.MovingRequest) (*wire.MovingVolume, error) {
	if err := s.own(q.GetNode()); err != nil {
		return nil, err
	}
	v, err := s.Mover.Moving(ctx, q.GetId())
	if err != nil {
		return nil, csi.Status(err)
	}
	return described(v), nil
}

func described(v volume.Moving) *wire.MovingVolume {
	answer := &wire.MovingVolume{
		Id: v.ID, Pool: v.Pool, Bytes: v.Bytes, Used: v.Used, Published: v.Published, Filling: !v.Whole(),
		Lost:   !v.Placed && !v.Filling(),
		Copied: v.Copied, Snapshots: int64(v.Snapshots), Ephemeral: v.Ephemeral, Mode: v.Mode, Uid: int64(v.UID),
		Gid: int64(v.GID), Inodes: v.Inodes, InodesDerived: v.InodesFrom == store.Derived,
		OnDelete: string(v.OnDelete), Nested: int64(v.Nested),
	}
	switch {
	case v.Leaving != nil:
		answer.To, answer.Move = v.Leaving.To, v.Leaving.Move
	case v.Source != nil:
		answer.Move = v.Source.Move
	}
	return answer
}
