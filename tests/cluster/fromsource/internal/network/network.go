// Package network gives the nodes of a cluster a pod network out of plugins
// and routes alone, for node images that have no network daemon.
package network

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"github.com/hostpath-provisioner/hostpath-provisioner/tests/cluster/internal/dockercli"
)

// Node is what the network needs to know of a node.
type Node struct {
	// Name is also the name of its container.
	Name string
	// Address is its address on Docker's network.
	Address netip.Addr
	// Pods is the range of its pods' addresses.
	Pods netip.Prefix
}

// configFile is where containerd finds the network on a node.
const configFile = "/etc/cni/net.d/10-hostpath-provisioner.conflist"

// Apply writes each node's network configuration and its routes to the pods
// of all others. It may be repeated at any time. Routes vanish when a node's
// container restarts.
func Apply(ctx context.Context, nodes []Node) error {
	var errs []error
	for _, node := range nodes {
		config, err := Config(node)
		if err != nil {
			return err
		}
		script := "mkdir -p /etc/cni/net.d && cat >" + configFile + ".tmp && mv " + configFile + ".tmp " + configFile
		if routes := Routes(node, nodes); len(routes) > 0 {
			script += " && " + strings.Join(routes, " && ")
		}
		_, err = dockercli.Input(ctx, strings.NewReader(config), "exec", "--interactive", node.Name, "sh", "-ec",
			script)
		if err != nil {
			errs = append(errs, fmt.Errorf("set up the pod network on %s: %w", node.Name, err))
		}
	}
	return errors.Join(errs...)
}

// Routes are the commands, run on node, that make the other nodes' pods reachable.
func Routes(node Node, all []Node) []string {
	var commands []string
	for _, other := range all {
		if other.Name != node.Name {
			commands = append(commands, fmt.Sprintf("ip route replace %s via %s", other.Pods, other.Address))
		}
	}
	return commands
}

// Config is the CNI configuration of a node, as the CNI specification
// describes it: a pair of interfaces for each pod, an address out of the
// node's range, and host ports.
func Config(node Node) (string, error) {
	type object = map[string]any
	raw, err := json.MarshalIndent(object{
		"cniVersion": "0.4.0",
		"name":       "hostpath-provisioner",
		"plugins": []object{
			{
				"type":   "ptp",
				"ipMasq": true,
				"ipam": object{
					"type":    "host-local",
					"dataDir": "/run/cni-ipam-state",
					"routes":  []object{{"dst": "0.0.0.0/0"}},
					"ranges":  [][]object{{{"subnet": node.Pods.String()}}},
				},
			},
			{"type": "portmap", "capabilities": object{"portMappings": true}},
		},
	}, "", "  ")
	return string(raw) + "\n", err
}
