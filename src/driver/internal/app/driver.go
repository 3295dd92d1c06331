package app

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/admin"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/csi"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/disk"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/hostdir"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/kube"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/metrics"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/pool"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/purge"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/quota"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/registration"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/volume"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/buildinfo"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/endpoint"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/health"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/kernel/bindmount"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/poolspec"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/rpc"
)

const (
	// workGrace is for work that outlives its calls; see endpoint for what else a pod's grace of 30 s is for.
	workGrace = 5 * time.Second
	// registrationInterval is how soon the driver is back after the kubelet has emptied its plugin directory.
	registrationInterval = 2 * time.Second
)

// cluster is Kubernetes, or what stands in for it.
type cluster interface {
	volume.Cluster
	Run(ctx context.Context, learned func(labels map[string]string)) error
}

// driver is everything that runs on a node.
type driver struct {
	*options
	*endpoint.Process
	cluster cluster
	client  *kube.Client // nil when standalone
	pools   *pool.Set
	volumes *volume.Manager
}

// build puts it together.
func (d *driver) build(ctx context.Context, specs []poolspec.Pool) error {
	if err := d.connect(); err != nil {
		return err
	}
	if err := d.buildDomain(specs); err != nil {
		return err
	}
	if err := d.Registry.Register(metrics.New(d.pools, d.volumes, buildinfo.Version(), time.Now)); err != nil {
		return fmt.Errorf("register metrics: %w", err)
	}
	commands, err := admin.New(admin.Config{
		Driver: d.DriverName, Version: buildinfo.Version(), Node: d.nodeName, TopologyKey: d.TopologyKey,
		Pools: d.pools, Volumes: d.volumes, Mover: d.volumes, Log: d.Log,
	})
	if err != nil {
		return err
	}
	if err := d.AddCommands(ctx, commands); err != nil {
		return err
	}
	return d.addServices(ctx, commands)
}

// connect finds the cluster.
func (d *driver) connect() error {
	if d.standalone {
		d.cluster = kube.Standalone{}
		return nil
	}
	api, err := kube.Connect(d.serviceAccount, os.Getenv)
	if err != nil {
		return err
	}
	d.client, err = kube.New(kube.Config{
		API: api, DriverName: d.DriverName, NodeName: d.nodeName, TopologyKey: d.TopologyKey, Log: d.Log,
		Timeout: endpoint.APITimeout, PodNamespace: d.PodNamespace,
	})
	d.cluster = d.client
	return err
}

// buildDomain makes the pools and the manager of their volumes.
func (d *driver) buildDomain(specs []poolspec.Pool) error {
	state, err := disk.OpenDir(d.StateDir)
	if err != nil {
		return fmt.Errorf("open the state directory: %w", err)
	}
	d.OnClose(state.Close)
	host := disk.NewHost(d.hostRoot)
	d.pools, err = pool.New(pool.Config{
		Specs: specs, Host: host, State: state, PVs: d.cluster,
		Quotas: quota.New(filepath.Join(d.hostRoot, "etc")), Log: d.Log, Now: time.Now,
		Synchronised: purge.Synchronised, Node: d.nodeName, Alone: d.controller == "",
		SystemPaths: []string{"/", d.kubeletDir, d.StateDir}, OSPaths: []string{"/", d.kubeletDir},
	})
	if err != nil {
		return err
	}
	d.volumes, err = volume.New(volume.Config{
		Pools: d.pools, Mounter: mounter{bindmount.New(d.kubeletDir)}, Cluster: d.cluster, Log: d.Log, Now: time.Now,
		IsInline: func(id, target string) bool { return isInline(d.DriverName, id, target) },
		Paths:    host, Node: hostdir.Node{Root: d.hostRoot, Kept: []string{d.kubeletDir, d.StateDir}},

		CopyBytesPerSecond: d.copyBytesPerSecond.Value(),
	})
	if err != nil {
		return err
	}
	d.Add("cluster", func(ctx context.Context) error { return d.cluster.Run(ctx, d.pools.SetNodeLabels) })
	d.Add("pools", func(ctx context.Context) error { d.pools.Run(ctx); return nil })
	d.Add("adoption", func(ctx context.Context) error { d.volumes.AdoptAll(ctx); return nil })
	d.Add("enforcement", func(ctx context.Context) error { d.volumes.EnforceTaken(ctx); return nil })
	d.Add("holds", func(ctx context.Context) error { d.volumes.ReleaseHolds(ctx); return nil })
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

// addServices adds health, CSI and the kubelet's registration, in this order: CSI answers before the kubelet hears of
// it, and is unregistered before it stops answering.
func (d *driver) addServices(ctx context.Context, commands rpc.Services) error {
	services, err := csi.New(csi.Config{
		DriverName: d.DriverName, Version: buildinfo.Version(), NodeName: d.nodeName, TopologyKey: d.TopologyKey,
		KubeletDir: d.kubeletDir, Volumes: d.volumes, Snapshots: d.volumes, Copies: d.volumes, Publisher: d.volumes,
		Pools: d.pools,
	})
	if err != nil {
		return err
	}
	if err := d.addLink(services, commands); err != nil {
		return err
	}
	if !d.registration { // another process registers the driver
		return d.AddSocket(ctx, services)
	}
	registrar, err := d.registrar()
	if err != nil {
		return err
	}
	if err := d.AddSocket(ctx, services, health.Check{Name: "registration", Do: registrar.Check}); err != nil {
		return err
	}
	d.Add("registration", func(ctx context.Context) error { registrar.Run(ctx); return nil })
	return nil
}

func (d *driver) registrar() (*registration.Server, error) {
	socket, err := rpc.SocketPath(d.Endpoint)
	if err != nil {
		return nil, err
	}
	config := registration.Config{
		Directory: d.registrationDir, DriverName: d.DriverName, CSISocket: socket, Log: d.Log,
		Interval: registrationInterval,
	}
	if d.daemonSet != "" {
		config.Leaving = func(ctx context.Context) bool { return !d.client.Staying(ctx, d.daemonSet) }
	}
	return registration.New(config)
}
