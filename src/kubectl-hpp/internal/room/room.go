// Package room says where a new volume has room, and why it has none elsewhere.
package room

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/bytesize"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/kubectl-hpp/internal/facts"
)

// Unfit says why no pod is scheduled on a node, "" where one may be.
func Unfit(f facts.Facts, name string) string {
	n := f.Object(name)
	switch {
	case n == nil && len(f.Nodes) > 0:
		return "it is no node of the cluster any more"
	case n == nil:
		return ""
	case n.Spec.Unschedulable:
		return "cordoned"
	case !facts.Ready(n):
		return "not ready"
	}
	return ""
}

// Place is a node for a new volume.
type Place struct {
	Node  string
	Left  int64  // the largest new volume, in bytes
	Whole int64  // what the node could ever have
	Pool  string // that has the most
	Why   string // it takes none; "" where it does
}

// For are the nodes for a new volume in one of some pools, the roomiest first.
func For(f facts.Facts, class string, pools []string) (all []Place) {
	for _, n := range f.Reported.Nodes {
		all = append(all, placeOn(f, n, pools))
	}
	if len(f.Reported.Nodes) == 0 {
		all = published(f, class)
	}
	for _, n := range f.CSINodes {
		if _, known := f.Node(n.Name); !known && f.LacksDriver(n.Name) {
			all = append(all, Place{Node: n.Name, Why: "the driver is not there"})
		}
	}
	slices.SortStableFunc(all, func(a, b Place) int {
		return cmp.Or(cmp.Compare(b.Left, a.Left), strings.Compare(a.Why, b.Why), strings.Compare(a.Node, b.Node))
	})
	return all
}

func placeOn(f facts.Facts, n nodeapi.NodeStatus, pools []string) Place {
	p := Place{Node: n.Name}
	switch {
	case f.LacksDriver(n.Name):
		p.Why = "the driver is not there"
		return p
	case n.State != facts.Connected:
		p.Why = "not connected to the controller"
		return p
	}
	for _, pool := range n.Pools {
		if !slices.Contains(pools, pool.Name) {
			continue
		}
		if why := unusable(n, pool); why != "" {
			p.Why = cmp.Or(p.Why, why)
			continue
		}
		if p.Pool == "" || pool.Allocatable > p.Left {
			p.Pool, p.Left = pool.Name, pool.Allocatable
		}
		p.Whole = max(p.Whole, pool.Size, pool.Allocatable, pool.Promised)
	}
	switch {
	case p.Pool != "":
		p.Why = Unfit(f, n.Name)
	case p.Why == "":
		p.Why = "it has not shown the pool yet"
	}
	return p
}

// published are the nodes as CSIStorageCapacities say it, where the controller could not be asked.
func published(f facts.Facts, class string) (all []Place) {
	for _, c := range f.Capacities {
		if c.StorageClassName != class || c.NodeTopology == nil {
			continue
		}
		node, left := f.Room(c)
		all = append(all, Place{Node: node, Left: left, Why: Unfit(f, node)})
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
	case facts.Hangs(n, pool):
		return "its disk does not answer"
	case pool.Reason == nodeapi.ReasonNoNewVolumes:
		return "takes no new volumes: " + pool.Message
	case pool.Allocatable <= 0:
		return fmt.Sprintf("no room left, or maxVolumes reached: %s of %s free, %d volumes, %s promised",
			bytesize.Format(pool.Free), bytesize.Format(pool.Size), pool.Volumes, bytesize.Format(pool.Promised))
	}
	return ""
}

// Rows show places: what is left of the roomiest, then why others take nothing, many with one reason as one row.
func Rows(places []Place) (all [][2]string) {
	const most, alike = 10, 3
	reasons := map[string]int{}
	for _, p := range places {
		reasons[p.Why]++
	}
	shown := map[string]bool{}
	for _, p := range places {
		row := p.row()
		switch {
		case shown[p.Why]:
			continue
		case p.Why == "" && len(all) == most:
			shown[""] = true
			row = [2]string{"other nodes", "less"}
		case p.Why != "" && p.Left == 0 && reasons[p.Why] > alike:
			shown[p.Why] = true
			row = [2]string{fmt.Sprintf("%d nodes", reasons[p.Why]), p.Why}
		}
		all = append(all, row)
	}
	return all
}

func (p Place) row() [2]string {
	left := bytesize.Format(p.Left) + " left"
	switch {
	case p.Why == "":
		return [2]string{p.Node, left}
	case p.Left > 0:
		return [2]string{p.Node, left + ", " + p.Why}
	}
	return [2]string{p.Node, p.Why}
}
