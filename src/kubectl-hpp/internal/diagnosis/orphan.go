package diagnosis

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/bytesize"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/kubectl-hpp/internal/facts"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/kubectl-hpp/internal/say"
)

// Orphaned reports whether a volume is an orphan, by what the controller says of it.
func Orphaned(v nodeapi.VolumeStatus) bool { return facts.StateOf(v.State) == facts.Orphan }

// Adoptable reports whether a volume is there, and no PersistentVolume names it, though it is no snapshot and no inline
// volume, which the kubelet calls csi-… (makeVolumeHandle).
func Adoptable(v nodeapi.VolumeStatus) bool {
	there := slices.Contains([]string{facts.OK, facts.Orphan}, facts.StateOf(v.State))
	return there && v.PV == "" && v.SnapshotOf == "" && !strings.HasPrefix(v.ID, "csi-")
}

// Claimless explains a claim that is not there, where something is left of its volume.
func Claimless(f facts.Facts, claim string) (a say.Answer, found bool) {
	a = say.Answer{Reason: "ClaimGone", Wrong: true, Message: "There is no claim " + claim + " any more."}
	for _, pv := range f.Volumes {
		if of := pv.Spec.ClaimRef; of != nil && of.Namespace+"/"+of.Name == claim {
			a.Rows = append(a.Rows, [2]string{"PersistentVolume " + pv.Name, string(pv.Status.Phase)})
			a.Next = append(a.Next, "kubectl hpp explain pv "+pv.Name)
		}
	}
	for _, v := range f.Listed {
		if v.Claim == claim && Adoptable(v) {
			a.Rows = append(a.Rows, [2]string{"volume " + v.ID, fmt.Sprintf("%s in pool %s on node %s, without a "+
				"PersistentVolume", bytesize.Format(v.Bytes), v.Pool, v.Node)})
			a.Next = append(a.Next, fmt.Sprintf("To have it again: kubectl hpp adopt %s --node %s --apply", v.ID,
				v.Node))
		}
	}
	for _, d := range f.Deleted {
		if d.Claim == claim {
			a.Rows = append(a.Rows, [2]string{"in the trash", fmt.Sprintf("%s in pool %s on node %s, deleted %s",
				bytesize.Format(d.Bytes), d.Pool, d.Node, d.Deleted.UTC().Format(time.RFC3339))})
			a.Next = append(a.Next, fmt.Sprintf("To have it again: kubectl hpp undelete %s --node %s --apply", d.Entry,
				d.Node))
		}
	}
	return a, len(a.Rows) > 0
}

// Orphan explains a volume that no PersistentVolume names, for its id.
func Orphan(v nodeapi.VolumeStatus) say.Answer {
	a := say.Answer{
		Reason: "Orphan", Wrong: true,
		Message: fmt.Sprintf("Orphan: no PersistentVolume names it: %s in pool %s on node %s, made for %s.",
			bytesize.Format(v.Bytes), v.Pool, v.Node, cmp.Or(v.Claim, "a claim that is not known")),
		Next: []string{
			fmt.Sprintf("If it is wanted: kubectl hpp adopt %s --node %s", v.ID, v.Node),
			fmt.Sprintf("If nobody wants it: kubectl hpp discard %s --node %s", v.ID, v.Node),
		},
	}
	switch {
	case v.SnapshotOf != "":
		a.Reason, a.Wrong = "Snapshot", Orphaned(v)
		a.Message = fmt.Sprintf("A snapshot of volume %s: %s in pool %s on node %s.", v.SnapshotOf,
			bytesize.Format(v.Bytes), v.Pool, v.Node)
		a.Next = []string{"docs/runbooks/HostpathVolumesOrphaned.md#it-is-a-snapshot"}
	case !Orphaned(v):
		a.Reason, a.Wrong, a.Next = "Unnamed", false, nil
		a.Message = fmt.Sprintf("No PersistentVolume names it yet: %s in pool %s on node %s, %s.",
			bytesize.Format(v.Bytes),
			v.Pool, v.Node, cmp.Or(v.State, "made less than an hour ago"))
	}
	return a
}
