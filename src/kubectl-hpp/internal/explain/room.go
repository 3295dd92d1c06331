package explain

import (
	"fmt"
	"slices"
	"strings"

	storagev1 "k8s.io/api/storage/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/bytesize"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/kubectl-hpp/internal/facts"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/kubectl-hpp/internal/room"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/kubectl-hpp/internal/say"
)

// in names the pools of a claim.
func (c claim) in() string { return strings.Join(c.pools, " or ") }

// driverless is for a driver that no kubelet knows.
func (c claim) driverless() (say.Answer, bool) {
	if len(c.CSINodes) == 0 || slices.ContainsFunc(c.CSINodes,
		func(n storagev1.CSINode) bool { return !c.LacksDriver(n.Name) }) {
		return say.No()
	}
	return say.Wrong("DriverNowhere", fmt.Sprintf("Pending: no node's kubelet knows the driver %s.",
		c.Controller.Driver), "kubectl hpp doctor")
}

// chosenAway is for a claim whose node was chosen, and cannot make the volume.
func (c claim) chosenAway() (say.Answer, bool) {
	name := c.Annotations[facts.SelectedNode]
	if name == "" {
		return say.No()
	}
	n, known := c.Node(name)
	switch {
	case len(c.Nodes) > 0 && c.Object(name) == nil:
		return say.Wrong("NodeGone", fmt.Sprintf("Pending: node %s was chosen for it, and is gone.", name),
			"Let another be chosen: "+c.typed("annotate", facts.SelectedNode+"-"))
	case c.LacksDriver(name):
		return say.Wrong("DriverMissing", fmt.Sprintf("Pending: node %s was chosen for it, and the driver is not "+
			"there.", name), "kubectl hpp explain node "+name)
	case known && n.State != facts.Connected:
		return say.Wrong("NodeNotConnected", fmt.Sprintf("Pending: node %s was chosen for it, and is not connected%s; "+
			"after a minute (controller.nodeGrace) another is chosen, unless it is a copy.", name, c.Since(n.Seen)),
			"kubectl hpp explain node "+name)
	}
	return say.No()
}

// tooLarge is for a claim that no pool could ever have.
func (c claim) tooLarge() (say.Answer, bool) {
	most := room.Place{}
	for _, p := range c.places {
		if p.Whole > most.Whole {
			most = p
		}
	}
	if most.Whole == 0 || c.bytes <= most.Whole {
		return say.No()
	}
	return say.Wrong("ClaimTooLarge", fmt.Sprintf("Pending: it asks for %s, and no node could ever have that in pool "+
		"%s: the largest is %s, on node %s.", c.wants(), c.in(), bytesize.Format(most.Whole), most.Node),
		fmt.Sprintf("Delete the claim and make it anew with less: %s", c.typed("delete", "")),
		"Or make the pool larger.")
}

// noRoom is for a claim that no node has the room for now.
func (c claim) noRoom() (say.Answer, bool) {
	fits := func(p room.Place) bool { return p.Left >= c.bytes && p.Why == "" }
	if len(c.places) == 0 || slices.ContainsFunc(c.places, fits) {
		return say.No()
	}
	a := say.Answer{
		Reason: "NoRoom", Wrong: true, Rows: room.Rows(c.places),
		Message: fmt.Sprintf("Pending: no node has %s in pool %s.", c.wants(), c.in()),
	}
	usable := func(p room.Place) bool { return p.Left > 0 || p.Pool != "" }
	full := func(p room.Place) bool { return strings.HasPrefix(p.Why, "no room") }
	switch {
	case slices.ContainsFunc(c.places, func(p room.Place) bool { return p.Left >= c.bytes }):
		a.Reason, a.Message = "NodesUnfit", fmt.Sprintf("Pending: no node that takes pods has %s in pool %s.",
			c.wants(), c.in())
		a.Next = append(a.Next, "Let a node with room take pods again: kubectl uncordon NODE")
	case !slices.ContainsFunc(c.places, usable) && !slices.ContainsFunc(c.places, full):
		a.Reason, a.Message = "PoolMissing", fmt.Sprintf("Pending: pool %s can be used on no node.", c.in())
		a.Next = append(a.Next, "See what each needs: kubectl hpp explain node NODE")
		return a, true
	}
	if c.Unmeasured(c.pools[0]) {
		a.Next = append(a.Next, "See what volumes take, which no quota counts: kubectl hpp measure --pool "+c.pools[0])
	}
	a.Next = append(a.Next, "Make room: kubectl hpp get volumes -A --pool "+c.pools[0]+" --sort use")
	if deleted := c.Trashed(c.pools); deleted > 0 {
		a.Next = append(a.Next, fmt.Sprintf("%d deleted volumes are kept in its trash: kubectl hpp get trash", deleted))
	}
	a.Next = append(a.Next, "Or delete the claim and make it anew with less: "+c.typed("delete", ""))
	return a, true
}

// unscheduled is for a claim that waits for a pod which waits for something else.
func (c claim) unscheduled() (say.Answer, bool) {
	for _, pod := range c.users {
		if said := facts.Unschedulable(pod); said != "" {
			return say.Wrong("PodUnschedulable", fmt.Sprintf("Pending: its volume is made when pod %s has a node, "+
				"and the scheduler finds none: %s", pod.Name, said), fmt.Sprintf("kubectl describe pod %s -n %s",
				pod.Name, pod.Namespace))
		}
	}
	return say.No()
}

// refused is for a claim whose volume was refused, for a reason that is not known here.
func (c claim) refused() (say.Answer, bool) {
	said := c.Refusal(c.told)
	if said == "" {
		return say.No()
	}
	return say.Wrong("Refused", "Pending: the volume was refused: "+facts.WithoutCode(said),
		"docs/reference/errors.md says what each message means.", c.typed("describe", ""))
}
