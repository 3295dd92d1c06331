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
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/endpoint"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/health"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/poolspec"
)

const (
	// settling is how long a node's driver may take to look at its pools.
	settling = 10 * time.Second
	// controllerRequests bound the requests to the API in a second: one that starts has one for each node.
	controllerRequests = 200
)

// clusterController is everything that runs in the controller, which upstream's sidecars call on a socket of its own.
// It has no pools: what is asked for happens on nodes.
type clusterController struct {
	*controllerOptions
	*endpoint.Process
	cluster *kube.Controller
	service *controller.Server
	serving *certificate.Keeper
}

// build puts it together.
func (c *clusterController) build(ctx context.Context, specs []poolspec.Pool) error {
	if err := c.connect(specs); err != nil {
		return err
	}
	if err := c.buildService(specs); err != nil {
		return err
	}
	if err := c.addHub(ctx); err != nil {
		return err
	}
	if err := c.Registry.Register(c.service); err != nil { // which collects from the hub
		return fmt.Errorf("register metrics: %w", err)
	}
	commands := controlleradmin.New(c.DriverName, buildinfo.Version(), c.service)
	if err := c.AddCommands(ctx, commands); err != nil {
		return err
	}
	return c.AddSocket(ctx, c.service,
		health.Check{Name: "certificate", Do: func(context.Context) error { return c.serving.Ready() }},
		health.Check{Name: "nodes", Do: func(context.Context) error { return c.service.Ready() }})
}

// connect finds the cluster.
func (c *clusterController) connect(specs []poolspec.Pool) error {
	api, err := kube.Connect(c.Kubeconfig, controllerRequests)
	if err != nil {
		return err
	}
	c.cluster, err = kube.NewController(kube.Config{
		API: api, DriverName: c.DriverName, TopologyKey: c.TopologyKey, PodNamespace: c.PodNamespace,
		PodName: c.PodName, NodeServiceAccount: c.nodeServiceAccount, NodePods: c.nodePods,
		NodeLabels: selectorKeys(specs), Log: c.Log, Timeout: endpoint.APITimeout,
	})
	return err
}

// selectorKeys are the labels that nodes are selected by.
func selectorKeys(specs []poolspec.Pool) (keys []string) {
	for _, s := range specs {
		keys = slices.AppendSeq(keys, maps.Keys(s.NodeSelector))
	}
	return keys
}

func (c *clusterController) buildService(specs []poolspec.Pool) (err error) {
	c.service, err = controller.New(controller.Config{
		DriverName: c.DriverName, Version: buildinfo.Version(), TopologyKey: c.TopologyKey, Pools: specs,
		PVs: c.cluster, Members: c.cluster, Claims: c.cluster, Events: c.cluster,
		Identities:        kube.Identities{Controller: c.cluster, ConfigMap: c.sharedPools},
		RemoveOldCapacity: c.cluster.RemoveOldCapacity,
		NodeGrace:         c.nodeGrace, GoneAfter: c.nodeGoneAfter, OrphanAge: c.orphanAge, Settling: settling,
		Log: c.Log, Now: time.Now,
	})
	return err
}

// addHub adds the view of the cluster, the certificate, and the end of the tunnel that nodes connect to.
func (c *clusterController) addHub(ctx context.Context) error {
	c.serving = certificate.New(certificate.Config{
		Mode: c.certificates, DNSName: c.servingName, SecretName: c.certificateSecret, ConfigMapName: c.ControllerCA,
		Store: c.cluster, Log: c.Log, Now: time.Now, Interval: c.certificateInterval,
	})
	hub, err := tunnel.NewHub(tunnel.HubConfig{
		TLS: c.serving.TLS(), TopologyKey: c.TopologyKey, Version: buildinfo.Version(),
		Claimed: c.cluster.Claimed, Review: c.cluster.Review,
		Changed: c.service.Changed, Metrics: c.Registry, Log: c.Log,
	})
	if err != nil {
		return err
	}
	c.service.Connect(hub)
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", c.tunnelAddress)
	if err != nil {
		return fmt.Errorf("listen for nodes (--tunnel-address): %w", err)
	}
	c.Add("cluster", func(ctx context.Context) error { return c.cluster.Run(ctx, c.service.Forget) })
	c.Add("certificate", c.serving.Run)
	c.AddListener("tunnel", listener, hub.Serve)
	c.Add("controller", func(ctx context.Context) error { c.service.Run(ctx); return nil })
	return nil
}
