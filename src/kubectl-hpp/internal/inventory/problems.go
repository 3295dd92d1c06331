package inventory

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/bytesize"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/kubectl-hpp/internal/cluster"
)

const (
	// nearlyFull is how much of a pool is free when that is said, in percent: the alert's default.
	nearlyFull = 10
	// overdue is for how long a deleted volume should be gone when that is said: the alert's default.
	overdue = time.Hour
	// selectedNode is the scheduler's annotation on a claim (component-helpers/storage/volume, AnnSelectedNode).
	selectedNode = "volume.kubernetes.io/selected-node"
)

// waitingClaims is how many claims of the driver's classes wait for a volume, by the node that is selected for them.
func waitingClaims(s cluster.State) map[string]int64 {
	waiting := map[string]int64{}
	for _, c := range s.Claims {
		if c.Status.Phase != corev1.ClaimPending || c.Spec.StorageClassName == nil {
			continue
		}
		if poolOf(s, *c.Spec.StorageClassName) != "" {
			waiting[c.Annotations[selectedNode]]++
		}
	}
	return waiting
}

// finder looks for what is wrong.
type finder struct {
	sum     *Summary
	volumes []Volume
	waiting map[string]int64
	now     time.Time
}

func (f *finder) say(severity Severity, about, what, more string) {
	f.sum.Problems = append(f.sum.Problems, Problem{severity, about, what, more})
}

// since is " for 2h", "" where the time is not known.
func (f *finder) since(at time.Time) string {
	if at.IsZero() {
		return ""
	}
	return " for " + duration.HumanDuration(max(0, f.now.Sub(at)))
}

func (f *finder) node(n nodeapi.NodeStatus) {
	if n.State != stateConnected {
		volumes := int64(0)
		for _, v := range f.volumes {
			if slices.Contains(strings.Split(v.Node, ","), n.Name) {
				volumes++
			}
		}
		more := count(volumes, "volume")
		if w := f.waiting[n.Name]; w > 0 {
			more += "; " + count(w, "claim") + plural(w, " waits", " wait")
		}
		f.say(Unusable, n.Name, n.State+f.since(n.Seen), more)
		return
	}
	if n.Message != "" {
		f.say(Noteworthy, n.Name, n.Message, "")
	}
	for _, p := range n.Pools {
		f.pool(n.Name, p)
	}
}

func (f *finder) pool(node string, p nodeapi.PoolStatus) {
	if !p.Served() {
		if p.Selected || p.Used {
			f.say(Unusable, node, p.Name+" "+p.State+f.since(p.Since), p.Message)
		}
		return
	}
	switch {
	case p.ReadOnly:
		f.say(Unusable, node, p.Name+" read-only"+f.since(p.Since), p.Message)
	case p.EnforcementLost:
		f.say(Limited, node, p.Name+" no longer enforces sizes", p.Message)
	case p.Reason == nodeapi.ReasonNoNewVolumes:
		f.say(Limited, node, p.Name+" takes no new volumes", p.Message)
	case p.State == nodeapi.StatePresent && p.Message != "":
		f.say(Noteworthy, node, p.Name+" has a problem", p.Message)
	}
	f.counts(node, p)
	if p.Size > 0 && float64(p.Free)*100/float64(p.Size) < nearlyFull {
		f.say(Filling, node, p.Name+" nearly full", fmt.Sprintf("%s of %s free", bytesize.Format(p.Free),
			bytesize.Format(p.Size)))
	}
	if late := f.now.Sub(p.TrashDue); !p.TrashDue.IsZero() && late > overdue {
		f.say(Left, node, p.Name+" trash overdue"+f.since(p.TrashDue), "deleted volumes are not being removed")
	}
}

// counts says which volumes of a pool something is wrong with, and what else it warns of.
func (f *finder) counts(node string, p nodeapi.PoolStatus) {
	about := func(reason string) (about string) {
		for _, w := range p.Warnings {
			if w.Reason == reason {
				about = w.Message
			}
		}
		return about
	}
	for _, of := range []struct {
		severity     Severity
		count        int
		what, reason string
	}{
		{Damaged, p.Lost, " lost", nodeapi.WarningVolumeLost},
		{Damaged, p.Refused, " refused", nodeapi.WarningVolumeRefused},
		{Limited, p.Uncounted, " not enforced", nodeapi.WarningVolumeNotEnforced},
	} {
		if of.count > 0 {
			f.say(of.severity, node, p.Name+" "+count(int64(of.count), "volume")+of.what, about(of.reason))
		}
	}
	for _, w := range p.Warnings {
		switch w.Reason {
		case nodeapi.WarningVolumeLost, nodeapi.WarningVolumeRefused, nodeapi.WarningVolumeNotEnforced:
		case nodeapi.WarningVolumesMissing:
			f.say(Damaged, node, p.Name+" volumes missing", w.Message)
		default:
			f.say(Noteworthy, node, p.Name+" "+w.Reason, w.Message)
		}
	}
}

// orphans says where there are some, and which PersistentVolumes have no volume.
func (f *finder) orphans() {
	found, lost := map[string]int64{}, int64(0)
	var places []string
	for _, v := range f.volumes {
		switch {
		case v.State == Lost && v.Says != "": // no node has shown it; of others the pool has told
			lost++
		case v.State == Orphan:
			if place := v.Node + " " + v.Pool; found[place] == 0 {
				places = append(places, place)
			}
			found[v.Node+" "+v.Pool]++
		}
	}
	if lost > 0 {
		f.say(Damaged, "volumes", count(lost, "PersistentVolume")+" without a volume",
			"kubectl hpp get volumes -A --state lost")
	}
	slices.Sort(places)
	for _, place := range places {
		node, pool, _ := strings.Cut(place, " ")
		f.say(Left, node, pool+" "+count(found[place], "volume")+" orphaned",
			fmt.Sprintf("kubectl hpp get volumes -A --state orphan --node %s", node))
	}
}

// versions says which parts are of another version than the controller.
func (f *finder) versions(s *nodeapi.Status, plugin string) {
	by := map[string][]string{}
	for _, n := range s.Nodes {
		if n.State == stateConnected && n.Version != s.Version {
			by[n.Version] = append(by[n.Version], n.Name)
		}
	}
	var all []string
	for version := range by {
		all = append(all, version)
	}
	slices.Sort(all)
	for _, version := range all {
		nodes := by[version]
		about := nodes[0]
		if len(nodes) > 1 {
			about = count(int64(len(nodes)), "node")
		}
		f.say(Differing, about, "version "+version, "the controller is "+s.Version)
	}
	if plugin != s.Version {
		f.say(Differing, "kubectl hpp", "version "+plugin, "the controller is "+s.Version)
	}
}

// count is "1 volume", "2 volumes".
func count(n int64, what string) string { return fmt.Sprintf("%d %s%s", n, what, plural(n, "", "s")) }

func plural(n int64, one, many string) string {
	if n == 1 {
		return one
	}
	return many
}
