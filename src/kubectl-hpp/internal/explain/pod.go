package explain

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/kubectl-hpp/internal/facts"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/kubectl-hpp/internal/room"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/kubectl-hpp/internal/say"
)

// pod is a pod, and what was read about it and its claims.
type pod struct {
	facts.Facts
	*corev1.Pod
	told   []corev1.Event
	claims []corev1.PersistentVolumeClaim // those that are there
	absent []string                       // claims that are not
	nodes  map[string]string              // of its bound claims of the driver: where they are
}

// Pod explains a pod, and each of its claims.
func Pod(f facts.Facts, object *corev1.Pod) say.Answer {
	p := pod{Facts: f, Pod: object, told: f.About("Pod", object), nodes: map[string]string{}}
	for _, name := range facts.ClaimsOf(*object) {
		i := slices.IndexFunc(f.Claims, func(c corev1.PersistentVolumeClaim) bool {
			return c.Namespace == object.Namespace && c.Name == name
		})
		if i < 0 {
			p.absent = append(p.absent, name)
			continue
		}
		p.claims = append(p.claims, f.Claims[i])
		if node := f.NodeOf(f.Claims[i]); node != "" {
			p.nodes[name] = node
		}
	}
	answer, known := say.First(p, pod.ended, pod.claimless, pod.apart, pod.stuck, pod.unscheduled, pod.driverless,
		pod.unmounted, pod.running)
	if !known {
		answer = unknown(f, string(object.Status.Phase), p.told)
	}
	for i := range p.claims {
		about := Claim(f, &p.claims[i])
		if about.Reason == "OtherDriver" {
			continue
		}
		about.About = "claim " + p.claims[i].Name
		answer.Also = append(answer.Also, append([]say.Answer{about}, about.Also...)...)
		answer.Also[len(answer.Also)-1-len(about.Also)].Also = nil
	}
	answer = p.claimFirst(answer)
	if len(answer.Also) == 0 && len(p.absent) == 0 && !p.Inline(*p.Pod) {
		answer.Message += " It uses no volume of " + f.Controller.Driver + "."
	}
	return answer
}

// claimFirst puts what is wrong with a claim before what the scheduler says of it.
func (p pod) claimFirst(a say.Answer) say.Answer {
	i := slices.IndexFunc(a.Also, func(about say.Answer) bool { return about.Wrong })
	if i < 0 || a.Reason != "Unschedulable" && a.Reason != "Unknown" {
		return a
	}
	others := slices.Delete(slices.Clone(a.Also), i, i+1)
	claim := a.Also[i]
	a.Also, a.About = nil, "pod "+p.Name
	claim.Also = append([]say.Answer{a}, others...)
	return claim
}

func (p pod) ended() (say.Answer, bool) {
	switch {
	case p.DeletionTimestamp != nil && p.Spec.NodeName != "":
		why := room.Unfit(p.Facts, p.Spec.NodeName)
		if why != "not ready" && why != "it is no node of the cluster any more" {
			return say.No()
		}
		return say.Wrong("NodeDown", fmt.Sprintf("It is being deleted, and its node %s cannot say that it has ended: "+
			"%s.", p.Spec.NodeName, why), "If the machine is off, and only then: kubectl taint nodes "+p.Spec.NodeName+
			" node.kubernetes.io/out-of-service=nodeshutdown:NoExecute", "docs/how-to/lose-a-node.md")
	case p.Status.Phase == corev1.PodSucceeded:
		return say.Fine("Ended", "Succeeded: it has ended.")
	case p.Status.Phase == corev1.PodFailed:
		why := strings.Trim(p.Status.Reason+": "+p.Status.Message, ".: ")
		return say.Wrong("Failed", "Failed: it has ended: "+cmp.Or(why, "a container has failed")+".",
			p.describe(), fmt.Sprintf("kubectl logs %s -n %s --all-containers", p.Name, p.Namespace))
	case p.Status.Phase == corev1.PodUnknown:
		return say.Wrong("NodeSilent", fmt.Sprintf("Unknown: its node %s does not say how it is.", p.Spec.NodeName),
			"kubectl hpp explain node "+p.Spec.NodeName, p.describe())
	}
	return say.No()
}

func (p pod) describe() string {
	return fmt.Sprintf("kubectl describe pod %s -n %s", p.Name, p.Namespace)
}

// claimless is for a pod that names claims which are not there.
func (p pod) claimless() (say.Answer, bool) {
	if len(p.absent) == 0 || len(p.Facts.Claims) == 0 && len(p.Missing) > 0 {
		return say.No()
	}
	return say.Wrong("ClaimMissing", fmt.Sprintf("%s: there is no claim %s in namespace %s.", p.Status.Phase,
		strings.Join(p.absent, ", "), p.Namespace), "Make it, or see whether its volume was deleted: kubectl hpp "+
		"get trash")
}

// apart is for a pod whose volumes are on several nodes.
func (p pod) apart() (say.Answer, bool) {
	a := say.Answer{Reason: "TwoNodes", Wrong: true}
	seen := []string{}
	for _, c := range p.claims {
		if node := p.nodes[c.Name]; node != "" {
			a.Rows = append(a.Rows, [2]string{c.Name, "on node " + node})
			if !slices.Contains(seen, node) {
				seen = append(seen, node)
			}
		}
	}
	if len(seen) < 2 {
		return say.No()
	}
	a.Message = fmt.Sprintf("%s: its volumes are on %d nodes, so that no node can run it.", p.Status.Phase, len(seen))
	a.Next = []string{fmt.Sprintf("Move one to the node of the others: kubectl hpp move CLAIM -n %s --to NODE",
		p.Namespace)}
	return a, true
}

// stuck is for a pod that can only run where its volume is, and cannot.
func (p pod) stuck() (say.Answer, bool) {
	if p.Spec.NodeName != "" {
		return say.No()
	}
	for _, c := range p.claims {
		node := p.nodes[c.Name]
		if node == "" {
			continue
		}
		where := fmt.Sprintf("%s: the volume of claim %s is on node %s, ", p.Status.Phase, c.Name, node)
		move := fmt.Sprintf("Or move the volume: kubectl hpp move %s -n %s --to NODE", c.Name, c.Namespace)
		switch why := room.Unfit(p.Facts, node); {
		case why == "":
		case why == "cordoned":
			return say.Wrong("NodeCordoned", where+"which is cordoned.", "kubectl uncordon "+node, move)
		case why == "not ready":
			return say.Wrong("NodeNotReady", where+"which is not ready.", "kubectl hpp explain node "+node)
		default:
			return say.Wrong("NodeGone", where+"which is gone.", "docs/how-to/lose-a-node.md#the-node-is-gone")
		}
		if said := facts.Unschedulable(*p.Pod); said != "" {
			return say.Wrong("NodeFull", where+"and the scheduler does not put the pod there: "+said,
				"kubectl describe node "+node, move)
		}
	}
	return say.No()
}

func (p pod) unscheduled() (say.Answer, bool) {
	said := facts.Unschedulable(*p.Pod)
	if said == "" {
		return say.No()
	}
	return say.Wrong("Unschedulable", "Pending: the scheduler finds no node for it: "+said,
		p.describe())
}

// waits reports whether the pod has a node, and its containers do not run yet.
func (p pod) waits() bool { return p.Spec.NodeName != "" && p.Status.Phase == corev1.PodPending }

func (p pod) driverless() (say.Answer, bool) {
	if !p.waits() || !p.LacksDriver(p.Spec.NodeName) || len(p.nodes) == 0 && !p.Inline(*p.Pod) {
		return say.No()
	}
	return say.Wrong("DriverMissing", fmt.Sprintf("Pending: the kubelet of its node %s does not know the driver, "+
		"which mounts its volumes.", p.Spec.NodeName), "kubectl hpp explain node "+p.Spec.NodeName)
}

// unmounted is for a pod whose volumes cannot be mounted.
func (p pod) unmounted() (say.Answer, bool) {
	said := facts.LastOf(p.told, "FailedMount", "FailedAttachVolume")
	if !p.waits() || said == "" {
		return say.No()
	}
	if strings.Contains(said, "being moved") {
		return say.Fine("Moving", "Pending: it waits until its volume has moved: "+facts.WithoutCode(said))
	}
	return say.Wrong("NotMounted", fmt.Sprintf("Pending: node %s cannot mount its volumes: %s", p.Spec.NodeName,
		facts.WithoutCode(said)), "docs/reference/errors.md says what each message means.",
		"kubectl hpp explain node "+p.Spec.NodeName)
}

func (p pod) running() (say.Answer, bool) {
	if p.Status.Phase != corev1.PodRunning {
		return say.No()
	}
	return say.Fine("Running", fmt.Sprintf("It runs on node %s.", p.Spec.NodeName))
}
