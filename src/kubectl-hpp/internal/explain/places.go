package explain

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/bytesize"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
)

// metaObject is what every object of the API has.
type metaObject interface {
	GetName() string
	GetNamespace() string
	GetUID() types.UID
}

// connected is the state of a node that the controller reaches.
const connected = "connected"

// node gives what the controller says of a node, and whether it says anything.
func (f Facts) node(name string) (is nodeapi.NodeStatus, known bool) {
	i := slices.IndexFunc(f.Reported.Nodes, func(n nodeapi.NodeStatus) bool { return n.Name == name })
	if i < 0 {
		return is, false
	}
	return f.Reported.Nodes[i], true
}

// object gives a Node object, nil where there is none, or none could be read.
func (f Facts) object(name string) *corev1.Node {
	i := slices.IndexFunc(f.Nodes, func(n corev1.Node) bool { return n.Name == name })
	if i < 0 {
		return nil
	}
	return &f.Nodes[i]
}

// lacksDriver reports whether the kubelet of a node surely does not know the driver.
func (f Facts) lacksDriver(node string) bool {
	i := slices.IndexFunc(f.CSINodes, func(n storagev1.CSINode) bool { return n.Name == node })
	if i < 0 {
		return len(f.CSINodes) > 0
	}
	return !slices.ContainsFunc(f.CSINodes[i].Spec.Drivers, func(d storagev1.CSINodeDriver) bool {
		return d.Name == f.Controller.Driver
	})
}

// unfit says why no pod is scheduled on a node, "" where one may be.
func (f Facts) unfit(name string) string {
	n := f.object(name)
	switch {
	case n == nil && len(f.Nodes) > 0:
		return "it is no node of the cluster any more"
	case n == nil:
		return ""
	case n.Spec.Unschedulable:
		return "cordoned"
	case !Ready(n):
		return "not ready"
	}
	return ""
}

// Ready reports whether a node is.
func Ready(n *corev1.Node) bool {
	return slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}

// place is a node for a new volume.
type place struct {
	node  string
	left  int64  // the largest new volume, in bytes
	whole int64  // what the node could ever have
	pool  string // that has the most
	why   string // it takes none; "" where it does
}

// places are the nodes for a new volume in one of some pools, the roomiest first.
func (f Facts) places(class string, pools []string) (all []place) {
	for _, n := range f.Reported.Nodes {
		all = append(all, f.placeOn(n, pools))
	}
	if len(f.Reported.Nodes) == 0 {
		all = f.published(class)
	}
	for _, n := range f.CSINodes {
		if _, known := f.node(n.Name); !known && f.lacksDriver(n.Name) {
			all = append(all, place{node: n.Name, why: "the driver is not there"})
		}
	}
	slices.SortStableFunc(all, func(a, b place) int {
		return cmp.Or(cmp.Compare(b.left, a.left), strings.Compare(a.why, b.why), strings.Compare(a.node, b.node))
	})
	return all
}

func (f Facts) placeOn(n nodeapi.NodeStatus, pools []string) place {
	p := place{node: n.Name}
	switch {
	case f.lacksDriver(n.Name):
		p.why = "the driver is not there"
		return p
	case n.State != connected:
		p.why = "not connected to the controller"
		return p
	}
	for _, pool := range n.Pools {
		if !slices.Contains(pools, pool.Name) {
			continue
		}
		if why := unusable(n, pool); why != "" {
			p.why = cmp.Or(p.why, why)
			continue
		}
		if p.pool == "" || pool.Allocatable > p.left {
			p.pool, p.left = pool.Name, pool.Allocatable
		}
		p.whole = max(p.whole, pool.Size, pool.Allocatable, pool.Promised)
	}
	switch {
	case p.pool != "":
		p.why = f.unfit(n.Name)
	case p.why == "":
		p.why = "it has not shown the pool yet"
	}
	return p
}

// published are the nodes as CSIStorageCapacities say it, where the controller could not be asked.
func (f Facts) published(class string) (all []place) {
	for _, c := range f.Capacities {
		if c.StorageClassName != class || c.NodeTopology == nil {
			continue
		}
		p := place{node: c.NodeTopology.MatchLabels[f.Controller.TopologyKey]}
		if c.MaximumVolumeSize != nil {
			p.left = c.MaximumVolumeSize.Value()
		} else if c.Capacity != nil {
			p.left = c.Capacity.Value()
		}
		p.why = f.unfit(p.node)
		all = append(all, p)
	}
	return all
}

// unusable says why a pool takes no new volumes on a node, "" where it does.
func unusable(n nodeapi.NodeStatus, pool nodeapi.PoolStatus) string {
	switch {
	case pool.State == nodeapi.StateNotSelected:
		return "not selected: " + cmp.Or(pool.Message, "its labels do not match the pool's nodeSelector")
	case pool.State == nodeapi.StateNotConfigured:
		return "not configured any more"
	case pool.State != nodeapi.StatePresent:
		return "absent: " + cmp.Or(pool.Message, pool.Reason)
	case pool.ReadOnly:
		return "read-only"
	case Hangs(n, pool):
		return "its disk does not answer"
	case pool.Reason == nodeapi.ReasonNoNewVolumes:
		return "takes no new volumes: " + pool.Message
	case pool.Allocatable <= 0:
		return fmt.Sprintf("no room left, or maxVolumes reached: %d volumes, %s of %s promised", pool.Volumes,
			bytesize.Format(pool.Promised), bytesize.Format(pool.Size))
	}
	return ""
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

// rows show places: what is left of the roomiest, then why others take nothing, many with one reason as one row.
func rows(places []place) (all [][2]string) {
	const most, alike = 10, 3
	reasons := map[string]int{}
	for _, p := range places {
		reasons[p.why]++
	}
	shown := map[string]bool{}
	for _, p := range places {
		left := bytesize.Format(p.left) + " left"
		switch {
		case p.why == "" && shown[""], p.why != "" && reasons[p.why] > alike && shown[p.why]:
			continue
		case p.why == "" && len(all) == most:
			shown[""] = true
			all = append(all, [2]string{"other nodes", "less"})
		case p.why == "":
			all = append(all, [2]string{p.node, left})
		case p.left > 0:
			all = append(all, [2]string{p.node, left + ", " + p.why})
		case reasons[p.why] > alike:
			shown[p.why] = true
			all = append(all, [2]string{fmt.Sprintf("%d nodes", reasons[p.why]), p.why})
		default:
			all = append(all, [2]string{p.node, p.why})
		}
	}
	return all
}

// since is how long ago something was, for a person.
func (f Facts) since(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return " for " + duration.HumanDuration(max(0, f.Now.Sub(t)))
}
