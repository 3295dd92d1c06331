package explain

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/bytesize"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
)

// node is a node, and what was read about it.
type node struct {
	Facts
	name   string
	object *corev1.Node // nil where it is gone
	is     nodeapi.NodeStatus
	known  bool // to the controller
}

// Node explains a node, for its name.
func Node(f Facts, name string) Answer {
	n := node{Facts: f, name: name, object: f.object(name)}
	n.is, n.known = f.node(name)
	answer, wrong := all(n, node.gone, node.down, node.driverless, node.unserved, node.away, node.skewed)
	for _, p := range n.is.Pools {
		for _, about := range poolAnswers(n.is, p) {
			if wrong {
				answer.Also = append(answer.Also, about)
			} else {
				answer, wrong = about, true
			}
		}
	}
	if !wrong {
		answer = Answer{Reason: "Well", Message: fmt.Sprintf("Node %s is well.", name)}
		if n.object != nil && n.object.Spec.Unschedulable {
			answer.Reason, answer.Message = "Cordoned", fmt.Sprintf("Node %s is well, and cordoned: no new pods, "+
				"and no new "+
				"volumes for them.", name)
		}
	}
	if n.known && n.is.State == connected {
		answer.Rows = append(answer.Rows, poolRows(n.is)...)
	}
	return answer
}

// poolRows show the pools of a node.
func poolRows(n nodeapi.NodeStatus) (all [][2]string) {
	for _, p := range n.Pools {
		is := p.State
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

func (n node) gone() (Answer, bool) {
	if n.object != nil || len(n.Nodes) == 0 {
		return no()
	}
	lost := 0
	for _, v := range n.Listed {
		if v.Node == n.name && v.PV != "" {
			lost++
		}
	}
	return trouble("NodeGone", fmt.Sprintf("There is no node %s any more; PersistentVolumes that name it: %d.",
		n.name, lost),
		"If it does not come back, delete the claims of what is lost: kubectl hpp get volumes --node "+n.name,
		"docs/how-to/lose-a-node.md#the-node-is-gone")
}

func (n node) down() (Answer, bool) {
	if n.object == nil || Ready(n.object) {
		return no()
	}
	return trouble("NodeNotReady", fmt.Sprintf("Node %s is not ready: its kubelet does not answer, or says so.",
		n.name),
		"kubectl describe node "+n.name, "docs/how-to/lose-a-node.md#the-node-is-away")
}

// driverless is for a node whose kubelet does not know the driver: why, its pod says.
func (n node) driverless() (Answer, bool) {
	if n.object == nil || !n.lacksDriver(n.name) {
		return no()
	}
	where := "-n " + n.Controller.Namespace
	i := slices.IndexFunc(n.DriverPods, func(p corev1.Pod) bool { return p.Spec.NodeName == n.name })
	if i < 0 {
		return trouble("DriverMissing", fmt.Sprintf("Node %s has no pod of the driver, so that no volume is made or "+
			"mounted "+
			"there.", n.name), "If it should have one, see the chart's driver.nodeSelector and driver.tolerations: "+
			"kubectl describe daemonset -A -l app.kubernetes.io/component=csi-driver")
	}
	p := n.DriverPods[i]
	if !PodReady(p) {
		return trouble("DriverNotReady", fmt.Sprintf("The driver's pod %s on node %s is not ready%s.", p.Name, n.name,
			WaitingFor(p)), fmt.Sprintf("kubectl describe pod %s %s", p.Name, where),
			fmt.Sprintf("kubectl logs %s %s -c driver", p.Name, where))
	}
	return trouble("NotRegistered", fmt.Sprintf("The driver's pod %s on node %s is ready, and the kubelet does not "+
		"know it: "+
		"its directory is another than the chart's value kubeletDir.", p.Name, n.name),
		"Set kubeletDir to the kubelet's --root-dir, such as /var/lib/k0s/kubelet or "+
			"/var/snap/microk8s/common/var/lib/"+
			"kubelet, and upgrade the release.")
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

func (n node) unserved() (Answer, bool) {
	if n.Away == "" {
		return no()
	}
	return trouble("ControllerAway", fmt.Sprintf("The controller cannot be asked about it: %s.", n.Away),
		"kubectl hpp doctor")
}

func (n node) away() (Answer, bool) {
	switch {
	case n.known && n.is.State == connected, n.Away != "", len(n.Reported.Nodes) == 0, n.lacksDriver(n.name):
		return no()
	case !n.known:
		return trouble("NodeNotConnected", fmt.Sprintf("The controller has not heard of the driver on node %s.",
			n.name),
			n.logs()...)
	}
	volumes := 0
	for _, v := range n.Listed {
		if v.Node == n.name {
			volumes++
		}
	}
	return trouble("NodeNotConnected", fmt.Sprintf("Node %s has not been connected to the controller%s; volumes "+
		"there: "+
		"%d. Pods keep them, but none is made, grown or deleted.", n.name, n.since(n.is.Seen), volumes), n.logs()...)
}

// logs are what says why a node does not connect.
func (n node) logs() (next []string) {
	for _, p := range n.DriverPods {
		if p.Spec.NodeName == n.name {
			next = append(next, fmt.Sprintf("kubectl logs %s -n %s -c driver --since 10m", p.Name, p.Namespace))
		}
	}
	return append(next, "docs/how-to/troubleshoot.md#a-node-is-not-connected")
}

// skewed is for a driver of another version than the controller's: the rollout may not be finished.
func (n node) skewed() (Answer, bool) {
	if n.is.Version == "" || n.is.Version == n.Reported.Version {
		return no()
	}
	return normal("OtherVersion", fmt.Sprintf("Its driver is %s, and the controller %s.", n.is.Version,
		n.Reported.Version), "Wait for the rollout: kubectl rollout status daemonset -n "+n.Controller.Namespace+
		" -l app.kubernetes.io/component=csi-driver")
}

// poolAnswers are what is wrong with a pool of a connected node, the gravest first.
func poolAnswers(n nodeapi.NodeStatus, p nodeapi.PoolStatus) (all []Answer) {
	add := func(reason, message string, next ...string) {
		a, _ := trouble(reason, fmt.Sprintf("Pool %s: %s", p.Name, message), next...)
		all = append(all, a)
	}
	switch {
	case n.State != connected, p.State == nodeapi.StateNotSelected:
		return nil
	case !p.Served():
		add("PoolAbsent", "absent: "+cmp.Or(p.Message, p.Reason, "it does not say why")+".", MendPool(n.Name, p)...)
		return all
	case Hangs(n, p):
		add("PoolHangs", "its disk does not answer; its figures are old.", "docs/runbooks/HostpathPoolHangs.md")
	case p.ReadOnly:
		add("PoolReadOnly", "its filesystem is read-only.", "docs/runbooks/HostpathPoolReadOnly.md")
	case p.EnforcementLost:
		add("EnforcementLost", "nothing holds volumes to their sizes any more: "+p.EnforcementReason)
	case p.Reason == nodeapi.ReasonNoNewVolumes:
		add("NoNewVolumes", p.Message)
	case p.State == nodeapi.StateNotConfigured:
		a, _ := normal("NotConfigured", fmt.Sprintf("Pool %s: it left the configuration; what it has is served.",
			p.Name),
			fmt.Sprintf("Once it is empty and its disk is gone: kubectl hpp pool forget %s --node %s", p.Name, n.Name))
		all = append(all, a)
	}
	for _, w := range p.Warnings {
		if w.Reason != nodeapi.WarningQuotaChanged {
			add(w.Reason, w.Message, "docs/reference/events.md has what to do about "+w.Reason+".")
		}
	}
	return all
}
