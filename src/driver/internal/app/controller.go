package app

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/app/kube"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/controller/csi"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/controller/fleet"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/controller/inventory"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/controller/sharedpools"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/buildinfo"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/health"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/poolspec"
)

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
	nodes, err := fleet.New(fleet.Config{
		Cluster: cluster, Address: d.tunnelAddress, TLS: serving.tls(), TopologyKey: d.topologyKey,
		Version: buildinfo.Version(), Claimed: cluster.Claimed, Review: cluster.Review,
		NodeGrace: d.nodeGrace, GoneAfter: d.nodeGoneAfter,
		Metrics: d.registry, Log: d.log, Now: time.Now,
	})
	if err != nil {
		return err
	}
	service, err := d.addService(ctx, cluster, serving, nodes, specs)
	if err != nil {
		return err
	}
	return d.addSocket(ctx, service,
		health.Check{Name: "certificate", Do: func(context.Context) error { return serving.ready() }},
		health.Check{Name: "nodes", Do: func(context.Context) error { return nodes.Ready() }})
}

// addService adds what looks after the nodes, and the service that calls them.
func (d *driver) addService(
	ctx context.Context, cluster *kube.Controller, serving *certificate, nodes *fleet.Fleet, specs []poolspec.Pool,
) (*csi.Controller, error) {
	shared, err := sharedpools.New(specs, nodes, kube.Identities{Controller: cluster, ConfigMap: d.sharedPools})
	if err != nil {
		return nil, err
	}
	volumes, err := inventory.New(cluster, nodes, shared, d.orphanAge)
	if err != nil {
		return nil, err
	}
	service, err := csi.New(csi.Config{Cluster: cluster, Fleet: nodes, Shared: shared, DriverName: d.driverName})
	if err != nil {
		return nil, err
	}
	d.add("cluster", func(ctx context.Context) error {
		return cluster.Run(ctx, func(node string) { nodes.Forget(node); volumes.Forget(node) })
	})
	d.add("certificate", serving.run)
	if err := d.addServer(ctx, "tunnel", nodes); err != nil {
		return nil, err
	}
	d.add("nodes", func(ctx context.Context) error { nodes.Run(ctx); return nil })
	d.add("shared pools", func(ctx context.Context) error { shared.Run(ctx); return nil })
	d.add("inventory", func(ctx context.Context) error { volumes.Run(ctx); return nil })
	d.add("claims", func(ctx context.Context) error { service.Run(ctx); return nil })
	return service, errors.Join(d.register(), d.addControl(ctx, volumes))
}

// selectorKeys are the labels that nodes are selected by.
func selectorKeys(specs []poolspec.Pool) (keys []string) {
	for _, s := range specs {
		keys = slices.AppendSeq(keys, maps.Keys(s.NodeSelector))
	}
	return keys
}
