// Package endpoint is what the processes of a node and of the controller have alike: options, probes, metrics and CSI's
// socket.
package endpoint

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/admin"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/csi"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/health"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/logging"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/process"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/rpc"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/servingtls"
)

const (
	// APITimeout bounds one request to the Kubernetes API, of which a call of the sidecars' 30 s may need several.
	APITimeout = 5 * time.Second
	// callTimeout is for clients that set none; the sidecars have 30 s by the chart, the kubelet 2 min.
	callTimeout = 2 * time.Minute
	// callGrace stays below a pod's 30 s of grace, together with a node's 5 s for work and 5 s each of registration and
	// tunnel, all one after the other. Work that is cut off is recovered at the next start.
	callGrace = 10 * time.Second
	// adminGrace is for commands, which can be repeated.
	adminGrace = time.Second
)

// Process is a process that is put together and then runs.
type Process struct {
	process.Group
	Log      *slog.Logger
	Registry *prometheus.Registry
	Calls    *rpc.Calls
	options  *Options
}

// Run makes a process and runs it until ctx ends. build adds its parts, which take all sockets, so that what is wrong
// is said before anything runs.
func Run(ctx context.Context, o *Options, stderr io.Writer, build func(ctx context.Context, p *Process) error) error {
	log, err := logging.New(stderr, o.LogLevel, o.LogFormat)
	if err != nil {
		return err
	}
	logging.CaptureKlog(log)
	if err := os.MkdirAll(o.StateDir, 0o700); err != nil {
		return fmt.Errorf("make the state directory (--state-dir): %w", err)
	}
	p := &Process{Log: log, Registry: prometheus.NewRegistry(), options: o}
	if p.Calls, err = rpc.NewCalls(p.Registry, log, callTimeout); err != nil {
		return err
	}
	if err := errors.Join(
		p.Registry.Register(collectors.NewGoCollector()),
		p.Registry.Register(collectors.NewProcessCollector(collectors.ProcessCollectorOpts{})),
		build(ctx, p),
	); err != nil {
		return errors.Join(err, p.Close())
	}
	err = p.Run(ctx)
	log.InfoContext(ctx, "the process has stopped")
	return err
}

// AddCommands adds the socket of administrators' commands.
func (p *Process) AddCommands(ctx context.Context, services rpc.Services) error {
	server, err := rpc.New(rpc.Config{
		Endpoint: admin.Endpoint(p.options.StateDir), Services: services, Calls: p.Calls, Log: p.Log, Grace: adminGrace,
	})
	if err != nil {
		return err
	}
	return p.AddServer(ctx, "admin", server)
}

// AddSocket adds probes and metrics, and the CSI socket. It is called after what else needs a socket.
func (p *Process) AddSocket(ctx context.Context, services rpc.Services, ready ...health.Check) error {
	server, err := rpc.New(rpc.Config{
		Endpoint: p.options.Endpoint, Services: services, Calls: p.Calls, Log: p.Log, Grace: callGrace,
	})
	if err != nil {
		return err
	}
	if err := errors.Join(p.addHealth(ctx, ready), p.addMetrics(ctx)); err != nil {
		return err
	}
	return p.AddServer(ctx, "csi", server)
}

// addHealth adds the probes, with the metrics unless these are served over TLS.
func (p *Process) addHealth(ctx context.Context, ready []health.Check) error {
	if p.options.HTTPAddress == "" {
		return nil
	}
	self, err := grpc.NewClient(p.options.Endpoint, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return fmt.Errorf("make a client of the driver's own socket: %w", err)
	}
	p.OnClose(self.Close)
	// Asked through its own socket, a server that accepts but does not answer is found out.
	live := health.Check{Name: "driver", Do: func(ctx context.Context) error { return csi.Alive(ctx, self) }}
	config := health.Config{Address: p.options.HTTPAddress, Live: live, Ready: ready, Log: p.Log}
	if p.options.MetricsTLSAddress == "" {
		config.Metrics = p.Registry
	}
	return health.Add(ctx, &p.Group, "health", config)
}

// addMetrics adds the metrics over TLS.
func (p *Process) addMetrics(ctx context.Context) error {
	if p.options.MetricsTLSAddress == "" {
		return nil
	}
	secure, err := servingtls.New(p.options.MetricsTLS, p.Log)
	if err != nil {
		return fmt.Errorf("metrics over TLS (--metrics-tls-cert-dir): %w", err)
	}
	return health.Add(ctx, &p.Group, "metrics", health.Config{
		Address: p.options.MetricsTLSAddress, Metrics: p.Registry, TLS: secure, Log: p.Log,
	})
}
