// Package facts is what was read of an installation, and what follows from it: each in one place, for all commands.
package facts

import (
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/persistentvolume"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/kubectl-hpp/internal/cluster"
)

const (
	// Connected is the state of a node that the controller reaches.
	Connected = "connected"
	// SelectedNode is the scheduler's annotation on a claim (component-helpers/storage/volume, AnnSelectedNode).
	SelectedNode = "volume.kubernetes.io/selected-node"
	// DefaultClass is the annotation of the class of claims that name none.
	DefaultClass = "storageclass.kubernetes.io/is-default-class"
)

// Facts are what was read. What could not be read is empty, and Missing or Away says why.
type Facts struct {
	cluster.State
	Reported nodeapi.Status          // the nodes and their pools, as the controller sees them
	Listed   []nodeapi.VolumeStatus  // the volumes that it lists
	Deleted  []nodeapi.DeletedVolume // and what is in the trash
	Events   []corev1.Event          // about what is explained, and about others
	Away     string                  // why no controller answers; "" where the user may not ask it
	Now      time.Time
}

// Answered reports whether the controller has said how its nodes are.
func (f Facts) Answered() bool { return f.Reported.Driver != "" }

// Since is " for 2h", for a person, "" where the time is not known.
func (f Facts) Since(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return " for " + duration.HumanDuration(max(0, f.Now.Sub(t)))
}

// Node gives what the controller says of a node, and whether it says anything.
func (f Facts) Node(name string) (is nodeapi.NodeStatus, known bool) {
	if found := find(f.Reported.Nodes, func(n nodeapi.NodeStatus) bool { return n.Name == name }); found != nil {
		return *found, true
	}
	return is, false
}

// find gives the first one that is meant, nil where none is.
func find[T any](all []T, meant func(T) bool) *T {
	if i := slices.IndexFunc(all, meant); i >= 0 {
		return &all[i]
	}
	return nil
}

// Pool gives one of a node, with the name "" where it has none of that name.
func Pool(n nodeapi.NodeStatus, name string) nodeapi.PoolStatus {
	if p := find(n.Pools, func(p nodeapi.PoolStatus) bool { return p.Name == name }); p != nil {
		return *p
	}
	return nodeapi.PoolStatus{}
}

// Object gives a Node object, nil where there is none, or none could be read.
func (f Facts) Object(name string) *corev1.Node {
	return find(f.Nodes, func(n corev1.Node) bool { return n.Name == name })
}

// LacksDriver reports whether the kubelet of a node surely does not know the driver.
func (f Facts) LacksDriver(node string) bool {
	is := find(f.CSINodes, func(n storagev1.CSINode) bool { return n.Name == node })
	if is == nil {
		return len(f.CSINodes) > 0
	}
	return !slices.ContainsFunc(is.Spec.Drivers, func(d storagev1.CSINodeDriver) bool {
		return d.Name == f.Controller.Driver
	})
}

// Ready reports whether a node is.
func Ready(n *corev1.Node) bool {
	return slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}

// NeverHere reports whether a pool's node just has no disk for it, and other nodes have one, or had.
func (f Facts) NeverHere(p nodeapi.PoolStatus) bool {
	return !p.Served() && !p.Used && find(f.Reported.Nodes, func(n nodeapi.NodeStatus) bool {
		there := Pool(n, p.Name)
		return there.Served() || there.Used
	}) != nil
}

// hangTime is how much older a pool's figures are than the newest of its node: a node sends them every minute.
const hangTime = 3 * time.Minute

// Hangs reports whether the disk of a pool has not answered for some minutes, by the node's clock.
func Hangs(n nodeapi.NodeStatus, pool nodeapi.PoolStatus) bool {
	newest := time.Time{}
	for _, p := range n.Pools {
		if p.Name != pool.Name && p.Seen.After(newest) {
			newest = p.Seen
		}
	}
	if newest.IsZero() { // the only one: the controller's clock has to do
		newest = n.Seen
	}
	return pool.Served() && !pool.Seen.IsZero() && newest.Sub(pool.Seen) > hangTime
}

// Warned reports whether a pool warns of a volume for one of these reasons.
func Warned(pool nodeapi.PoolStatus, id string, reasons ...string) bool {
	return slices.ContainsFunc(pool.Warnings, func(w nodeapi.Warning) bool {
		return slices.Contains(reasons, w.Reason) && slices.Contains(w.Volumes, id)
	})
}

// OnNode reports whether a volume is on a node, for the nodes that are said of it.
func OnNode(nodes, name string) bool {
	return nodes == name || strings.Contains(nodes, ",") && slices.Contains(strings.Split(nodes, ","), name)
}

// VolumesOn is how many volumes a node has, as the controller lists them, or else PersistentVolumes say it.
func (f Facts) VolumesOn(node string) (n int64) {
	for _, v := range f.Listed {
		if OnNode(v.Node, node) && v.SnapshotOf == "" {
			n++
		}
	}
	if f.Listed != nil {
		return n
	}
	for i := range f.Volumes {
		if on, _ := persistentvolume.Nodes(&f.Volumes[i], f.Controller.TopologyKey); slices.Contains(on, node) {
			n++
		}
	}
	return n
}
