// Package inventory joins what Kubernetes and the controller say of volumes, pools, nodes and trash into rows. It is
// pure: two answers in, rows out. A field that nobody could be asked about has its zero value, and sizes are nil.
package inventory

import (
	"cmp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/names"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/persistentvolume"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/kubectl-hpp/internal/cluster"
)

// Answers are the controller's; one that is nil was not given.
type Answers struct {
	Status  *nodeapi.Status
	Volumes []nodeapi.VolumeStatus
	Deleted []nodeapi.DeletedVolume
}

// States of a volume by which volumes are chosen. What a row says of its volume may be longer.
const (
	OK               = "ok"
	Orphan           = "orphan"             // nothing in Kubernetes names it
	Lost             = "lost"               // its record, or its PersistentVolume, has no directory
	Refused          = "refused"            // its record or directory cannot be used
	NotEnforced      = "not-enforced"       // others of its pool are held to their sizes, and it is not
	NodeNotConnected = "node-not-connected" // so nobody knows
	PoolAbsent       = "pool-absent"        // its disk is away, or not selected or configured
	Copying          = "copying"            // it is a copy that is being made, or was interrupted
	Snapshot         = "snapshot"
	Unknown          = "unknown" // the controller was not asked, or its node did not answer
)

// States are all values of State.
func States() []string {
	return []string{
		OK, Orphan, Lost, Refused, NotEnforced, NodeNotConnected, PoolAbsent, Copying, Snapshot, Unknown,
	}
}

// Volume is one, or a snapshot. Sizes are in bytes.
type Volume struct {
	Namespace string    `json:"namespace,omitempty"`
	Claim     string    `json:"claim,omitempty"` // of an inline volume, the pod
	Pods      []string  `json:"pods,omitempty"`  // that use the claim
	Node      string    `json:"node,omitempty"`
	Pool      string    `json:"pool,omitempty"`
	Class     string    `json:"class,omitempty"`
	Size      *int64    `json:"size,omitempty"`
	Used      *int64    `json:"used,omitempty"`
	Percent   *int64    `json:"usedPercent,omitempty"`
	KeptBy    string    `json:"enforcement,omitempty"`
	State     string    `json:"state"`
	Says      string    `json:"message,omitempty"` // the controller's words, where they say more than State
	Created   time.Time `json:"created,omitzero"`  // the PersistentVolume
	PV        string    `json:"persistentVolume,omitempty"`
	ID        string    `json:"id"`
}

// Volumes gives those that a PersistentVolume names, and those that only the controller knows.
func Volumes(s cluster.State, a Answers) []Volume {
	known := map[string]*corev1.PersistentVolume{}
	for i := range s.Volumes {
		known[s.Volumes[i].Name] = &s.Volumes[i]
	}
	pods, marks := podsByClaim(s.Pods), marked(a.Status)
	var all []Volume
	for _, v := range a.Volumes {
		row := Volume{ID: v.ID, PV: v.PV}
		if pv := known[v.PV]; pv != nil {
			row = ofPV(pv, s.Controller)
			delete(known, v.PV)
		}
		row.answered(v, marks)
		all = append(all, row)
	}
	for i := range s.Volumes {
		if known[s.Volumes[i].Name] != nil { // the controller was not asked, or it is newer than the answer
			all = append(all, ofPV(&s.Volumes[i], s.Controller))
		}
	}
	for i := range all {
		all[i].Pods = pods[all[i].Namespace+"/"+all[i].Claim]
	}
	return all
}

// ofPV is what a PersistentVolume says.
func ofPV(pv *corev1.PersistentVolume, at cluster.Controller) Volume {
	is := persistentvolume.Describe(pv, at.Driver, at.TopologyKey)
	return Volume{
		Namespace: is.Claim.Namespace, Claim: is.Claim.Name, Node: strings.Join(is.Nodes, ","), Pool: is.Pool,
		Class: pv.Spec.StorageClassName, Size: &is.Bytes, State: Unknown,
		KeptBy:  pv.Spec.CSI.VolumeAttributes[nodeapi.KeyEnforcement],
		Created: pv.CreationTimestamp.Time, PV: pv.Name, ID: is.Handle,
	}
}

// answered adds what the controller says.
func (row *Volume) answered(v nodeapi.VolumeStatus, marks map[string]string) {
	if row.Claim == "" {
		row.Namespace, row.Claim, _ = strings.Cut(v.Claim, "/")
	}
	row.Node, row.Pool = cmp.Or(v.Node, row.Node), cmp.Or(v.Pool, row.Pool)
	row.Size, row.KeptBy = &v.Bytes, cmp.Or(v.Enforcement, row.KeptBy)
	if v.Used >= 0 {
		row.Used = &v.Used
		if v.Bytes > 0 {
			percent := int64(float64(v.Used) * 100 / float64(v.Bytes))
			row.Percent = &percent
		}
	}
	row.State = stateOf(v.State)
	if mark := marks[v.Node+" "+v.Pool+" "+v.ID]; row.State == OK && mark != "" {
		row.State = mark
	}
	if v.State != "" && v.State != row.State {
		row.Says = v.State
	}
}

// stateOf is the state that the controller's words mean.
func stateOf(said string) string {
	switch {
	case said == "":
		return OK
	case strings.HasPrefix(said, "orphan"):
		return Orphan
	case said == "not found":
		return Lost
	case said == "node not connected":
		return NodeNotConnected
	case strings.HasPrefix(said, "pool "):
		return PoolAbsent
	case strings.HasPrefix(said, "snapshot of "):
		return Snapshot
	case said == nodeapi.NotWhole, strings.Contains(said, "copied"), strings.Contains(said, "copy"):
		return Copying
	}
	return Unknown
}

// marked are the states that pools' warnings give to volumes, by node, pool and id.
func marked(s *nodeapi.Status) map[string]string {
	marks := map[string]string{}
	if s == nil {
		return marks
	}
	for _, n := range s.Nodes {
		for _, p := range n.Pools {
			for _, w := range p.Warnings {
				state := map[string]string{
					nodeapi.WarningVolumeLost: Lost, nodeapi.WarningVolumeRefused: Refused,
					nodeapi.WarningVolumeNotEnforced: NotEnforced,
				}[w.Reason]
				for _, id := range w.Volumes {
					marks[n.Name+" "+p.Name+" "+id] = state
				}
			}
		}
	}
	return marks
}

// podsByClaim are the names of pods that have not ended, by namespace and name of the claims that they use.
func podsByClaim(pods []corev1.Pod) map[string][]string {
	by := map[string][]string{}
	for _, p := range pods {
		if p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed {
			continue
		}
		for _, v := range p.Spec.Volumes {
			claim := ""
			switch {
			case v.PersistentVolumeClaim != nil:
				claim = v.PersistentVolumeClaim.ClaimName
			case v.Ephemeral != nil:
				claim = p.Name + "-" + v.Name
			case v.CSI != nil: // the controller names the pod of an inline volume
				claim = p.Name
			}
			if key := p.Namespace + "/" + claim; claim != "" && !slices.Contains(by[key], p.Name) {
				by[key] = append(by[key], p.Name)
			}
		}
	}
	return by
}

// poolOf is the pool, or the pools, that a class of the driver names.
func poolOf(s cluster.State, class string) string {
	for _, c := range s.Classes {
		if c.Name == class {
			return cmp.Or(c.Parameters[names.StoragePoolParameter], names.LegacyPool)
		}
	}
	return ""
}
