package explain

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/bytesize"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/kubectl-hpp/internal/diagnosis"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/kubectl-hpp/internal/facts"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/kubectl-hpp/internal/say"
)

func (v volume) keeps() bool {
	return v.pv.Spec.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimRetain
}

// reclaim is the command that changes what becomes of the volume when its claim is gone.
func (v volume) reclaim(policy corev1.PersistentVolumeReclaimPolicy) string {
	return fmt.Sprintf(`kubectl patch pv %s -p '{"spec":{"persistentVolumeReclaimPolicy":%q}}'`, v.Name, policy)
}

// leaving is for a volume whose claim is being deleted: the last moment at which its data can be kept.
func (v volume) leaving() (say.Answer, bool) {
	if v.claim == nil || v.claim.DeletionTimestamp == nil || v.pv.Status.Phase != corev1.VolumeBound {
		return say.No()
	}
	message := "Bound, but its claim is being deleted, and goes once these finalizers are gone: " +
		strings.Join(v.claim.Finalizers, ", ")
	if len(v.claim.users) > 0 {
		message = "Bound, but its claim is being deleted, and goes once pod " + v.claim.usedBy() + " is gone"
	}
	if v.keeps() {
		return say.Fine("Deleting", message+". Its reclaim policy Retain keeps the volume.",
			"kubectl hpp explain pv "+v.Name)
	}
	return say.Wrong("Deleting", message+". The volume goes with it, and its data.",
		"To keep the data: "+v.reclaim(corev1.PersistentVolumeReclaimRetain))
}

// unreleased is for a volume that is to be deleted, and is not yet.
func (v volume) unreleased() (say.Answer, bool) {
	if v.pv.Status.Phase != corev1.VolumeReleased || v.keeps() {
		return say.No()
	}
	said := facts.LastOf(v.told, "VolumeFailedDelete")
	if said == "" {
		return say.Fine("Deleting", "Released: its claim is gone, and the volume is being deleted.")
	}
	return say.Wrong("DeleteFails",
		"Released: its claim is gone, and the volume cannot be deleted: "+facts.WithoutCode(said),
		append([]string{"kubectl hpp explain node " + v.node}, v.giveUp()...)...)
}

func (v volume) failed() (say.Answer, bool) {
	if v.pv.Status.Phase != corev1.VolumeFailed {
		return say.No()
	}
	said := strings.TrimSuffix(v.pv.Status.Message, ".")
	return say.Wrong("Failed", fmt.Sprintf("Failed: its claim is gone, and deleting the volume failed: %s. It is "+
		"tried again.", facts.WithoutCode(said)), v.giveUp()...)
}

// retained is for a volume that outlives its claim.
func (v volume) retained() (say.Answer, bool) {
	if v.pv.Status.Phase != corev1.VolumeReleased || !v.keeps() {
		return say.No()
	}
	return say.Fine("Retained", fmt.Sprintf("Released: its claim %s is gone, and its reclaim policy Retain keeps the "+
		"volume: %s in pool %s on node %s.", v.Claim, bytesize.Format(v.Bytes), v.Pool, v.node),
		fmt.Sprintf(`For a claim of that name again: kubectl patch pv %s --type merge -p `+
			`'{"spec":{"claimRef":{"uid":null,"resourceVersion":null}}}'`, v.Name),
		"For another claim: docs/how-to/reuse-a-retained-volume.md",
		"To delete it, data and all: "+v.reclaim(corev1.PersistentVolumeReclaimDelete))
}

func (v volume) available() (say.Answer, bool) {
	if v.pv.Status.Phase != corev1.VolumeAvailable {
		return say.No()
	}
	return say.Fine("Available", fmt.Sprintf("Available: no claim has it: %s in pool %s on node %s.",
		bytesize.Format(v.Bytes), v.Pool, v.node),
		fmt.Sprintf("Make a claim with volumeName: %s and storageClassName: %q", v.Name, v.pv.Spec.StorageClassName))
}

// notGrown is for a claim that asks for more than its volume has.
func (v volume) notGrown() (say.Answer, bool) {
	if v.claim == nil || v.claim.bytes <= v.Bytes {
		return say.No()
	}
	what := fmt.Sprintf("it asks for %s and has %s", v.claim.wants(), bytesize.Format(v.Bytes))
	if said := facts.LastOf(v.claim.told, "VolumeResizeFailed"); said != "" {
		next := []string{"Make room in the pool: kubectl hpp get volumes -A --node " + v.node + " --pool " + v.Pool}
		if left := v.Bytes + v.in.Allocatable; v.in.Allocatable > 0 && left < v.claim.bytes {
			next = append(next, fmt.Sprintf("Or ask for no more than %s: %s", bytesize.Format(left), v.grow(left)))
		}
		return say.Wrong("NotGrown", "Bound, but "+what+": "+facts.WithoutCode(said), next...)
	}
	return say.Fine("Growing", "Bound, and "+what+": it is being grown.", v.claim.typed("describe", ""))
}

// grow is the command that asks for a size.
func (v volume) grow(bytes int64) string {
	const mebi, gibi = 1 << 20, 1 << 30
	size := fmt.Sprintf("%dMi", bytes/mebi)
	if bytes >= 10*gibi {
		size = fmt.Sprintf("%dGi", bytes/gibi)
	}
	return v.claim.typed("patch", fmt.Sprintf(`-p '{"spec": {"resources": {"requests": {"storage": %q}}}}'`, size))
}

// full is for a volume that pods will soon find full.
func (v volume) full() (say.Answer, bool) {
	used := v.listed.Used
	if v.listed.ID == "" || v.listed.Enforcement == "none" || v.Bytes <= 0 || used < v.Bytes/100*fullPercent {
		return say.No()
	}
	message := fmt.Sprintf("Full: %s of %s are used (%d%%).", bytesize.Format(used), bytesize.Format(v.Bytes),
		used*100/v.Bytes)
	switch {
	case v.claim == nil:
		return say.Wrong("Full", message)
	case !facts.Expands(v.claim.class):
		return say.Wrong("Full", message, fmt.Sprintf("Let its class grow volumes: kubectl patch storageclass %s -p "+
			`'{"allowVolumeExpansion": true}'`, v.claim.class.Name), "Then: "+v.grow(v.Bytes/2*3))
	case v.in.Name != "" && v.in.Allocatable <= 0:
		return say.Wrong("Full", message+fmt.Sprintf(" Pool %s on node %s may have no room to grow it.", v.Pool,
			v.node), "Try: "+v.grow(v.Bytes/2*3),
			"Or make room: kubectl hpp get volumes -A --node "+v.node+" --pool "+v.Pool,
			fmt.Sprintf("Or move it: kubectl hpp move %s -n %s --to NODE", v.claim.Name, v.claim.Namespace))
	case v.in.Name != "" && v.in.Allocatable < v.Bytes/2:
		return say.Wrong("Full", message, fmt.Sprintf("Grow it by what is left, %s: %s",
			bytesize.Format(v.in.Allocatable), v.grow(v.Bytes+v.in.Allocatable)))
	}
	return say.Wrong("Full", message, "Grow it: "+v.grow(v.Bytes/2*3))
}

// notEnforced is for a volume that should be held to its size, and is not.
func (v volume) notEnforced() (say.Answer, bool) {
	if !v.warned(nodeapi.WarningVolumeNotEnforced) {
		return say.No()
	}
	enforce := "Once no pod uses it: kubectl hpp enforce " + v.Handle
	if v.in.EnforcementLost {
		return say.Wrong("NotEnforced", fmt.Sprintf("%s, but nothing holds it to its size: the quota of pool "+
			"%s is off.", v.is(), v.Pool), "docs/explanation/enforcement.md#switching-quota-on, first.", enforce)
	}
	return say.Wrong("NotEnforced", v.is()+", but nothing holds it to its size: it was copied or restored.", enforce)
}

// copies is for a volume of whose id there is something elsewhere.
func (v volume) copies() (say.Answer, bool) {
	for _, other := range v.Listed {
		if other.ID == v.Handle && diagnosis.Orphaned(other) {
			return say.Fine("Copy", fmt.Sprintf("Node %s has something of the same id in pool %s, which nobody uses.",
				other.Node, other.Pool),
				fmt.Sprintf("If it is not wanted: kubectl hpp discard %s --node %s", other.ID, other.Node))
		}
	}
	return say.No()
}
