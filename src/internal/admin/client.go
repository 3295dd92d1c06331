package admin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"slices"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi/wire"
)

const (
	// socketName is the socket's name in the state directory.
	socketName = "admin.sock"
	// requestTimeout bounds a call, but for one that goes through volumes: that takes as long as they are
	// large.
	requestTimeout = time.Minute
	// maxStatus is what the status of all nodes may be, in bytes.
	maxStatus = 64 << 20
)

// Endpoint is where the driver whose state is in a directory serves Admin, as unix:///path.
func Endpoint(stateDir string) string { return "unix://" + filepath.Join(stateDir, socketName) }

// ask lets do call the driver whose state is in a directory, and says in its error what to do next.
func ask(stateDir string, do func(wire.AdminClient) error) error {
	socket := filepath.Join(stateDir, socketName)
	var unreachable atomic.Pointer[error]
	dial := func(ctx context.Context, _ string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, "unix", socket)
		unreachable.Store(&err)
		return conn, err
	}
	conn, err := grpc.NewClient("passthrough:///driver", grpc.WithContextDialer(dial),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxStatus)))
	if err != nil {
		return fmt.Errorf("make a client of the driver: %w", err)
	}
	defer func() { _ = conn.Close() }()
	err = do(wire.NewAdminClient(conn))
	said, is := status.FromError(err)
	switch at := unreachable.Load(); {
	case err == nil || !is:
		return err
	case at != nil && *at != nil:
		return fmt.Errorf("ask the driver at %s: %w; is it running, and are you its user (on a node, root)?", socket,
			*at)
	case slices.Contains([]codes.Code{codes.Canceled, codes.DeadlineExceeded}, said.Code()):
		return fmt.Errorf("the driver did not answer in time (%s); what was asked may be done all the same: look with "+
			"`driver status` and `driver volume list` before you ask again", said.Message())
	case said.Code() == codes.Unimplemented:
		return fmt.Errorf("the driver is of another version than this command: %s", said.Message())
	}
	return fmt.Errorf("the driver refused: %s", said.Message())
}

// call makes one call, which has its answer within requestTimeout.
func call[Q, R any](
	ctx context.Context, stateDir string, q Q,
	method func(wire.AdminClient, context.Context, Q, ...grpc.CallOption) (R, error),
) (answer R, err error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	err = ask(stateDir, func(driver wire.AdminClient) error {
		answer, err = method(driver, ctx, q)
		return err
	})
	return answer, err
}

// Volumes asks for the volumes of a node, or in the controller for those of all nodes.
func Volumes(ctx context.Context, stateDir string) ([]nodeapi.VolumeStatus, error) {
	return listing(ctx, stateDir, &wire.ListVolumesRequest{}, wire.AdminClient.Volumes, wire.ToListed)
}

// listing makes a call that is answered by a list, within requestTimeout.
func listing[Q, M, V any](
	ctx context.Context, stateDir string, q Q,
	method func(wire.AdminClient, context.Context, Q, ...grpc.CallOption) (grpc.ServerStreamingClient[M], error),
	read func(*M) V,
) ([]V, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	all := []V{}
	err := ask(stateDir, func(driver wire.AdminClient) error {
		stream, err := method(driver, ctx, q)
		for err == nil {
			var v *M
			if v, err = stream.Recv(); err == nil {
				all = append(all, read(v))
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		return err
	})
	return all, err
}

// Deleted asks for the deleted volumes of a node that can be brought back, or in the controller for those of all nodes.
func Deleted(ctx context.Context, stateDir string) ([]nodeapi.DeletedVolume, error) {
	return listing(ctx, stateDir, &wire.DeletedRequest{}, wire.AdminClient.Deleted, wire.ToDeleted)
}

// Enforce holds volumes to their sizes, and shows how far that is.
func Enforce(ctx context.Context, stateDir string, q *wire.EnforceRequest, show func(*wire.Progress)) error {
	return stream(ctx, stateDir, q, wire.AdminClient.Enforce, show)
}

// stream makes a call that works on volumes, for as long as that takes, and shows how far it is.
func stream[Q any](
	ctx context.Context, stateDir string, q Q,
	method func(wire.AdminClient, context.Context, Q, ...grpc.CallOption) (
		grpc.ServerStreamingClient[wire.Progress], error),
	show func(*wire.Progress),
) error {
	return ask(stateDir, func(driver wire.AdminClient) error {
		stream, err := method(driver, ctx, q)
		for begun := false; err == nil; begun = true {
			var p *wire.Progress
			switch p, err = stream.Recv(); {
			case err == nil:
				show(p)
			case errors.Is(err, io.EOF):
				return nil
			case begun:
				return errors.New("the work ended early: " + status.Convert(err).Message() +
					"; what was done stays, run the command again")
			}
		}
		return err
	})
}
