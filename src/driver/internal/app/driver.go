package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	nodeadmin "github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/admin"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/app/kube"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/csi"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/disk"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/metrics"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/pool"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/purge"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/quota"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/registration"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/volume"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/admin"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/buildinfo"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/health"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/kernel/bindmount"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/poolspec"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/process"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/rpc"
)

const (
	// callTimeout is for clients that set none; the sidecars have 30 s by the chart, the kubelet 2 min.
	callTimeout = 2 * time.Minute
	// callGrace and workGrace stay below a pod's 30 s of grace, together with 5 s each of registration and tunnel, all
	// one after the other. Work that is cut off is recovered at the next start.
	callGrace = 10 * time.Second
	workGrace = 5 * time.Second
	// adminGrace is for commands, which can be repeated.
	adminGrace = time.Second
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
	process.Group
	log      *slog.Logger
	cluster  cluster
	client   *kube.Client // nil when standalone
	pools    *pool.Set
	volumes  *volume.Manager
	registry *prometheus.Registry
	calls    *rpc.Calls
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
	commands, err := nodeadmin.New(nodeadmin.Config{
		Driver: d.driverName, Version: buildinfo.Version(), Node: d.nodeName, TopologyKey: d.topologyKey,
		Pools: d.pools, Volumes: d.volumes, Log: d.log,
	})
	if err != nil {
		return err
	}
	if err := d.addAdmin(ctx, commands); err != nil {
		return err
	}
	return d.addServices(ctx, commands)
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
	d.OnClose(state.Close)
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
	d.Add("cluster", func(ctx context.Context) error { return d.cluster.Run(ctx, d.pools.SetNodeLabels) })
	d.Add("pools", func(ctx context.Context) error { d.pools.Run(ctx); return nil })
	d.Add("adoption", func(ctx context.Context) error { d.volumes.AdoptAll(ctx); return nil })
	if d.reportPools {
		r := reporter{pools: d.pools, report: d.cluster.Report, log: d.log, now: time.Now, pause: reportPause()}
		d.Add("pool conditions", func(ctx context.Context) error { r.run(ctx); return nil })
	}
	d.Add("work under way", d.finish)
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

// register adds the process's metrics, those of its calls, and one collector.
func (d *driver) register(own prometheus.Collector) (err error) {
	if err := errors.Join(
		d.registry.Register(collectors.NewGoCollector()),
		d.registry.Register(collectors.NewProcessCollector(collectors.ProcessCollectorOpts{})),
		d.registry.Register(own),
	); err != nil {
		return fmt.Errorf("register metrics: %w", err)
	}
	d.calls, err = rpc.NewCalls(d.registry, d.log, callTimeout)
	return err
}

// addAdmin adds the socket of the commands.
func (d *driver) addAdmin(ctx context.Context, services rpc.Services) error {
	server, err := rpc.New(rpc.Config{
		Endpoint: admin.Endpoint(d.stateDir), Services: services, Calls: d.calls, Log: d.log, Grace: adminGrace,
	})
	if err != nil {
		return err
	}
	return d.AddServer(ctx, "admin", server)
}

// addServices adds health, CSI and the kubelet's registration, in this order: CSI answers before the kubelet hears of
// it, and is unregistered before it stops answering.
func (d *driver) addServices(ctx context.Context, commands rpc.Services) error {
	services, err := csi.New(csi.Config{
		DriverName: d.driverName, Version: buildinfo.Version(), NodeName: d.nodeName, TopologyKey: d.topologyKey,
		KubeletDir: d.kubeletDir, Volumes: d.volumes, Publisher: d.volumes, Pools: d.pools,
	})
	if err != nil {
		return err
	}
	if err := d.addTunnel(services, commands); err != nil {
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
	d.Add("registration", func(ctx context.Context) error { registrar.Run(ctx); return nil })
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
	return d.AddServer(ctx, "csi", server)
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
