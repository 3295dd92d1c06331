package install

import (
	"context"
	"fmt"
	"io"
	"os/exec"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/tests/cluster/kindcluster"
)

// Summary prints how to use a cluster in which nothing was installed.
func Summary(ctx context.Context, c *kindcluster.Cluster, out io.Writer) error {
	registry, err := c.Registry(ctx)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, `
Cluster %[1]s is ready after %[2]s.
  nodes         %[3]s get nodes -o wide
  access        export KUBECONFIG=%[4]s
  registry      push %[5]s/NAME:TAG, run ANY.REGISTRY/NAME:TAG
  remove        go -C tests run ./cluster down --name %[1]s
`, c.Name(), c.Printer().Elapsed().Round(time.Second), kubectl(c), c.Kubeconfig(), registry)
	return err
}

// kubectl is how this user calls kubectl for the cluster.
func kubectl(c *kindcluster.Cluster) string {
	if _, err := exec.LookPath("kubectl"); err == nil {
		return "kubectl --context kind-" + c.Name()
	}
	return "docker exec " + c.Name() + "-control-plane kubectl"
}
