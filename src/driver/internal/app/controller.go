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
	controlleradmin "github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/controller/admin"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/controller/certificate"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/tunnel"
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
	service, err := d.controllerService(cluster, specs)
	if err != nil {
		return err
	}
	serving, err := d.addHub(ctx, cluster, service)
	if err != nil {
		return err
	}
	if err := d.register(service); err != nil { // which collects from the hub
		return err
	}
	if err := d.addAdmin(ctx, controlleradmin.New(d.driverName, buildinfo.Version(), service)); err != nil {
		return err
	}
	return d.addSocket(ctx, service,
		health.Check{Name: "certificate", Do: func(context.Context) error { return serving.Ready() }},
		health.Check{Name: "nodes", Do: func(context.Context) error { return service.Ready() }})
}

// selectorKeys are the labels that nodes are selected by.
func selectorKeys(specs []poolspec.Pool) (keys []string) {
	for _, s := range specs {
		keys = slices.AppendSeq(keys, maps.Keys(s.NodeSelector))
	}
	return keys
}

func (d *driver) controllerService(cluster *kube.Controller, specs []poolspec.Pool) (*controller.Server, error) {
	return controller.New(controller.Config{
		DriverName: d.driverName, Version: buildinfo.Version(), TopologyKey: d.topologyKey, Pools: specs,
		PVs: cluster, Members: cluster, Claims: cluster, Events: cluster,
		Identities:        kube.Identities{Controller: cluster, ConfigMap: d.sharedPools},
		RemoveOldCapacity: cluster.RemoveOldCapacity,
		NodeGrace:         d.nodeGrace, GoneAfter: d.nodeGoneAfter, OrphanAge: d.orphanAge, Settling: settling,
		Log: d.log, Now: time.Now,
	})
}

// addHub adds the view of the cluster, the certificate, and the end of the tunnel that nodes connect to.
func (d *driver) addHub(
	ctx context.Context, cluster *kube.Controller, service *controller.Server,
) (*certificate.Keeper, error) {
	serving := certificate.New(certificate.Config{
		Mode: d.certificates, DNSName: d.servingName, SecretName: d.certificateSecret, ConfigMapName: d.controllerCA,
		Store: cluster, Log: d.log, Now: time.Now, Interval: d.certificateInterval,
	})
	hub, err := tunnel.NewHub(tunnel.HubConfig{
		TLS: serving.TLS(), TopologyKey: d.topologyKey, Version: buildinfo.Version(),
		Claimed: cluster.Claimed, Review: cluster.Review,
		Changed: service.Changed, Metrics: d.registry, Log: d.log,
	})
	if err != nil {
		return nil, err
	}
	service.Connect(hub)
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", d.tunnelAddress)
	if err != nil {
		return nil, fmt.Errorf("listen for nodes (--tunnel-address): %w", err)
	}
	d.Add("cluster", func(ctx context.Context) error { return cluster.Run(ctx, service.Forget) })
	d.Add("certificate", serving.Run)
	d.AddListener("tunnel", listener, hub.Serve)
	d.Add("controller", func(ctx context.Context) error { service.Run(ctx); return nil })
	return serving, nil
}
