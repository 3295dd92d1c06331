package install

import (
	"context"
	_ "embed"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/tests/cluster/kindcluster"
)

//go:embed demo.yaml
var demoManifest string

const (
	// demo is the name of the claim and of the pod.
	demo = "hpp-demo"
	// defaultClass is the class that the chart makes when not told otherwise,
	// and defaultPool the directory on the nodes that it stands for.
	defaultClass = "hostpath-local"
	defaultPool  = "/var/lib/hostpath-provisioner"
)

// runDemo makes the claim and the pod, waits until it writes, and prints
// where the data is and what to try next.
func runDemo(ctx context.Context, c *kindcluster.Cluster, version, digest string, out io.Writer) error {
	if _, err := c.Kubectl(ctx, nil, "get", "storageclass", defaultClass); err != nil {
		c.Printer().Note("No demo: these values make no StorageClass %s. What to do with them is in the notes of the "+
			"chart: helm --kube-context kind-%s --namespace %s get notes %s", defaultClass, c.Name(), namespace,
			release)
		return Summary(ctx, c, out)
	}
	err := c.Printer().Step("demo: a claim, and a pod that writes to its volume", 5*time.Second,
		func(func(string)) error {
			image := "ghcr.io/hostpath-provisioner/selftest:" + version + "@" + digest
			manifest := strings.NewReplacer("${CLASS}", defaultClass, "${IMAGE}", image).Replace(demoManifest)
			if _, err := c.Kubectl(ctx, strings.NewReader(manifest), "apply", "-f", "-"); err != nil {
				return fmt.Errorf("make the demo's claim and pod: %w", err)
			}
			if _, err := c.Kubectl(ctx, nil, "wait", "--for=condition=Ready", "pod/"+demo,
				"--timeout=90s"); err != nil {
				events, _ := c.Kubectl(ctx, nil, "get", "events", "--sort-by", ".lastTimestamp") // only to tell more
				return fmt.Errorf("wait for the demo's pod: %w\n%s\n%s", err, events, trouble(ctx, c))
			}
			return nil
		})
	if err != nil {
		return err
	}
	return summarize(ctx, c, out)
}

// place is where the demo's volume is.
type place struct{ node, volume, directory string }

func findDemo(ctx context.Context, c *kindcluster.Cluster) (place, error) {
	var p place
	var err error
	if p.node, err = c.Kubectl(ctx, nil, "get", "pod", demo, "-o", "jsonpath={.spec.nodeName}"); err != nil {
		return p, err
	}
	if p.volume, err = c.Kubectl(ctx, nil, "get", "pvc", demo, "-o", "jsonpath={.spec.volumeName}"); err != nil {
		return p, err
	}
	p.directory, err = c.NodeExec(ctx, p.node, "find", defaultPool, "-maxdepth", "2", "-name", p.volume)
	if err == nil && p.directory == "" {
		p.directory = p.volume + " in csi/ of another pool than " + defaultPool // these values have their own
	}
	return p, err
}

func summarize(ctx context.Context, c *kindcluster.Cluster, out io.Writer) error {
	p, err := findDemo(ctx, c)
	if err != nil {
		return fmt.Errorf("look for the demo's volume: %w", err)
	}
	k := kubectl(c)
	_, err = fmt.Fprintf(out, `
Cluster %[1]s serves volumes, %[2]s after the start. Pod %[3]s writes to %[4]s,
which is the directory %[5]s on node %[6]s.

Try next:
  the demo                %[7]s get pods,pvc -o wide
  its directory           docker exec %[6]s ls -ln %[5]s
  the directory goes too  %[7]s delete pod,pvc %[3]s
  the driver              %[7]s -n %[8]s get pods -o wide
  nodes, pools and room   go run ./src/kubectl-hpp status --context kind-%[1]s
  update after a change   make up, with the same VALUES
  remove all of it        make down
`, c.Name(), c.Printer().Elapsed().Round(time.Second), demo, p.volume, p.directory, p.node, k, namespace)
	return err
}
