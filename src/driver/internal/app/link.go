package app

import (
	"cmp"
	"context"
	"net"
	"os"
	"strings"

	"google.golang.org/grpc"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/guard"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/pool"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/volume"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/buildinfo"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/certificates"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/link"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi/wire"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/rpc"
)

// addLink adds the connection to the controller, on which that calls the node's controller service, and does what
// administrators ask it to do here.
func (d *driver) addLink(services interface{ RegisterController(r grpc.ServiceRegistrar) }, own rpc.Services) error {
	if d.controller == "" {
		return nil
	}
	node, err := link.NewNode(link.NodeConfig{
		Periods: link.DefaultPeriods(), LookUp: new(net.Resolver).LookupHost,
		Address: d.controller, Node: d.nodeName, TopologyKey: d.TopologyKey, Version: buildinfo.Version(),
		Token:       d.token,
		Authorities: d.authorities,
		Source:      shown{d.pools, d.volumes},
		Server: func(options ...grpc.ServerOption) *grpc.Server {
			server := d.Calls.Server(options...)
			services.RegisterController(server)
			own.Register(server)
			return server
		},
		Metrics: d.Registry, Log: d.Log,
	})
	if err != nil {
		return err
	}
	d.Add("link", func(ctx context.Context) error { node.Run(ctx); return nil })
	return nil
}

func (d *driver) token() (string, error) {
	token, err := os.ReadFile(d.controllerToken)
	return strings.TrimSpace(string(token)), err
}

// authorities reads the ConfigMap that the controller writes, or that OpenShift's service CA is injected into. It asks
// the API: a mounted one would be a minute old, so that a new cluster would wait that long for its first volume.
func (d *driver) authorities(ctx context.Context) ([]byte, error) {
	data, err := d.client.ConfigMap(ctx, d.ControllerCA)
	return []byte(cmp.Or(data[certificates.AuthoritiesKey], data[certificates.InjectedKey])), err
}

// shown is what the controller sees of the node.
type shown struct {
	pools   *pool.Set
	volumes *volume.Manager
}

func (s shown) Pools() []nodeapi.PoolStatus { return s.pools.Status() }

func (s shown) Find(ctx context.Context, id string) (pool string, found bool, err error) {
	return s.volumes.Has(ctx, id)
}

func (s shown) Share(pools []*wire.SharedPool) {
	expected := map[string]guard.Expected{}
	for _, p := range pools {
		expected[p.GetName()] = guard.Expected{
			ID: p.GetId(), Make: p.GetMake(), Gone: p.GetGone(), Owner: p.GetOwner(), Twins: p.GetTwins(),
		}
	}
	s.pools.SetExpected(expected)
}

func (s shown) Volumes(ctx context.Context, visit func(nodeapi.VolumeStatus) error) error {
	return s.volumes.Each(ctx, visit)
}
