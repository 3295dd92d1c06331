package app

import (
	"context"
	"fmt"
	"maps"
	"net"
	"slices"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/app/kube"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/controller"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/controller/fleet"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/controller/inventory"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/controller/sharedpools"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/buildinfo"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/health"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/poolspec"
)

// settling is how long a node's driver may take to look at its pools.
const settling = 10 * time.Second

// buildController puts the cluster's controller together, which upstream's sidecars call on a socket of its own. It has
// no pools: what is asked for happens on nodes.
func (d *driver) buildController(ctx context.Context, specs []poolspec.Pool) error {
	api, err := kube.Connect(d.kubeconfig, controllerRequests)
	if err != nil {
		return err
	}
	cluster, err := kube.NewController(kube.Config{
		API: api, DriverName: d.driverName, TopologyKey: d.topologyKey, PodNamespace: d.podNamespace,
		PodName:            d.podName,
		NodeServiceAccount: d.nodeServiceAccount, NodePods: d.nodePods, NodeLabels: selectorKeys(specs),
		Log: d.log, Timeout: apiTimeout,
	})
	if err != nil {
		return err
	}
	serving := newCertificate(certificateConfig{
		Mode: d.certificates, DNSName: d.servingName, SecretName: d.certificateSecret, ConfigMapName: d.controllerCA,
		Store: cluster, Log: d.log, Now: time.Now, Interval: d.certificateInterval,
	})
	nodes, listener, err := d.newFleet(ctx, cluster, serving)
	if err != nil {
		return err
	}
	shared, err := sharedpools.New(specs, nodes, kube.Identities{Controller: cluster, ConfigMap: d.sharedPools})
	if err != nil {
		return err
	}
	volumes, err := inventory.New(cluster, nodes, shared, d.orphanAge)
	if err != nil {
		return err
	}
	service, err := controller.New(controller.Config{
		DriverName: d.driverName, Version: buildinfo.Version(), TopologyKey: d.topologyKey,
		Fleet: nodes, Shared: shared, PVs: cluster, Claims: cluster, Events: cluster,
		Now: time.Now,
	})
	if err != nil {
		return err
	}
	d.add("cluster", func(ctx context.Context) error {
		return cluster.Run(ctx, func(node string) { nodes.Forget(node); volumes.Forget(node) })
	})
	d.add("certificate", serving.run)
	d.addListener("tunnel", listener, nodes.Serve)
	d.add("nodes", func(ctx context.Context) error { nodes.Run(ctx); return nil })
	d.add("shared pools", func(ctx context.Context) error { shared.Run(ctx); return nil })
	d.add("inventory", func(ctx context.Context) error { volumes.Run(ctx); return nil })
	d.add("controller", func(ctx context.Context) error { service.Run(ctx); return nil })
	if err := d.register(); err != nil {
		return err
	}
	if err := d.addControl(ctx, volumes); err != nil {
		return err
	}
	return d.addSocket(ctx, service,
		health.Check{Name: "certificate", Do: func(context.Context) error { return serving.ready() }},
		health.Check{Name: "nodes", Do: func(context.Context) error { return nodes.Ready() }})
}

// newFleet makes what nodes connect to, and listens there.
func (d *driver) newFleet(
	ctx context.Context, cluster *kube.Controller, serving *certificate,
) (*fleet.Fleet, net.Listener, error) {
	nodes, err := fleet.New(fleet.Config{
		Cluster: cluster, TLS: serving.tls(), TopologyKey: d.topologyKey, Version: buildinfo.Version(),
		Claimed: cluster.Claimed, Review: cluster.Review,
		NodeGrace: d.nodeGrace, GoneAfter: d.nodeGoneAfter, Settling: settling,
		Metrics: d.registry, Log: d.log, Now: time.Now,
	})
	if err != nil {
		return nil, nil, err
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", d.tunnelAddress)
	if err != nil {
		return nil, nil, fmt.Errorf("listen for nodes (--tunnel-address): %w", err)
	}
	return nodes, listener, nil
}

// selectorKeys are the labels that nodes are selected by.
func selectorKeys(specs []poolspec.Pool) (keys []string) {
	for _, s := range specs {
		keys = slices.AppendSeq(keys, maps.Keys(s.NodeSelector))
	}
	return keys
}
