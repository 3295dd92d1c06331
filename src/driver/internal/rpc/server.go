// Package rpc listens on the driver's unix socket and does around every call what calls have in common: a log line,
// metrics, a deadline, and recovery from a panic.
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
	"strings"
	"syscall"
	"time"

	grpcprom "github.com/grpc-ecosystem/go-grpc-middleware/providers/prometheus"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/logging"
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
	Metrics  prometheus.Registerer
	Log      *slog.Logger
	// Timeout is the deadline of a call whose client sets none.
	Timeout time.Duration
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
	if c.Services == nil || c.Metrics == nil || c.Log == nil || c.Timeout <= 0 || c.Grace <= 0 {
		return nil, errors.New("rpc server: a field of its Config is missing")
	}
	path, err := SocketPath(c.Endpoint)
	if err != nil {
		return nil, err
	}
	calls, durations := grpcprom.NewServerMetrics(), newDurations()
	if err := errors.Join(c.Metrics.Register(calls), c.Metrics.Register(durations)); err != nil {
		return nil, fmt.Errorf("register the metrics of gRPC: %w", err)
	}
	server := grpc.NewServer(grpc.ChainUnaryInterceptor(
		logCalls(c.Log), calls.UnaryServerInterceptor(), timeCalls(durations), setDeadline(c.Timeout), recoverPanics(c.Log),
	))
	c.Services.Register(server)
	calls.InitializeMetrics(server)
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
	if err := removeStale(ctx, s.path); err != nil {
		return nil, err
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "unix", s.path)
	if err != nil {
		return nil, fmt.Errorf("listen on the CSI socket: %w", err)
	}
	if err := os.Chmod(s.path, 0o600); err != nil {
		return nil, errors.Join(fmt.Errorf("restrict the CSI socket to its owner: %w", err), listener.Close())
	}
	return listener, nil
}

func removeStale(ctx context.Context, path string) error {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("look at the CSI socket: %w", err)
	case info.Mode().Type() != fs.ModeSocket:
		return fmt.Errorf("%s is there and is no socket (%s); move it away", path, info.Mode().Type())
	}
	conn, err := new(net.Dialer).DialContext(ctx, "unix", path)
	if err == nil {
		return errors.Join(fmt.Errorf("another process listens on %s; stop it first", path), conn.Close())
	}
	if !errors.Is(err, syscall.ECONNREFUSED) && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("find out whether another process listens on the CSI socket: %w", err)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove the CSI socket that a dead process left: %w", err)
	}
	return nil
}

// Serve answers calls until ctx ends. Then it takes no new ones, waits for those under way as long as Grace allows, and
// cuts off the rest. The socket file goes with the listener.
func (s *Server) Serve(ctx context.Context, listener net.Listener) error {
	served := make(chan error, 1)
	go func() { served <- s.grpc.Serve(listener) }()
	s.Log.InfoContext(ctx, "serving CSI", logging.KeyEndpoint, s.Endpoint)
	select {
	case err := <-served:
		return fmt.Errorf("serve CSI on %s: %w", s.Endpoint, err)
	case <-ctx.Done():
	}
	hurry := time.AfterFunc(s.Grace, s.grpc.Stop)
	defer hurry.Stop()
	s.grpc.GracefulStop()
	return <-served
}
