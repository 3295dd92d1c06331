package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
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
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/quota"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/registration"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/rpc"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/volume"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/buildinfo"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/kernel/bindmount"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/poolspec"
)

const (
	// callTimeout is for clients that set none; external-provisioner's is 10 s, the kubelet's 2 min.
	callTimeout = 2 * time.Minute
	// callGrace and workGrace together stay below a pod's 30 s of grace. Work that is cut off is recovered at the next
	// start.
	callGrace = 10 * time.Second
	workGrace = 10 * time.Second
	// apiTimeout bounds one request to the Kubernetes API, within external-provisioner's 10 s.
	apiTimeout = 5 * time.Second
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
	pools    *pool.Set
	volumes  *volume.Locked
	registry *prometheus.Registry
	// stages in the order of their start.
	stages []stage
	// closers end what is open but does not run.
	closers []func() error
}

// build puts the driver together and takes its sockets, so that what is wrong is said before anything runs.
func build(ctx context.Context, o options, specs []poolspec.Pool, log *slog.Logger) (_ *driver, err error) {
	d := &driver{options: o, log: log, registry: prometheus.NewRegistry()}
	defer func() {
		if err != nil {
			err = errors.Join(err, d.close())
		}
	}()
	for _, step := range []func() error{
		d.connect,
		func() error { return d.buildDomain(specs) },
		d.buildMetrics,
		func() error { return d.addControl(ctx) },
		func() error { return d.addServices(ctx) },
	} {
		if err := step(); err != nil {
			return nil, err
		}
	}
	return d, nil
}

func (d *driver) add(name string, run func(ctx context.Context) error) {
	d.stages = append(d.stages, stage{name, run})
}

// addServer adds something that answers on a listener; should it never come to run, the listener is closed.
func (d *driver) addServer(name string, listener net.Listener, serve func(context.Context, net.Listener) error) {
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
	api, err := kube.Connect(d.kubeconfig, "hostpath-provisioner/"+buildinfo.Version())
	if err != nil {
		return err
	}
	d.cluster, err = kube.New(kube.Config{
		API: api, DriverName: d.driverName, NodeName: d.nodeName, TopologyKey: d.topologyKey, Log: d.log, Timeout: apiTimeout,
		PodName: d.podName, PodNamespace: d.podNamespace,
	})
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
		SystemPaths: []string{"/", d.kubeletDir, d.stateDir}, OSPaths: []string{"/", d.kubeletDir},
	})
	if err != nil {
		return err
	}
	manager, err := volume.New(volume.Config{
		Pools: d.pools, Mounter: mounter{bindmount.New(d.kubeletDir)}, Cluster: d.cluster, Log: d.log, Now: time.Now,
	})
	if err != nil {
		return err
	}
	d.volumes = volume.NewLocked(manager)
	d.add("cluster", func(ctx context.Context) error { return d.cluster.Run(ctx, d.pools.SetNodeLabels) })
	d.add("pools", func(ctx context.Context) error { d.pools.Run(ctx, d.volumes.Published); return nil })
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

func (d *driver) buildMetrics() error {
	if err := errors.Join(
		d.registry.Register(collectors.NewGoCollector()),
		d.registry.Register(collectors.NewProcessCollector(collectors.ProcessCollectorOpts{})),
		d.registry.Register(metrics.New(d.pools, buildinfo.Version(), time.Now)),
	); err != nil {
		return fmt.Errorf("register metrics: %w", err)
	}
	return nil
}

func (d *driver) addControl(ctx context.Context) error {
	server, err := control.New(control.Config{
		StateDir: d.stateDir, Driver: d.driverName, Node: d.nodeName, TopologyKey: d.topologyKey,
		Build: buildinfo.Version(), Pools: d.pools, Volumes: d.volumes, Log: d.log,
	})
	if err != nil {
		return err
	}
	listener, err := server.Listen(ctx)
	if err != nil {
		return err
	}
	d.addServer("control", listener, server.Serve)
	return nil
}

// addServices adds health, CSI and the kubelet's registration, in this order: CSI answers before the kubelet hears of
// it, and is unregistered before it stops answering.
func (d *driver) addServices(ctx context.Context) error {
	services, err := csi.New(csi.Config{
		DriverName: d.driverName, Version: buildinfo.Version(), NodeName: d.nodeName, TopologyKey: d.topologyKey,
		KubeletDir: d.kubeletDir, Volumes: d.volumes, Publisher: d.volumes, Pools: pools{d.pools},
	})
	if err != nil {
		return err
	}
	server, err := rpc.New(rpc.Config{
		Endpoint: d.endpoint, Services: services, Metrics: d.registry, Log: d.log, Timeout: callTimeout, Grace: callGrace,
	})
	if err != nil {
		return err
	}
	var registrar *registration.Server // none where another process registers the driver
	if d.registration {
		socket, socketErr := rpc.SocketPath(d.endpoint)
		registrar, err = registration.New(registration.Config{
			Directory: d.registrationDir, DriverName: d.driverName, CSISocket: socket, Log: d.log,
			Interval: registrationInterval,
		})
		if err := cmp.Or(socketErr, err); err != nil {
			return err
		}
	}
	if err := errors.Join(d.addHealth(ctx, registrar), d.addMetrics(ctx)); err != nil {
		return err
	}
	listener, err := server.Listen(ctx)
	if err != nil {
		return err
	}
	d.addServer("csi", listener, server.Serve)
	if registrar != nil {
		d.add("registration", func(ctx context.Context) error { registrar.Run(ctx); return nil })
	}
	return nil
}

func (d *driver) close() error {
	var problems []error
	for _, c := range d.closers {
		problems = append(problems, c())
	}
	return errors.Join(problems...)
}
