package fromsource

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/hostpath-provisioner/hostpath-provisioner/tests/cluster/fromsource/internal/network"
)

// Kubectl runs kubectl on a cluster's control plane.
type Kubectl func(ctx context.Context, stdin io.Reader, args ...string) (string, error)

// PodRoutes makes every pod reachable from every node, as soon as each node has a range of addresses for its pods. It
// does nothing for nodes whose image brings a network of its own.
func PodRoutes(ctx context.Context, image string, nodes map[string]netip.Addr, kubectl Kubectl) error {
	if !isBuilt(image) {
		return nil
	}
	var last error
	err := wait.PollUntilContextTimeout(ctx, 500*time.Millisecond, 2*time.Minute, true,
		func(ctx context.Context) (bool, error) {
			last = applyRoutes(ctx, nodes, kubectl)
			return last == nil, nil
		})
	if err != nil {
		return fmt.Errorf("make pods reachable from all nodes: %w", errors.Join(err, last))
	}
	return nil
}

func applyRoutes(ctx context.Context, nodes map[string]netip.Addr, kubectl Kubectl) error {
	ranges, err := podRanges(ctx, kubectl)
	if err != nil {
		return err
	}
	var list []network.Node
	for name, address := range nodes {
		pods, has := ranges[name]
		if !has {
			return fmt.Errorf("node %s has no range of pod addresses yet", name)
		}
		list = append(list, network.Node{Name: name, Address: address, Pods: pods})
	}
	return network.Apply(ctx, list)
}

func podRanges(ctx context.Context, kubectl Kubectl) (map[string]netip.Prefix, error) {
	const format = `jsonpath={range .items[*]}{.metadata.name} {.spec.podCIDR}{"\n"}{end}`
	out, err := kubectl(ctx, nil, "get", "nodes", "-o", format)
	if err != nil {
		return nil, err
	}
	ranges := map[string]netip.Prefix{}
	for line := range strings.Lines(out) {
		name, cidr, _ := strings.Cut(strings.TrimSpace(line), " ")
		if prefix, err := netip.ParsePrefix(cidr); err == nil {
			ranges[name] = prefix
		}
	}
	return ranges, nil
}
