package explain

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/names"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/bytesize"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/persistentvolume"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/kubectl-hpp/internal/diagnosis"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/kubectl-hpp/internal/facts"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/kubectl-hpp/internal/say"
)

// fullPercent is how much of its size a volume may use before it counts as full.
const fullPercent = 95

// volume is a PersistentVolume of the driver, and what was read about it.
type volume struct {
	facts.Facts
	nodeapi.PersistentVolume
	pv     *corev1.PersistentVolume
	claim  *claim // nil where it has none, or none could be read
	node   string // where it is; of a pool that all nodes share, one that has it
	on     nodeapi.NodeStatus
	in     nodeapi.PoolStatus
	listed nodeapi.VolumeStatus // with ID "" where it is not listed
	told   []corev1.Event
}

// Volume explains a PersistentVolume of the driver.
func Volume(f facts.Facts, pv *corev1.PersistentVolume) say.Answer {
	of := pv.Spec.ClaimRef
	for i := range f.Claims {
		c := &f.Claims[i]
		if of != nil && c.Namespace == of.Namespace && c.Name == of.Name && (of.UID == "" || c.UID == of.UID) {
			owner := newClaim(f, c)
			return explainVolume(f, pv, &owner)
		}
	}
	return explainVolume(f, pv, nil)
}

func explainVolume(f facts.Facts, pv *corev1.PersistentVolume, owner *claim) say.Answer {
	v := newVolume(f, pv, owner)
	answers := say.Each(v, volume.leaving, volume.let, volume.gone, volume.driverless, volume.away, volume.absent,
		volume.lost, volume.missing, volume.moved, volume.hanging, volume.readOnly, volume.unreleased, volume.failed,
		volume.retained, volume.available, volume.notGrown, volume.full, volume.notEnforced, volume.copies)
	if answer, _ := say.Join(answers); answer.Wrong {
		return answer
	}
	return v.well(answers)
}

func newVolume(f facts.Facts, pv *corev1.PersistentVolume, owner *claim) volume {
	v := volume{
		Facts: f, pv: pv, claim: owner, told: f.About("PersistentVolume", pv),
		PersistentVolume: persistentvolume.Describe(pv, f.Controller.Driver, f.Controller.TopologyKey),
	}
	if len(v.Nodes) > 0 {
		v.node = v.Nodes[0]
	}
	for _, n := range f.Reported.Nodes {
		if in := facts.Pool(n, v.Pool); n.Name == v.node || v.node == "" && in.Served() {
			v.on, v.node, v.in = n, n.Name, in
		}
	}
	for _, listed := range f.Listed {
		if listed.ID == v.Handle && !diagnosis.Orphaned(listed) {
			v.listed = listed
		}
	}
	if v.in.Name == "" && v.listed.Node == v.node { // the pool was renamed
		v.in = facts.Pool(v.on, v.listed.Pool)
		v.Pool = cmp.Or(v.in.Name, v.Pool)
	}
	return v
}

// is begins a sentence about the volume.
func (v volume) is() string { return string(cmp.Or(v.pv.Status.Phase, corev1.VolumePending)) }

// giveUp is how the data of a volume is given up whose node does not come back.
func (v volume) giveUp() []string {
	next := []string{
		fmt.Sprintf("If its data is lost: kubectl annotate pv %s %s=%s", v.Name,
			names.ReleaseVolume(v.Controller.Driver), v.node),
	}
	if v.claim != nil {
		next = append(next, "  and then: "+v.claim.typed("delete", ""))
	}
	return next
}

// let is for a volume that an administrator has given up.
func (v volume) let() (say.Answer, bool) {
	if v.Released == "" || v.Released != v.node {
		return say.No()
	}
	return say.Fine("GivenUp", fmt.Sprintf("%s: it was given up on node %s, and goes with its claim.", v.is(), v.node))
}

func (v volume) gone() (say.Answer, bool) {
	if len(v.Nodes) == 0 || v.Facts.Nodes == nil || v.Object(v.node) != nil {
		return say.No()
	}
	return say.Wrong("NodeGone", fmt.Sprintf("%s to node %s, which is gone.", v.is(), v.node), append([]string{
		"If the node has another name now: docs/how-to/move-a-disk.md",
	}, v.giveUp()...)...)
}

func (v volume) driverless() (say.Answer, bool) {
	if len(v.Nodes) == 0 || v.Object(v.node) == nil || !v.LacksDriver(v.node) {
		return say.No()
	}
	return say.Wrong("DriverMissing", fmt.Sprintf("%s on node %s, where the kubelet does not know the driver: no pod "+
		"can mount it there.", v.is(), v.node), "kubectl hpp explain node "+v.node)
}

func (v volume) away() (say.Answer, bool) {
	if v.Away != "" {
		return say.Wrong("ControllerAway", fmt.Sprintf("%s, and the controller cannot be asked how it is: %s.", v.is(),
			v.Away), "kubectl hpp doctor")
	}
	if v.on.Name == "" || v.on.State == facts.Connected {
		return say.No()
	}
	return say.Wrong("NodeNotConnected", fmt.Sprintf("%s on node %s, which is not connected%s. Running pods keep the "+
		"volume, but it cannot be grown or deleted.", v.is(), v.node, v.Since(v.on.Seen)),
		append([]string{"kubectl hpp explain node " + v.node}, v.giveUp()...)...)
}

func (v volume) absent() (say.Answer, bool) {
	switch {
	case v.on.State != facts.Connected || v.in.Served():
		return say.No()
	case v.in.Name == "":
		return say.Wrong("PoolAbsent", fmt.Sprintf("%s in pool %s, which node %s does not have.", v.is(), v.Pool,
			v.node), fmt.Sprintf("If it is gone for good: kubectl hpp pool forget %s --node %s", v.Pool, v.node))
	}
	return say.Wrong("PoolAbsent", fmt.Sprintf("%s in pool %s, which is %s on node %s: %s.", v.is(), v.Pool, v.in.State,
		v.node, strings.TrimSuffix(cmp.Or(v.in.Message, v.in.Reason, "it does not say why"),
			".")), diagnosis.MendPool(v.node, v.in)...)
}

// warned reports whether the pool warns of this volume.
func (v volume) warned(reason string) bool { return facts.Warned(v.in, v.Handle, reason) }

func (v volume) lost() (say.Answer, bool) {
	switch {
	case v.warned(nodeapi.WarningVolumeLost):
		return say.Wrong("VolumeLost", fmt.Sprintf("%s, but its directory is gone from pool %s on node %s: pods do "+
			"not start.", v.is(), v.Pool, v.node), fmt.Sprintf("Put it back, or restore it from a backup, at "+
			"%s/csi/%s on node %s.", v.in.Path, v.Handle, v.node), "Or give the data up: delete the claim.")
	case v.warned(nodeapi.WarningVolumeRefused):
		return say.Wrong("VolumeRefused", fmt.Sprintf("%s, but its record or directory in pool %s on node %s cannot "+
			"be used.", v.is(), v.Pool, v.node), "docs/runbooks/HostpathVolumesRefused.md")
	}
	return say.No()
}

func (v volume) missing() (say.Answer, bool) {
	if v.listed.State != "not found" && !v.warned(nodeapi.WarningVolumesMissing) {
		return say.No()
	}
	return say.Wrong("VolumeMissing", fmt.Sprintf("%s, but pool %s on node %s has no volume %s.", v.is(), v.Pool,
		v.node, v.Handle), "If it is on another disk: mount that where the pool's was.",
		"If it is in the trash: kubectl hpp get trash", "If it is lost: delete the claim.")
}

func (v volume) moved() (say.Answer, bool) {
	if v.listed.State != nodeapi.MovingAway {
		return say.No()
	}
	return say.Fine("Moving", fmt.Sprintf("%s, and it is being moved from node %s to another one; its pods wait for "+
		"the end.", v.is(), v.node), "Until its data is copied, kubectl hpp move CLAIM --abort has it stay.")
}

func (v volume) hanging() (say.Answer, bool) {
	if v.in.Name == "" || !facts.Hangs(v.on, v.in) {
		return say.No()
	}
	return say.Wrong("PoolHangs", fmt.Sprintf("%s, but the disk of pool %s on node %s has not answered%s.", v.is(),
		v.Pool, v.node, v.Since(v.in.Seen)), "docs/runbooks/HostpathPoolHangs.md: see the node's kernel log.")
}

func (v volume) readOnly() (say.Answer, bool) {
	if !v.in.ReadOnly {
		return say.No()
	}
	return say.Wrong("PoolReadOnly", fmt.Sprintf("%s, but pool %s on node %s is read-only.", v.is(), v.Pool, v.node),
		"See the node's kernel log: docs/runbooks/HostpathPoolReadOnly.md")
}

// well says what a volume is that nothing is wrong with, and what else is known of it.
func (v volume) well(also []say.Answer) say.Answer {
	// One of these says it all.
	if len(also) > 0 && slices.Contains([]string{"Available", "Retained", "Deleting", "GivenUp"}, also[0].Reason) {
		a, _ := say.Join(also)
		return a
	}
	return say.Answer{Reason: "Well", Message: v.describe(), Also: also}
}

func (v volume) describe() string {
	text := fmt.Sprintf("%s and well: %s", v.is(), bytesize.Format(v.Bytes))
	if v.Pool != "" {
		text += " in pool " + v.Pool
	}
	if v.node != "" {
		text += " on node " + v.node
	}
	if used := v.listed.Used; v.listed.ID != "" && used >= 0 && v.Bytes > 0 {
		text += fmt.Sprintf(", %s used (%d%%)", bytesize.Format(used), used*100/v.Bytes)
	}
	switch enforcement := v.listed.Enforcement; enforcement {
	case "":
	case "none":
		text += ", not held to its size"
	default:
		text += fmt.Sprintf(", held to its size by %s (%s)", cmp.Or(v.in.Backend, "quota"), enforcement)
	}
	if v.claim == nil {
		return text + "."
	}
	if len(v.claim.users) == 0 {
		return text + "; no pod uses it."
	}
	return text + "; used by pod " + v.claim.usedBy() + "."
}
