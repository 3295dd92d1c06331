// Package registration shows this CSI driver to the kubelet, whose plugin watcher finds the gRPC server on
// <registration dir>/<driver>-reg.sock (k8s.io/kubelet/pkg/apis/pluginregistration/v1).
package registration

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"google.golang.org/grpc"
	pluginregistration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/logging"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/process"
)

// apiVersion is what the kubelet wants CSI drivers to support: the major version of CSI is all it looks at.
const apiVersion = "1.0.0"

// callTimeout is how long the question whether the driver leaves may take: its pod is being ended.
const callTimeout = 5 * time.Second

// Config is what a server is made of; every field but Leaving is required.
type Config struct {
	// Directory is the kubelet's plugins_registry.
	Directory  string
	DriverName string
	// CSISocket is the path at which the kubelet finds the CSI services; they must be served already.
	CSISocket string
	// Interval is how often the socket file is looked after.
	Interval time.Duration
	// Leaving reports at the end whether no other driver will follow on this node. Where one does, the socket file
	// stays for it: the kubelet then keeps the driver in the CSINode object, by which pods and claims find it.
	Leaving func(ctx context.Context) bool
	Log     *slog.Logger
}

// Server registers the driver.
type Server struct {
	Config
	path string

	mu       sync.Mutex
	standing error // nil once the kubelet has taken the driver
}

// New returns a server that does not listen yet.
func New(c Config) (*Server, error) {
	if c.Directory == "" || c.DriverName == "" || c.CSISocket == "" || c.Interval <= 0 || c.Log == nil {
		return nil, errors.New("registration server: a field of its Config is missing")
	}
	return &Server{
		Config: c, path: filepath.Join(c.Directory, c.DriverName+"-reg.sock"),
		standing: fmt.Errorf("the kubelet has not answered yet; it looks into %s", c.Directory),
	}, nil
}

// Check is nil once the kubelet has taken the driver, else it says how that stands.
func (s *Server) Check(context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.standing
}

// Run keeps the socket there until ctx ends, and then removes it if the driver leaves this node, upon which the kubelet
// forgets the driver. Nothing that goes wrong is fatal: volumes that are mounted need no registration.
func (s *Server) Run(ctx context.Context) {
	tick := time.NewTicker(s.Interval)
	defer tick.Stop()
	var now *serving
	for {
		if !now.ours(s.path) {
			now.stop()
			now = s.listen(ctx)
		}
		select {
		case <-ctx.Done():
			if s.leaving(ctx) && now.ours(s.path) {
				_ = os.Remove(s.path) // it is gone, or the kubelet will find nobody behind it
			}
			now.stop()
			return
		case <-tick.C:
		}
	}
}

func (s *Server) leaving(ctx context.Context) bool {
	brief, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTimeout)
	defer cancel()
	return s.Leaving == nil || s.Leaving(brief)
}

// serving is a socket file with the server behind it; nil where there is none.
type serving struct {
	server *grpc.Server
	file   fs.FileInfo
	done   chan struct{}
}

// ours reports whether the file at path is still the one that we listen on: the kubelet empties its directory when it
// starts, and another driver of this name would put its own file there.
func (v *serving) ours(path string) bool {
	if v == nil {
		return false
	}
	info, err := os.Lstat(path)
	return err == nil && os.SameFile(info, v.file)
}

func (v *serving) stop() {
	if v == nil {
		return
	}
	v.server.Stop()
	<-v.done
}

// listen replaces whatever socket file is there: the state directory's lock makes this the only driver of its node.
func (s *Server) listen(ctx context.Context) *serving {
	v, err := s.start(ctx)
	if err != nil {
		s.Log.WarnContext(ctx, "cannot register with the kubelet yet", logging.KeyPath, s.path, logging.KeyError, err)
		return nil
	}
	s.Log.InfoContext(ctx, "waiting for the kubelet", logging.KeyPath, s.path)
	return v
}

func (s *Server) start(ctx context.Context) (*serving, error) {
	listener, err := process.ListenUnix(ctx, s.path)
	if err != nil {
		return nil, err
	}
	if socket, ok := listener.(*net.UnixListener); ok {
		socket.SetUnlinkOnClose(false) // by then the file may be another's
	}
	info, err := os.Lstat(s.path)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("look at the registration socket: %w", err), listener.Close())
	}
	v := &serving{server: grpc.NewServer(), file: info, done: make(chan struct{})}
	pluginregistration.RegisterRegistrationServer(v.server, &service{Server: s})
	go func() {
		defer close(v.done)
		if err := v.server.Serve(listener); err != nil {
			s.Log.Warn("the registration socket has failed", logging.KeyPath, s.path, logging.KeyError, err)
		}
	}()
	return v, nil
}

// service is the gRPC side.
type service struct {
	pluginregistration.UnimplementedRegistrationServer
	*Server
}

func (s *service) GetInfo(context.Context, *pluginregistration.InfoRequest) (*pluginregistration.PluginInfo, error) {
	return &pluginregistration.PluginInfo{
		Type: pluginregistration.CSIPlugin, Name: s.DriverName, Endpoint: s.CSISocket,
		SupportedVersions: []string{apiVersion},
	}, nil
}

func (s *service) NotifyRegistrationStatus(
	ctx context.Context, status *pluginregistration.RegistrationStatus,
) (*pluginregistration.RegistrationStatusResponse, error) {
	var standing error
	if status.GetPluginRegistered() {
		s.Log.InfoContext(ctx, "the kubelet has registered the driver")
	} else {
		s.Log.ErrorContext(ctx, "the kubelet refused the driver", logging.KeyError, status.GetError())
		standing = fmt.Errorf("the kubelet refused the driver: %s", status.GetError())
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.standing = standing
	return &pluginregistration.RegistrationStatusResponse{}, nil
}
