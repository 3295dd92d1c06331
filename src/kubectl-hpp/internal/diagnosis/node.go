// Package diagnosis says what is wrong with nodes and their pools: once, for all commands that say so.
package diagnosis

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/bytesize"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/kubectl-hpp/internal/facts"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/kubectl-hpp/internal/say"
)

// node is a node, and what was read about it.
type node struct {
	facts.Facts
	name   string
	object *corev1.Node // nil where it is gone
	is     nodeapi.NodeStatus
	known  bool // to the controller
}

// Node explains a node, for its name.
func Node(f facts.Facts, name string) say.Answer {
	n := node{Facts: f, name: name, object: f.Object(name)}
	n.is, n.known = f.Node(name)
	answers := say.Each(n, node.gone, node.down, node.driverless, node.unserved, node.unheard, node.skewed)
	if n.known && (n.is.State == facts.Connected || !n.LacksDriver(name)) {
		for _, x := range Reported(f, n.is) {
			answers = append(answers, x.Answer())
		}
	}
	answer, found := say.Join(answers)
	switch {
	case found:
	case n.object != nil && n.object.Spec.Unschedulable:
		answer, _ = say.Fine("Cordoned",
			fmt.Sprintf("Node %s is well, and cordoned: no new pods, and no new volumes for them.", name))
	default:
		answer, _ = say.Fine("Well", fmt.Sprintf("Node %s is well.", name))
	}
	if n.is.State == facts.Connected {
		answer.Rows = append(answer.Rows, poolRows(n.is)...)
	}
	return answer
}

// Reported are the findings about a node, and its pools, in what the controller says of it.
func Reported(f facts.Facts, n nodeapi.NodeStatus) (all []Finding) {
	if n.State != facts.Connected {
		volumes, waiting := f.VolumesOn(n.Name), f.Waiting()[n.Name]
		more := Count(volumes, "volume")
		if waiting == 1 {
			more += "; 1 claim waits"
		} else if waiting > 1 {
			more += fmt.Sprintf("; %d claims wait", waiting)
		}
		return []Finding{{
			Severity: Unusable, Reason: "NodeNotConnected", What: n.State + f.Since(n.Seen), More: more,
			Message: fmt.Sprintf("Node %s has not been connected to the controller%s; volumes there: %d. Pods keep "+
				"them, but none is made, grown or deleted.", n.Name, f.Since(n.Seen), volumes),
			Next: logs(f, n.Name),
		}}
	}
	if n.Message != "" {
		all = append(all, Finding{
			Severity: Noteworthy, Reason: "Says", What: n.Message,
			Message: fmt.Sprintf("Node %s: %s.", n.Name, n.Message),
		})
	}
	for _, p := range n.Pools {
		all = append(all, pool(f, n, p)...)
	}
	return all
}

// poolRows show the pools of a node.
func poolRows(n nodeapi.NodeStatus) (all [][2]string) {
	for _, p := range n.Pools {
		is := strings.TrimSuffix(p.State+": "+p.Message, ": ")
		if p.Served() {
			is = fmt.Sprintf("%s, %s free of %s, %s left for a new volume, %d volumes, held to their sizes by: %s",
				p.State, bytesize.Format(p.Free), bytesize.Format(p.Size), bytesize.Format(max(0,
					p.Allocatable)), p.Volumes,
				cmp.Or(p.Enforcement, "none"))
		}
		all = append(all, [2]string{"pool " + p.Name, is})
	}
	return all
}

func (n node) gone() (say.Answer, bool) {
	if n.object != nil || len(n.Nodes) == 0 {
		return say.No()
	}
	lost := 0
	for _, v := range n.Listed {
		if v.Node == n.name && v.PV != "" {
			lost++
		}
	}
	return say.Wrong("NodeGone", fmt.Sprintf("There is no node %s any more; PersistentVolumes that name it: %d.",
		n.name, lost),
		"If it does not come back, delete the claims of what is lost: kubectl hpp get volumes -A --node "+n.name,
		"docs/how-to/lose-a-node.md#the-node-is-gone")
}

func (n node) down() (say.Answer, bool) {
	if n.object == nil || facts.Ready(n.object) {
		return say.No()
	}
	return say.Wrong("NodeNotReady", fmt.Sprintf("Node %s is not ready: its kubelet does not answer, or says so.",
		n.name), "kubectl describe node "+n.name, "docs/how-to/lose-a-node.md#the-node-is-away")
}

// driverless is for a node whose kubelet does not know the driver: why, its pod says.
func (n node) driverless() (say.Answer, bool) {
	if n.object == nil || !n.LacksDriver(n.name) {
		return say.No()
	}
	i := slices.IndexFunc(n.DriverPods, func(p corev1.Pod) bool { return p.Spec.NodeName == n.name })
	if i < 0 {
		return say.Wrong("DriverMissing", fmt.Sprintf("Node %s has no pod of the driver, so that no volume is made "+
			"or mounted there.", n.name), "If it should have one, see the chart's driver.nodeSelector and "+
			"driver.tolerations: kubectl describe daemonset -A -l app.kubernetes.io/component=csi-driver")
	}
	p := n.DriverPods[i]
	if !PodReady(p) {
		return say.Wrong("DriverNotReady", fmt.Sprintf("The driver's pod %s on node %s is not ready%s.", p.Name, n.name,
			WaitingFor(p)), fmt.Sprintf("kubectl describe pod %s -n %s", p.Name, p.Namespace),
			fmt.Sprintf("kubectl logs %s -n %s -c driver", p.Name, p.Namespace))
	}
	return say.Wrong("NotRegistered", fmt.Sprintf("The driver's pod %s on node %s is ready, and the kubelet does not "+
		"know it: its directory is another than the chart's value kubeletDir.", p.Name, n.name),
		"Set kubeletDir to the kubelet's --root-dir, such as /var/lib/k0s/kubelet or "+
			"/var/snap/microk8s/common/var/lib/kubelet, and upgrade the release.")
}

// PodReady reports whether a pod is.
func PodReady(p corev1.Pod) bool {
	return slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// WaitingFor is why a container of a pod does not run, with a colon before it.
func WaitingFor(p corev1.Pod) string {
	for _, c := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
		if w := c.State.Waiting; w != nil {
			return strings.TrimSuffix(fmt.Sprintf(": %s: %s %s", c.Name, w.Reason, w.Message), " ")
		}
	}
	return ""
}

func (n node) unserved() (say.Answer, bool) {
	if n.Away == "" {
		return say.No()
	}
	return say.Wrong("ControllerAway", fmt.Sprintf("The controller cannot be asked about it: %s.", n.Away),
		"kubectl hpp doctor")
}

// unheard is for a node that the controller does not know.
func (n node) unheard() (say.Answer, bool) {
	if n.known || n.Away != "" || len(n.Reported.Nodes) == 0 || n.LacksDriver(n.name) {
		return say.No()
	}
	return say.Wrong("NodeNotConnected", fmt.Sprintf("The controller has not heard of the driver on node %s.", n.name),
		logs(n.Facts, n.name)...)
}

// logs are what says why a node does not connect.
func logs(f facts.Facts, name string) (next []string) {
	for _, p := range f.DriverPods {
		if p.Spec.NodeName == name {
			next = append(next, fmt.Sprintf("kubectl logs %s -n %s -c driver --since 10m", p.Name, p.Namespace))
		}
	}
	return append(next, "docs/how-to/troubleshoot.md#a-node-is-not-connected")
}

// skewed is for a driver of another version than the controller's: the rollout may not be finished.
func (n node) skewed() (say.Answer, bool) {
	if n.is.Version == "" || n.is.Version == n.Reported.Version {
		return say.No()
	}
	return say.Fine("OtherVersion", fmt.Sprintf("Its driver is %s, and the controller %s.", n.is.Version,
		n.Reported.Version), "Wait for the rollout: kubectl rollout status daemonset -n "+n.Controller.Namespace+
		" -l app.kubernetes.io/component=csi-driver")
}
