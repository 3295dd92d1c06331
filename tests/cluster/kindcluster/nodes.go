package kindcluster

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/hostpath-provisioner/hostpath-provisioner/tests/cluster/fromsource"
	"github.com/hostpath-provisioner/hostpath-provisioner/tests/cluster/internal/dockercli"
)

// roleLabel is what kind writes on its containers.
const roleLabel = "io.x-k8s.kind.role"

// Node is one machine of the cluster.
type Node struct {
	// Name of the node, and of its container.
	Name string
	// ControlPlane is true for the node that runs the API server.
	ControlPlane bool
	// Address on Docker's network.
	Address netip.Addr
	// Image that the node runs.
	Image string
}

// Nodes lists the cluster's nodes by name.
func (c *Cluster) Nodes(ctx context.Context) ([]Node, error) {
	names, err := c.nodeNames()
	if err != nil {
		return nil, err
	}
	nodes := make([]Node, len(names))
	for i, name := range names {
		if nodes[i], err = inspect(ctx, name, c.network()); err != nil {
			return nil, err
		}
	}
	return nodes, nil
}

// Workers lists the names of the nodes that are not the control plane.
func (c *Cluster) Workers(ctx context.Context) ([]string, error) {
	nodes, err := c.Nodes(ctx)
	var names []string
	for _, node := range nodes {
		if !node.ControlPlane {
			names = append(names, node.Name)
		}
	}
	return names, err
}

func inspect(ctx context.Context, name, networkName string) (Node, error) {
	raw, err := dockercli.Output(ctx, "container", "inspect", "--format", "{{json .}}", name)
	if err != nil {
		return Node{}, err
	}
	var container struct {
		Config struct {
			Image  string
			Labels map[string]string
		}
		NetworkSettings struct {
			Networks map[string]struct{ IPAddress string }
		}
	}
	if err := json.Unmarshal([]byte(raw), &container); err != nil {
		return Node{}, fmt.Errorf("read what docker says about %s: %w", name, err)
	}
	address, err := netip.ParseAddr(container.NetworkSettings.Networks[networkName].IPAddress)
	if err != nil {
		return Node{}, fmt.Errorf("node %s has no address on network %s (is it running?): %w", name, networkName, err)
	}
	return Node{
		Name:         name,
		ControlPlane: container.Config.Labels[roleLabel] == "control-plane",
		Address:      address,
		Image:        container.Config.Image,
	}, nil
}

// NodeExec runs a command on a node, with all of the node's own rights, and
// returns what it prints to standard output without the last line's end.
func (c *Cluster) NodeExec(ctx context.Context, node string, command ...string) (string, error) {
	return dockercli.Output(ctx, append([]string{"exec", node}, command...)...)
}

// CopyToNode puts a file of this machine into a folder on a node. Holes stay holes, which docker cp would fill.
func (c *Cluster) CopyToNode(ctx context.Context, node, file, folder string) error {
	tar := exec.CommandContext(ctx, "tar", "--sparse", "-C", filepath.Dir(file), "-c", filepath.Base(file))
	var stderr bytes.Buffer
	tar.Stderr = &stderr
	stdout, err := tar.StdoutPipe()
	if err != nil {
		return err
	}
	if err := tar.Start(); err != nil {
		return fmt.Errorf("start tar: %w", err)
	}
	_, err = dockercli.Input(ctx, stdout, "exec", "--interactive", node, "tar", "-C", folder, "-x")
	_ = stdout.Close() // else tar waits for a reader that has failed
	if packed := tar.Wait(); packed != nil {
		err = errors.Join(err, fmt.Errorf("%w: %s", packed, stderr.String()))
	}
	if err != nil {
		return fmt.Errorf("copy %s to %s on node %s: %w", file, folder, node, err)
	}
	return nil
}

// Kubectl runs kubectl on the control plane, as administrator. stdin may be
// nil. It is there whatever is installed on this machine.
func (c *Cluster) Kubectl(ctx context.Context, stdin io.Reader, args ...string) (string, error) {
	command := []string{
		"exec", "--interactive", c.name + "-control-plane", "kubectl", "--kubeconfig", "/etc/kubernetes/admin.conf",
	}
	return dockercli.Input(ctx, stdin, append(command, args...)...)
}

// KillNode ends a node's container as a power cut would. RestartNode starts it again.
func (c *Cluster) KillNode(ctx context.Context, node string) error {
	if err := dockercli.Run(ctx, "kill", node); err != nil {
		return fmt.Errorf("kill node %s: %w", node, err)
	}
	return nil
}

// RestartNode restarts a node's container, or starts one that was killed, and
// returns when its kubelet works again and the routes are back. The node's
// pods may take a moment longer.
func (c *Cluster) RestartNode(ctx context.Context, node string) error {
	const limit = 2 * time.Minute
	if err := dockercli.Run(ctx, "restart", node); err != nil {
		return fmt.Errorf("restart node %s: %w", node, err)
	}
	if err := c.ReapplyRoutes(ctx); err != nil {
		return err
	}
	// The API server goes on saying Ready for a while after a node has gone:
	// wait for a heartbeat that came after the restart.
	first := ""
	err := poll(ctx, limit, "node "+node+" reports after its restart", func() error {
		now, err := c.heartbeat(ctx, node)
		if err != nil {
			return err
		}
		if first == "" {
			first = now
		}
		if now == first {
			return errors.New("no new heartbeat yet")
		}
		return nil
	})
	if err != nil {
		return err
	}
	return c.WaitReady(ctx, limit, func(string) {})
}

// heartbeat returns when the node's kubelet last renewed its lease.
func (c *Cluster) heartbeat(ctx context.Context, node string) (string, error) {
	return c.Kubectl(ctx, nil, "get", "lease", "-n", "kube-node-lease", node, "-o", "jsonpath={.spec.renewTime}")
}

// ReapplyRoutes makes every pod reachable from every node, which is needed after
// a node's container was restarted.
func (c *Cluster) ReapplyRoutes(ctx context.Context) error {
	nodes, err := c.Nodes(ctx)
	if err != nil || len(nodes) == 0 {
		return err
	}
	addresses := map[string]netip.Addr{}
	for _, node := range nodes {
		addresses[node.Name] = node.Address
	}
	return fromsource.PodRoutes(ctx, nodes[0].Image, addresses, c.Kubectl)
}

// WaitReady waits until all nodes are Ready and the name service runs.
func (c *Cluster) WaitReady(ctx context.Context, limit time.Duration, report func(string)) error {
	for _, wait := range [][]string{
		{"wait", "--for=condition=Ready", "nodes", "--all", "--timeout=5s"},
		{"rollout", "status", "deployment/coredns", "--namespace", "kube-system", "--timeout=5s"},
	} {
		err := poll(ctx, limit, strings.Join(wait[:3], " "), func() error {
			_, err := c.Kubectl(ctx, nil, wait...)
			if err != nil {
				report(err.Error())
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// poll tries until try succeeds or the time is over; the error says what was
// waited for and why the last attempt failed.
func poll(ctx context.Context, limit time.Duration, what string, try func() error) error {
	var last error
	err := wait.PollUntilContextTimeout(ctx, 500*time.Millisecond, limit, true, func(context.Context) (bool, error) {
		last = try()
		return last == nil, nil
	})
	if err != nil {
		return fmt.Errorf("waited %s for this: %s: %w", limit, what, errors.Join(err, last))
	}
	return nil
}

func (c *Cluster) nodeNames() ([]string, error) {
	nodes, err := c.provider.ListInternalNodes(c.name)
	if err != nil {
		return nil, fmt.Errorf("list the nodes of cluster %s: %w", c.name, err)
	}
	names := make([]string, len(nodes))
	for i, node := range nodes {
		names[i] = node.String()
	}
	slices.Sort(names)
	return names, nil
}
