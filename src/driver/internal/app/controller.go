package app

import (
	"context"
	"errors"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/app/kube"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/csi"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/growth"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/pool"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/rpc"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/buildinfo"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/poolspec"
)

// Modes of the driver.
const (
	modeNode       = "node"
	modeController = "controller"
)

// buildController puts the cluster's controller together, which csi-resizer asks on a socket of its own. It has no
// pools.
func buildController(ctx context.Context, o options, specs []poolspec.Pool, log *slog.Logger) (_ *driver, err error) {
	d := &driver{options: o, log: log, registry: prometheus.NewRegistry()}
	defer func() {
		if err != nil {
			err = errors.Join(err, d.close())
		}
	}()
	services, err := d.expander(specs)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(d.registry.Register(collectors.NewGoCollector()),
		d.registry.Register(collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))); err != nil {
		return nil, err
	}
	server, err := rpc.New(rpc.Config{
		Endpoint: o.endpoint, Services: services, Metrics: d.registry, Log: log, Timeout: callTimeout, Grace: callGrace,
	})
	if err != nil {
		return nil, err
	}
	if err := errors.Join(d.addHealth(ctx, nil), d.addMetrics(ctx)); err != nil {
		return nil, err
	}
	listener, err := server.Listen(ctx)
	if err != nil {
		return nil, err
	}
	d.addServer("csi", listener, server.Serve)
	return d, nil
}

// expander makes the services of what the cluster knows.
func (d *driver) expander(specs []poolspec.Pool) (*csi.Expander, error) {
	api, err := kube.Connect(d.kubeconfig, "hostpath-provisioner/"+buildinfo.Version())
	if err != nil {
		return nil, err
	}
	client, err := kube.New(kube.Config{
		API: api, DriverName: d.driverName, NodeName: d.nodeName, TopologyKey: d.topologyKey, Log: d.log, Timeout: apiTimeout,
	})
	if err != nil {
		return nil, err
	}
	judge, err := growth.New(kube.Growth{Client: client, Namespace: d.podNamespace, Resolve: defaultPool(specs)})
	if err != nil {
		return nil, err
	}
	return csi.NewExpander(d.driverName, buildinfo.Version(), judge)
}

// defaultPool resolves the pool of what names none as every node does.
func defaultPool(specs []poolspec.Pool) func(string) string {
	names := make([]string, 0, len(specs))
	for _, s := range specs {
		names = append(names, s.Name)
	}
	return func(name string) string { return pool.Default(names, name) }
}
