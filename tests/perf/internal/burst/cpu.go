package burst

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// CPU is processor time in seconds of containers and of whole nodes.
type CPU map[Consumer]float64

// Consumer is a container, or with nothing but Node all that runs on a node.
type Consumer struct{ Node, Namespace, Pod, Container string }

// housekeeping is how old what a kubelet has read in the cgroups may be: it looks every 10 to 15 s.
const housekeeping = 16 * time.Second

// readCPU gives what everything on the cluster has used so far, as the kubelets read it in the cgroups. While it waits
// for them nothing may be under way that is to be counted.
func readCPU(ctx context.Context, client kubernetes.Interface) (CPU, error) {
	select {
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case <-time.After(housekeeping):
	}
	nodes, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list the nodes to read their processor time: %w", err)
	}
	all := CPU{}
	for _, node := range nodes.Items {
		text, err := client.CoreV1().RESTClient().Get().Resource("nodes").Name(node.Name).SubResource("proxy").
			Suffix("metrics", "resource").DoRaw(ctx)
		if err != nil {
			return nil, fmt.Errorf("read the processor time of node %s: %w", node.Name, err)
		}
		used, err := parseCPU(text, node.Name)
		if err != nil {
			return nil, fmt.Errorf("read the processor time of node %s: %w", node.Name, err)
		}
		maps.Copy(all, used)
	}
	return all, nil
}

// parseCPU takes processor times out of a kubelet's /metrics/resource.
func parseCPU(text []byte, node string) (CPU, error) {
	parser := expfmt.NewTextParser(model.UTF8Validation)
	metrics, err := parser.TextToMetricFamilies(bytes.NewReader(text))
	if err != nil {
		return nil, err
	}
	used := CPU{}
	for _, family := range []string{"node_cpu_usage_seconds_total", "container_cpu_usage_seconds_total"} {
		if metrics[family] == nil {
			return nil, fmt.Errorf("there is no metric %s", family)
		}
		for _, metric := range metrics[family].GetMetric() {
			of := Consumer{Node: node}
			for _, label := range metric.GetLabel() {
				switch label.GetName() {
				case "namespace":
					of.Namespace = label.GetValue()
				case "pod":
					of.Pod = label.GetValue()
				case "container":
					of.Container = label.GetValue()
				}
			}
			used[of] += metric.GetCounter().GetValue()
		}
	}
	return used, nil
}

// since is what was used after an earlier look. What has ended since then is only in the figure of its node.
func (c CPU) since(before CPU) CPU {
	grown := CPU{}
	for of, seconds := range c {
		grown[of] = max(0, seconds-before[of])
	}
	return grown
}

// of is the sum of a namespace's containers of one name, of all with none; without namespace that of whole nodes.
func (c CPU) of(namespace, container string) (sum float64) {
	for of, seconds := range c {
		if of.Namespace == namespace && (container == "" || of.Container == container) {
			sum += seconds
		}
	}
	return sum
}
