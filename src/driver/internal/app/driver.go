package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/app/kube"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/control"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/csi"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/disk"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/metrics"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/pool"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/purge"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/quota"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/registration"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/rpc"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/volume"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/buildinfo"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/health"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/kernel/bindmount"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/poolspec"
)

const (
	// callTimeout is for clients that set none; the sidecars have 30 s by the chart, the kubelet 2 min.
	callTimeout = 2 * time.Minute
	// callGrace and workGrace stay below a pod's 30 s of grace, together with 5 s each of registration and tunnel, all
	// one after the other. Work that is cut off is recovered at the next start.
	callGrace = 10 * time.Second
	workGrace = 5 * time.Second
	// apiTimeout bounds one request to the Kubernetes API, of which a call of the sidecars' 30 s may need several.
	apiTimeout = 5 * time.Second
	// nodeRequests and controllerRequests bound the requests to the API in a second. A node makes few, but a list of
	// all PersistentVolumes comes in pages, and one that waits in its own client would count as unanswered. A
	// controller that starts has one for each node.
	nodeRequests, controllerRequests = 50, 200
	// registrationInterval is how soon the driver is back after the kubelet has emptied its plugin directory.
	registrationInterval = 2 * time.Second
)

// cluster is Kubernetes, or what stands in for it.
type cluster interface {
	volume.Cluster
	pool.Events
	Run(ctx context.Context, learned func(labels map[string]string)) error
	Report(ctx context.Context, conditions []kube.Condition) error
}

// driver is everything that runs.
type driver struct {
	options
	log      *slog.Logger
	cluster  cluster
	client   *kube.Client // nil when standalone
	pools    *pool.Set
	volumes  *volume.Manager
	registry *prometheus.Registry
	calls    *rpc.Calls
	// stages in the order of their start.
	stages []stage
	// closers end what is open but does not run.
	closers []func() error
}

// buildNode puts the driver of a node together.
func (d *driver) buildNode(ctx context.Context, specs []poolspec.Pool) error {
	if err := d.connect(); err != nil {
		return err
	}
	if err := d.buildDomain(specs); err != nil {
		return err
	}
	if err := d.register(metrics.New(d.pools, buildinfo.Version(), time.Now)); err != nil {
		return err
	}
	if err := d.addControl(ctx, nil); err != nil {
		return err
	}
	return d.addServices(ctx)
}

func (d *driver) add(name string, run func(ctx context.Context) error) {
	d.stages = append(d.stages, stage{name, run})
}

// server answers on an address or socket of its own.
type server interface {
	Listen(ctx context.Context) (net.Listener, error)
	Serve(ctx context.Context, listener net.Listener) error
}

// addServer adds a server, which takes its address now.
func (d *driver) addServer(ctx context.Context, name string, s server) error {
	listener, err := s.Listen(ctx)
	if err == nil {
		d.addListener(name, listener, s.Serve)
	}
	return err
}

// addListener adds something that answers on a listener; should it never come to run, the listener is closed.
func (d *driver) addListener(name string, listener net.Listener, serve func(context.Context, net.Listener) error) {
	d.closers = append(d.closers, func() error {
		if err := listener.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
			return fmt.Errorf("close the listener of %s: %w", name, err)
		}
		return nil
	})
	d.add(name, func(ctx context.Context) error { return serve(ctx, listener) })
}

// connect finds the cluster.
func (d *driver) connect() error {
	if d.standalone {
		d.cluster = kube.Standalone{Log: d.log}
		return nil
	}
	api, err := kube.Connect(d.kubeconfig, nodeRequests)
	if err != nil {
		return err
	}
	d.client, err = kube.New(kube.Config{
		API: api, DriverName: d.driverName, NodeName: d.nodeName, TopologyKey: d.topologyKey, Log: d.log,
		Timeout: apiTimeout,
		PodName: d.podName, PodNamespace: d.podNamespace,
	})
	d.cluster = d.client
	return err
}

// buildDomain makes the pools and the manager of their volumes.
func (d *driver) buildDomain(specs []poolspec.Pool) error {
	state, err := disk.OpenDir(d.stateDir)
	if err != nil {
		return fmt.Errorf("open the state directory: %w", err)
	}
	d.closers = append(d.closers, state.Close)
	d.pools, err = pool.New(pool.Config{
		Specs: specs, Host: disk.NewHost(d.hostRoot), State: state, PVs: d.cluster, Events: d.cluster,
		Quotas: quota.New(filepath.Join(d.hostRoot, "etc")), Log: d.log, Now: time.Now,
		Synchronised: purge.Synchronised, Node: d.nodeName, Alone: d.controller == "",
		SystemPaths: []string{"/", d.kubeletDir, d.stateDir}, OSPaths: []string{"/", d.kubeletDir},
	})
	if err != nil {
		return err
	}
	d.volumes, err = volume.New(volume.Config{
		Pools: d.pools, Mounter: mounter{bindmount.New(d.kubeletDir)}, Cluster: d.cluster, Log: d.log, Now: time.Now,
		IsInline: func(id, target string) bool { return isInline(d.driverName, id, target) },
	})
	if err != nil {
		return err
	}
	d.add("cluster", func(ctx context.Context) error { return d.cluster.Run(ctx, d.pools.SetNodeLabels) })
	d.add("pools", func(ctx context.Context) error { d.pools.Run(ctx); return nil })
	d.add("adoption", func(ctx context.Context) error { d.volumes.AdoptAll(ctx); return nil })
	if d.reportPools {
		r := reporter{pools: d.pools, report: d.cluster.Report, log: d.log, now: time.Now, pause: reportPause()}
		d.add("pool conditions", func(ctx context.Context) error { r.run(ctx); return nil })
	}
	d.add("work under way", d.finish)
	return nil
}

// mounter publishes what is on a real disk.
type mounter struct{ *bindmount.Tree }

// Bind mounts an open directory of a pool at a target.
func (m mounter) Bind(source disk.Handle, target string, o bindmount.Options) error {
	return m.Tree.Bind(source.File, target, o)
}

// finish waits at the end for operations that have outlived their calls, but not for ever.
func (d *driver) finish(ctx context.Context) error {
	<-ctx.Done()
	done := make(chan struct{})
	go func() { d.volumes.Wait(); close(done) }()
	select {
	case <-done:
		return nil
	case <-time.After(workGrace):
		return fmt.Errorf("operations on volumes did not end within %s; the next start recovers them", workGrace)
	}
}

// register adds the process's metrics, those of its calls, and others.
func (d *driver) register(others ...prometheus.Collector) (err error) {
	others = append(others, collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	for _, own := range others {
		if err := d.registry.Register(own); err != nil {
			return fmt.Errorf("register metrics: %w", err)
		}
	}
	d.calls, err = rpc.NewCalls(d.registry, d.log, callTimeout)
	return err
}

// addControl adds the socket of the sub-commands. A controller has an overview of nodes, and no pools and volumes.
func (d *driver) addControl(ctx context.Context, overview control.Overview) error {
	config := control.Config{
		StateDir: d.stateDir, Owner: uint32(os.Getuid()), Driver: d.driverName, TopologyKey: d.topologyKey,
		Build: buildinfo.Version(), Overview: overview, Log: d.log,
	}
	if overview == nil {
		config.Node, config.Pools, config.Volumes = d.nodeName, d.pools, d.volumes
	}
	server, err := control.New(config)
	if err != nil {
		return err
	}
	return d.addServer(ctx, "control", server)
}

// addServices adds health, CSI and the kubelet's registration, in this order: CSI answers before the kubelet hears of
// it, and is unregistered before it stops answering.
func (d *driver) addServices(ctx context.Context) error {
	services, err := csi.New(csi.Config{
		DriverName: d.driverName, Version: buildinfo.Version(), NodeName: d.nodeName, TopologyKey: d.topologyKey,
		KubeletDir: d.kubeletDir, Volumes: d.volumes, Publisher: d.volumes, Pools: d.pools,
	})
	if err != nil {
		return err
	}
	if err := d.addTunnel(services); err != nil {
		return err
	}
	if !d.registration { // another process registers the driver
		return d.addSocket(ctx, services)
	}
	registrar, err := d.registrar()
	if err != nil {
		return err
	}
	if err := d.addSocket(ctx, services, health.Check{Name: "registration", Do: registrar.Check}); err != nil {
		return err
	}
	d.add("registration", func(ctx context.Context) error { registrar.Run(ctx); return nil })
	return nil
}

// addSocket adds probes and metrics, and the CSI socket.
func (d *driver) addSocket(ctx context.Context, services rpc.Services, ready ...health.Check) error {
	server, err := rpc.New(rpc.Config{
		Endpoint: d.endpoint, Services: services, Calls: d.calls, Log: d.log, Grace: callGrace,
	})
	if err != nil {
		return err
	}
	if err := errors.Join(d.addHealth(ctx, ready), d.addMetrics(ctx)); err != nil {
		return err
	}
	return d.addServer(ctx, "csi", server)
}

func (d *driver) registrar() (*registration.Server, error) {
	socket, err := rpc.SocketPath(d.endpoint)
	if err != nil {
		return nil, err
	}
	config := registration.Config{
		Directory: d.registrationDir, DriverName: d.driverName, CSISocket: socket, Log: d.log,
		Interval: registrationInterval,
	}
	if d.daemonSet != "" {
		config.Leaving = func(ctx context.Context) bool { return !d.client.Staying(ctx, d.daemonSet) }
	}
	return registration.New(config)
}

func (d *driver) close() error {
	var problems []error
	for _, c := range d.closers {
		problems = append(problems, c())
	}
	return errors.Join(problems...)
}
