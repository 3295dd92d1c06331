package diagnosis

import (
	"cmp"
	"fmt"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/bytesize"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/kubectl-hpp/internal/facts"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/kubectl-hpp/internal/say"
)

// Orphaned reports whether a volume is an orphan, by what the controller says of it.
func Orphaned(v nodeapi.VolumeStatus) bool { return facts.StateOf(v.State) == facts.Orphan }

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
