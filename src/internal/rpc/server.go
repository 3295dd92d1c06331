// Package rpc does around every call what calls have in common: a log line, metrics, a deadline, and recovery from a
// panic. It listens on unix sockets.
package rpc

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"syscall"
	"time"

	grpcprom "github.com/grpc-ecosystem/go-grpc-middleware/providers/prometheus"
	"github.com/grpc-ecosystem/go-grpc-middleware/v2/interceptors/recovery"
	"github.com/kubernetes-csi/csi-lib-utils/protosanitizer"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/logging"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/process"
)

// Services are what is served.
type Services interface {
	Register(r grpc.ServiceRegistrar)
}

// Config is what a server is made of; every field is required.
type Config struct {
	// Endpoint is unix:///absolute/path.
	Endpoint string
	Services Services
	Calls    *Calls
	Log      *slog.Logger
	// Grace is how long calls under way may take to end when the server stops.
	Grace time.Duration
}

// Server is a gRPC server on a unix socket.
type Server struct {
	Config
	path string
	grpc *grpc.Server
}

// New returns a server that does not listen yet.
func New(c Config) (*Server, error) {
	if c.Services == nil || c.Calls == nil || c.Log == nil || c.Grace <= 0 {
		return nil, errors.New("rpc server: a field of its Config is missing")
	}
	path, err := SocketPath(c.Endpoint)
	if err != nil {
		return nil, err
	}
	server := c.Calls.Server()
	c.Services.Register(server)
	c.Calls.counts.InitializeMetrics(server)
	return &Server{Config: c, path: path, grpc: server}, nil
}

// SocketPath is the path of an endpoint unix:///absolute/path.
func SocketPath(endpoint string) (string, error) {
	path, ok := strings.CutPrefix(endpoint, "unix://")
	if !ok || !filepath.IsAbs(path) {
		return "", fmt.Errorf("endpoint %q: want unix:///absolute/path", endpoint)
	}
	return filepath.Clean(path), nil
}

// Listen makes the socket, with its directory. A socket file that a dead process left is replaced; one that somebody
// listens on is an error.
func (s *Server) Listen(ctx context.Context) (net.Listener, error) {
	if err := os.MkdirAll(filepath.Dir(s.path), 0o750); err != nil {
		return nil, fmt.Errorf("make the directory of the socket: %w", err)
	}
	if err := refuseOther(ctx, s.path); err != nil {
		return nil, err
	}
	return process.ListenUnix(ctx, s.path)
}

// refuseOther lets only a socket go that a dead process left.
func refuseOther(ctx context.Context, path string) error {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("look at the socket %s: %w", path, err)
	case info.Mode().Type() != fs.ModeSocket:
		return fmt.Errorf("%s is there and is no socket (%s); move it away", path, info.Mode().Type())
	}
	conn, err := new(net.Dialer).DialContext(ctx, "unix", path)
	if err == nil {
		return errors.Join(fmt.Errorf("another process listens on %s; stop it first", path), conn.Close())
	}
	if !errors.Is(err, syscall.ECONNREFUSED) && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("find out whether another process listens on %s: %w", path, err)
	}
	return nil
}

// Serve answers calls until ctx ends. Then it takes no new ones, waits for those under way as long as Grace allows, and
// cuts off the rest. The socket file goes with the listener.
func (s *Server) Serve(ctx context.Context, listener net.Listener) error {
	served := make(chan error, 1)
	go func() { served <- s.grpc.Serve(listener) }()
	s.Log.InfoContext(ctx, "serving", logging.KeyEndpoint, s.Endpoint)
	select {
	case err := <-served:
		return fmt.Errorf("serve %s: %w", s.Endpoint, err)
	case <-ctx.Done():
	}
	hurry := time.AfterFunc(s.Grace, s.grpc.Stop)
	defer hurry.Stop()
	s.grpc.GracefulStop()
	return <-served
}

// Calls is what is done around every call, whichever server it comes to.
type Calls struct {
	log       *slog.Logger
	counts    *grpcprom.ServerMetrics
	durations *prometheus.HistogramVec
	timeout   time.Duration
}

// NewCalls registers the metrics of calls. The timeout is the deadline of a call whose client sets none.
func NewCalls(metrics prometheus.Registerer, log *slog.Logger, timeout time.Duration) (*Calls, error) {
	if metrics == nil || log == nil || timeout <= 0 {
		return nil, errors.New("calls: metrics, log or timeout is missing")
	}
	c := &Calls{log: log, counts: grpcprom.NewServerMetrics(), durations: newDurations(), timeout: timeout}
	if err := errors.Join(metrics.Register(c.counts), metrics.Register(c.durations)); err != nil {
		return nil, fmt.Errorf("register the metrics of gRPC: %w", err)
	}
	return c, nil
}

// Server returns a gRPC server that does it.
func (c *Calls) Server(options ...grpc.ServerOption) *grpc.Server {
	onPanic := recovery.WithRecoveryHandlerContext(c.recovered)
	return grpc.NewServer(append(options,
		grpc.ChainUnaryInterceptor(logCalls(c.log), c.counts.UnaryServerInterceptor(), timeCalls(c.durations),
			setDeadline(c.timeout), recovery.UnaryServerInterceptor(onPanic)),
		grpc.ChainStreamInterceptor(c.counts.StreamServerInterceptor(), recovery.StreamServerInterceptor(onPanic)))...)
}

// logCalls writes one record per call: errors always, what changes something at info, what is asked every few seconds
// only at debug. The request is written at debug alone, without its secrets.
func logCalls(log *slog.Logger) grpc.UnaryServerInterceptor {
	return func(ctx context.Context, request any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
		start := time.Now()
		response, err := handle(ctx, request)
		method := filepath.Base(info.FullMethod)
		level := levelOf(method, status.Code(err))
		if !log.Enabled(ctx, level) {
			return response, err
		}
		attributes := []slog.Attr{
			slog.String(logging.KeyMethod, method),
			slog.String(logging.KeyCode, status.Code(err).String()),
			slog.Duration(logging.KeyDuration, time.Since(start)),
		}
		if id := subject(request); id != "" {
			attributes = append(attributes, slog.String(logging.KeyID, id))
		}
		if log.Enabled(ctx, slog.LevelDebug) {
			attributes = append(attributes, slog.String(logging.KeyRequest,
				protosanitizer.StripSecrets(request).String()))
		}
		if err != nil {
			attributes = append(attributes, slog.String(logging.KeyError, status.Convert(err).Message()))
		}
		log.LogAttrs(ctx, level, "answered a call", attributes...)
		return response, err
	}
}

// levelOf is how loud a call is: an error of the driver's own is one for an admin, any other is the caller's to act on.
func levelOf(method string, code codes.Code) slog.Level {
	switch code {
	case codes.OK:
	case codes.Internal, codes.DataLoss, codes.Unknown:
		return slog.LevelError
	case codes.Unimplemented, codes.Canceled:
		return slog.LevelInfo
	default:
		return slog.LevelWarn
	}
	switch method {
	case "CreateVolume", "DeleteVolume", "ControllerExpandVolume", "NodePublishVolume", "NodeUnpublishVolume",
		"CreateSnapshot", "DeleteSnapshot", "Adopt", "Discard", "ForgetPool", "TakePool":
		return slog.LevelInfo
	default:
		return slog.LevelDebug
	}
}

// subject is the volume or snapshot that a request is about, "" where it is about none.
func subject(request any) string {
	const longest = 128 // an id that is longer is refused; the log need not have all of it
	id := ""
	switch r := request.(type) {
	case interface{ GetVolumeId() string }:
		id = r.GetVolumeId()
	case interface{ GetSnapshotId() string }:
		id = r.GetSnapshotId()
	case interface{ GetName() string }:
		id = r.GetName()
	case interface{ GetId() string }:
		id = r.GetId()
	}
	return id[:min(len(id), longest)]
}

// newDurations is how long calls took, in seconds, by method and code. The middleware's own histogram knows no code,
// and a refusal takes a fraction of what the work takes: together they would show the speed of neither.
func newDurations() *prometheus.HistogramVec {
	return prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "hpp_grpc_handling_seconds",
		Help:    "How long calls took, by method and code.",
		Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30},
	}, []string{"grpc_method", "grpc_code"})
}

// timeCalls observes every call under the code that grpc_server_handled_total counts it under.
func timeCalls(durations *prometheus.HistogramVec) grpc.UnaryServerInterceptor {
	return func(ctx context.Context, request any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
		start := time.Now()
		response, err := handle(ctx, request)
		durations.WithLabelValues(filepath.Base(info.FullMethod),
			grpcprom.FromError(err).Code().String()).Observe(time.Since(start).Seconds())
		return response, err
	}
}

// setDeadline gives calls without a deadline one, so that none is under way for ever.
func setDeadline(timeout time.Duration) grpc.UnaryServerInterceptor {
	return func(ctx context.Context, request any, _ *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
		if _, ok := ctx.Deadline(); !ok {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, timeout)
			defer cancel()
		}
		return handle(ctx, request)
	}
}

// recovered keeps the driver up when a call panics; the caller learns only that it did.
func (c *Calls) recovered(ctx context.Context, p any) error {
	c.log.ErrorContext(ctx, "a call panicked", logging.KeyPanic, fmt.Sprint(p), logging.KeyStack, string(debug.Stack()))
	return status.Error(codes.Internal, "the driver has a bug: the call panicked; its log has the details")
}
