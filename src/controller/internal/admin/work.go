package admin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/controller/internal/works"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/abridge"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi/wire"
)

func (s *server) Enforce(q *wire.EnforceRequest, out grpc.ServerStreamingServer[wire.Progress]) error {
	return each(out.Context(), s, q, wire.AdminClient.Enforce, out.Send)
}

func (s *server) Measure(q *wire.MeasureRequest, out grpc.ServerStreamingServer[wire.Progress]) error {
	return each(out.Context(), s, q, wire.AdminClient.Measure, out.Send)
}

// each has a node work on volumes, and takes its steps.
func each[Q interface{ GetNode() string }](
	ctx context.Context, s *server, q Q,
	method func(wire.AdminClient, context.Context, Q, ...grpc.CallOption) (
		grpc.ServerStreamingClient[wire.Progress], error),
	take func(*wire.Progress) error,
) error {
	stream, err := forward(ctx, s, q, method)
	for err == nil {
		p, ended := stream.Recv()
		if errors.Is(ended, io.EOF) {
			return nil
		}
		if err = explained(q.GetNode(), ended); err == nil {
			err = take(&wire.Progress{
				Id: abridge.Line(p.GetId()), Files: max(0, p.GetFiles()), Done: p.GetDone(),
				Error: abridge.Line(p.GetError()), Bytes: max(0, p.GetBytes()),
			})
		}
	}
	return err
}

// selection is which volumes of a node are worked on.
type selection interface {
	GetNode() string
	GetPool() string
	GetIds() []string
}

// maxIDs is how many volumes one request may name.
const maxIDs = 1_000

// shownIDs is how many of them are named to a person.
const shownIDs = 3

func (s *server) StartWork(_ context.Context, q *wire.StartWorkRequest) (*wire.StartWorkResponse, error) {
	var of selection
	var run func(ctx context.Context, take func(*wire.Progress) error) error
	is := nodeapi.Work{}
	switch q := q.GetWork().(type) {
	case *wire.StartWorkRequest_Enforce:
		of, is.Verb = q.Enforce, nodeapi.VerbEnforce
		run = func(ctx context.Context, take func(*wire.Progress) error) error {
			return each(ctx, s, q.Enforce, wire.AdminClient.Enforce, take)
		}
	case *wire.StartWorkRequest_Measure:
		of, is.Verb = q.Measure, nodeapi.VerbMeasure
		run = func(ctx context.Context, take func(*wire.Progress) error) error {
			return each(ctx, s, q.Measure, wire.AdminClient.Measure, take)
		}
	default:
		return nil, status.Error(codes.InvalidArgument, "work: this version knows enforce and measure; update the "+
			"controller")
	}
	if len(of.GetIds()) > maxIDs {
		return nil, status.Errorf(codes.InvalidArgument, "ids: %d are named, and at most %d can be; name a pool",
			len(of.GetIds()), maxIDs)
	}
	if _, err := s.connection(of.GetNode()); err != nil {
		return nil, err
	}
	is.Node, is.What = of.GetNode(), about(of)
	//nolint:contextcheck // the work outlives the call that begins it
	id, running, err := s.Config.Works.Start(keyOf(is.Verb, of, q.GetEnforce()), is, func(
		ctx context.Context, say func(nodeapi.VolumeWork, string),
	) error {
		return withoutCode(run(ctx, func(p *wire.Progress) error {
			say(wire.ToVolumeWork(p), sentence(p))
			return nil
		}))
	})
	return &wire.StartWorkResponse{Id: id, Running: running}, coded(err)
}

// withoutCode is a node's error as a sentence.
func withoutCode(err error) error {
	if err == nil {
		return nil
	}
	return errors.New(status.Convert(err).Message())
}

// about says to a person which volumes are worked on.
func about(q selection) string {
	ids, in := q.GetIds(), ""
	if q.GetPool() != "" {
		in = " in pool " + q.GetPool()
	}
	if len(ids) == 0 {
		return "all" + cmp.Or(in, " on the node")
	}
	what := strings.Join(ids[:min(len(ids), shownIDs)], ", ")
	if more := len(ids) - shownIDs; more > 0 {
		what += fmt.Sprintf(" and %d more", more)
	}
	return what + in
}

// keyOf tells work from other work.
func keyOf(verb string, q selection, enforce *wire.EnforceRequest) string {
	inodes := "as they are"
	if enforce != nil && enforce.Inodes != nil {
		inodes = fmt.Sprint(enforce.GetInodes())
	}
	ids := slices.Sorted(slices.Values(q.GetIds()))
	return strings.Join(append([]string{verb, q.GetNode(), q.GetPool(), inodes}, slices.Compact(ids)...), "\x00")
}

// sentence is a step for a person.
func sentence(p *wire.Progress) string {
	said := fmt.Sprintf("%d files counted", p.GetFiles())
	switch {
	case p.GetError() != "":
		said = p.GetError()
	case p.GetDone():
		said = fmt.Sprintf("done, %d files", p.GetFiles())
	}
	return p.GetId() + ": " + said
}

func (s *server) Works(q *wire.WorksRequest, out grpc.ServerStreamingServer[wire.Work]) error {
	all := s.Config.Works.List()
	if q.GetId() != "" {
		one, err := s.Config.Works.Get(q.GetId())
		if err != nil {
			return coded(err)
		}
		all = []nodeapi.Work{one}
	}
	for _, w := range all {
		if err := out.Send(wire.FromWork(w)); err != nil {
			return err
		}
	}
	return nil
}

func (s *server) CancelWork(_ context.Context, q *wire.CancelWorkRequest) (*wire.CancelWorkResponse, error) {
	return &wire.CancelWorkResponse{}, coded(s.Config.Works.Cancel(q.GetId()))
}

// coded gives an error of the works its code.
func coded(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, works.ErrUnknown):
		return status.Error(codes.NotFound, err.Error())
	case errors.Is(err, works.ErrFull):
		return status.Error(codes.ResourceExhausted, err.Error())
	case errors.Is(err, works.ErrStopping):
		return status.Error(codes.Unavailable, err.Error())
	}
	return status.Error(codes.Internal, err.Error())
}
