package app

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/controller/internal/admin"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/controller/internal/certificate"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/controller/internal/csi"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/controller/internal/fleet"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/controller/internal/inventory"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/controller/internal/kube"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/controller/internal/moves"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/controller/internal/report"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/controller/internal/sharedpools"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/controller/internal/works"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/buildinfo"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/endpoint"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/health"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/poolspec"
)

// controllerRequests bound the requests to the API in a second: a controller that starts has one for each node.
const controllerRequests = 200

// controller is everything that runs in the controller, which upstream's sidecars call on a socket of its own.
// It has no pools: what is asked for happens on nodes.
type controller struct {
	*options
	*endpoint.Process
	cluster *kube.Cluster
	nodes   *fleet.Fleet
	serving *certificate.Keeper
}

// build puts it together.
func (c *controller) build(ctx context.Context, specs []poolspec.Pool) error {
	if err := c.connect(specs); err != nil {
		return err
	}
	service, err := c.addService(ctx, specs)
	if err != nil {
		return err
	}
	return c.AddSocket(ctx, service,
		health.Check{Name: "certificate", Do: func(context.Context) error { return c.serving.Ready() }},
		health.Check{Name: "nodes", Do: func(context.Context) error { return c.nodes.Ready() }})
}

// connect finds the cluster, and makes what nodes connect to.
func (c *controller) connect(specs []poolspec.Pool) error {
	api, err := kube.Connect(c.kubeconfig, controllerRequests)
	if err != nil {
		return err
	}
	c.cluster, err = kube.New(kube.Config{
		API: api, DriverName: c.DriverName, TopologyKey: c.TopologyKey, PodNamespace: c.PodNamespace,
		PodName: c.PodName, Lease: c.lease, NodeServiceAccount: c.nodeServiceAccount, NodePods: c.nodePods,
		NodeLabels: selectorKeys(specs), Log: c.Log, Timeout: endpoint.APITimeout,
	})
	if err != nil {
		return err
	}
	c.serving = certificate.New(certificate.Config{
		Mode: c.certificates, DNSName: c.servingName, SecretName: c.certificateSecret, ConfigMapName: c.ControllerCA,
		Store: c.cluster, Log: c.Log, Now: time.Now, Interval: c.certificateInterval,
	})
	c.nodes, err = fleet.New(fleet.Config{
		Cluster: c.cluster, Address: c.tunnelAddress, TLS: c.serving.TLS(), TopologyKey: c.TopologyKey,
		Version: buildinfo.Version(), Claimed: c.cluster.Claimed, Review: c.cluster.Review,
		NodeGrace: c.nodeGrace, GoneAfter: c.nodeGoneAfter,
		Metrics: c.Registry, Log: c.Log, Now: time.Now,
	})
	return err
}

// addService adds what looks after the nodes, and the service that calls them.
func (c *controller) addService(ctx context.Context, specs []poolspec.Pool) (*csi.Controller, error) {
	shared, err := sharedpools.New(specs, c.nodes, kube.Identities{Cluster: c.cluster, Name: c.sharedPools})
	if err != nil {
		return nil, err
	}
	var room *moves.Room // which needs the service that needs it
	moving := func(id string) string { return room.Moving(id) }
	volumes, err := inventory.New(c.cluster, c.nodes, shared, c.orphanAge, moving)
	if err != nil {
		return nil, err
	}
	reporter, err := report.New(c.nodes, c.cluster, shared.Everywhere)
	if err != nil {
		return nil, err
	}
	service, err := csi.New(csi.Config{
		Cluster: c.cluster, Fleet: c.nodes, Shared: shared, DriverName: c.DriverName, Moving: moving,
	})
	if err != nil {
		return nil, err
	}
	if room, err = c.moves(service, shared); err != nil {
		return nil, err
	}
	c.Add("cluster", func(ctx context.Context) error {
		return c.cluster.Run(ctx, func(node string) { c.nodes.Forget(node); volumes.Forget(node) })
	})
	c.Add("certificate", c.serving.Run)
	if err := c.AddServer(ctx, "tunnel", c.nodes); err != nil {
		return nil, err
	}
	c.Add("nodes", func(ctx context.Context) error { c.nodes.Run(ctx); return nil })
	c.Add("shared pools", func(ctx context.Context) error { shared.Run(ctx); return nil })
	c.Add("inventory", func(ctx context.Context) error { volumes.Run(ctx); return nil })
	c.Add("reports", func(ctx context.Context) error { reporter.Run(ctx); return nil })
	c.Add("claims", func(ctx context.Context) error { service.Run(ctx); return nil })
	long := works.New(time.Now)
	c.Add("works", func(ctx context.Context) error { long.Run(ctx); return nil })
	c.Add("moves", func(ctx context.Context) error {
		c.nodes.Every(ctx, moves.Interval, func() { room.Look(ctx, c.cluster.Leads()) })
		return nil
	})
	return service, c.AddCommands(ctx, admin.New(admin.Config{
		Driver: c.DriverName, Version: buildinfo.Version(), TopologyKey: c.TopologyKey, Nodes: volumes, Works: long,
		Moves: room,
	}))
}

// moves makes the room of the moves of volumes.
func (c *controller) moves(service *csi.Controller, shared *sharedpools.Pools) (*moves.Room, error) {
	in := kube.Moves{Cluster: c.cluster, Name: c.movesMap}
	nodes := moves.Connected{
		Controller: service, Fleet: c.nodes, Cordoned: c.cluster.Cordoned, Everywhere: shared.Everywhere,
	}
	return moves.New(moves.Config{
		Journal: in, Volumes: in, Claims: in, Nodes: nodes, Targets: nodes, TopologyKey: c.TopologyKey, Log: c.Log,
		Now: time.Now,
	})
}

// selectorKeys are the labels that nodes are selected by.
func selectorKeys(specs []poolspec.Pool) (keys []string) {
	for _, s := range specs {
		keys = slices.AppendSeq(keys, maps.Keys(s.NodeSelector))
	}
	return keys
}
