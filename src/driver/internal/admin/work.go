package admin

import (
	"context"
	"fmt"
	"slices"

	"google.golang.org/grpc"
	"google.golang.org/grpc/status"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/csi"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/ledger"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/pool"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/volume"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/logging"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi/wire"
)

// selection is which volumes are worked on.
type selection interface {
	GetNode() string
	GetPool() string
	GetIds() []string
}

func (s *server) Enforce(q *wire.EnforceRequest, out grpc.ServerStreamingServer[wire.Progress]) error {
	needs := func(in string, v ledger.Volume) bool { return in == q.GetPool() && v.QuotaID != 0 && !v.Counted }
	return s.each(q, needs, out, func(id string, step func(files, bytes int64)) error {
		return s.Config.Volumes.Enforce(out.Context(), id, q.Inodes, func(files int64) { step(files, 0) })
	})
}

func (s *server) Measure(q *wire.MeasureRequest, out grpc.ServerStreamingServer[wire.Progress]) error {
	measured := func(in string, v ledger.Volume) bool {
		return !v.Snapshot && !v.Refused && (q.GetPool() == "" || in == q.GetPool())
	}
	return s.each(q, measured, out, func(id string, step func(files, bytes int64)) error {
		return s.Config.Volumes.Measure(out.Context(), id, step)
	})
}

// each works on one volume of a selection after the other.
func (s *server) each(
	q selection, wanted func(in string, v ledger.Volume) bool, out grpc.ServerStreamingServer[wire.Progress],
	work func(id string, step func(files, bytes int64)) error,
) error {
	var ids []string
	err := s.own(q.GetNode())
	if err == nil {
		ids, err = s.selected(q, wanted)
	}
	if err != nil {
		return csi.Status(err)
	}
	for _, id := range ids {
		last := &wire.Progress{Id: id}
		err := s.inPool(q.GetPool(), id)
		if err == nil {
			err = work(id, func(files, bytes int64) {
				last.Files, last.Bytes = files, bytes
				_ = out.Send(&wire.Progress{Id: id, Files: files, Bytes: bytes}) // one that has gone ends the context
			})
		}
		if last.Done = err == nil; err != nil {
			s.say(out.Context(), id, err)
			last.Error = err.Error()
		}
		if err := out.Send(last); err != nil {
			return err
		}
		if err := out.Context().Err(); err != nil {
			return status.FromContextError(err).Err()
		}
	}
	return nil
}

func (s *server) say(ctx context.Context, id string, err error) {
	s.Log.WarnContext(ctx, "cannot enforce the size of a volume, or measure it", logging.KeyID, id,
		logging.KeyError, err)
}

// selected gives the ids of a selection, without repetition; those that are wanted where it names none.
func (s *server) selected(q selection, wanted func(in string, v ledger.Volume) bool) (ids []string, err error) {
	for _, id := range q.GetIds() {
		if !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	if len(ids) > 0 {
		return ids, nil
	}
	all := s.Pools.Status()
	i := slices.IndexFunc(all, func(p nodeapi.PoolStatus) bool { return p.Name == q.GetPool() })
	switch {
	case q.GetPool() == "":
	case i < 0:
		return nil, fmt.Errorf("%w: %s", pool.ErrUnknown, q.GetPool())
	case !all[i].Served():
		return nil, fmt.Errorf("%w: pool %s: %s", pool.ErrAbsent, q.GetPool(), all[i].Message)
	}
	s.Pools.Each(func(in, id string, v ledger.Volume) {
		if wanted(in, v) {
			ids = append(ids, id)
		}
	})
	slices.Sort(ids)
	return ids, nil
}

// inPool refuses a volume of another pool than the one that is named.
func (s *server) inPool(name, id string) error {
	if in, _, ok := s.Pools.Find(id); ok && name != "" && in != name {
		return fmt.Errorf("%w: volume %s is in pool %s, not in %s", volume.ErrInvalid, id, in, name)
	}
	return nil
}
