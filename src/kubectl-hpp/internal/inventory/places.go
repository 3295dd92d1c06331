package inventory

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/kubectl-hpp/internal/facts"
)

// Pool is one on one node. Sizes are in bytes.
type Pool struct {
	Node     string    `json:"node"`
	Name     string    `json:"pool"`
	State    string    `json:"state,omitempty"`
	KeptBy   string    `json:"enforcement,omitempty"`
	Backend  string    `json:"backend,omitempty"`
	Size     *int64    `json:"size,omitempty"`
	Free     *int64    `json:"free,omitempty"`
	Promised *int64    `json:"promised,omitempty"`
	Largest  *int64    `json:"largestNewVolume,omitempty"`
	Volumes  *int64    `json:"volumes,omitempty"`
	Trash    *int64    `json:"trash,omitempty"`
	Path     string    `json:"path,omitempty"`
	Message  string    `json:"message,omitempty"`
	Since    time.Time `json:"since,omitzero"`
}

// degraded is the state of a pool that is present, and in trouble.
const degraded = nodeapi.StatePresent + ", degraded"

// PoolStates are all values of --state of pools.
func PoolStates() []string {
	return []string{"present", "degraded", "read-only", "absent", "not-selected", "not-configured", facts.Unknown}
}

// Is reports whether a pool is in a state; it may be in two.
func (p Pool) Is(state string) bool {
	all := strings.Split(cmp.Or(p.State, facts.Unknown), ", ")
	return slices.ContainsFunc(all, func(is string) bool { return strings.ReplaceAll(is, " ", "-") == state })
}

// Pools gives those of all nodes; of one that is not connected, and where the controller was not asked, those that
// Kubernetes knows the room of, and what the driver's pods say of them.
func Pools(f facts.Facts) []Pool {
	var all []Pool
	for _, n := range f.Reported.Nodes {
		for _, p := range n.Pools {
			all = append(all, ofPool(n.Name, p))
		}
	}
	all = append(all, told(f)...)
	for _, c := range f.Capacities {
		node, room := f.Room(c)
		is, _ := f.Node(node)
		if node == "" || is.State == facts.Connected || c.Capacity == nil {
			continue
		}
		pool := f.PoolOf(c.StorageClassName)
		at := slices.IndexFunc(all, func(p Pool) bool { return p.Node == node && p.Name == pool })
		if at < 0 {
			all = append(all, Pool{Node: node, Name: pool, Largest: &room})
		} else if all[at].Largest == nil || *all[at].Largest < room {
			all[at].Largest = &room
		}
	}
	return all
}

func ofPool(node string, p nodeapi.PoolStatus) Pool {
	row := Pool{
		Node: node, Name: p.Name, State: p.State, Path: p.Path, Message: p.Message, Since: p.Since,
	}
	if !p.Served() {
		return row
	}
	switch {
	case p.ReadOnly:
		row.State += ", read-only"
	case p.State == nodeapi.StatePresent && p.Reason != "":
		row.State = degraded
	}
	volumes, trash := int64(p.Volumes), int64(p.TrashEntries)
	row.KeptBy, row.Backend = p.Enforcement, p.Backend
	row.Size, row.Free, row.Promised, row.Largest = &p.Size, &p.Free, &p.Promised, &p.Allocatable
	row.Volumes, row.Trash = &volumes, &trash
	return row
}

// Node is one that has the driver. Sizes are in bytes.
type Node struct {
	Name    string    `json:"node"`
	State   string    `json:"state,omitempty"`
	Version string    `json:"version,omitempty"`
	Seen    time.Time `json:"seen,omitzero"`
	// Present are the pools that are there, of Pools that should be.
	Present  *int64 `json:"poolsPresent,omitempty"`
	Pools    *int64 `json:"pools,omitempty"`
	Volumes  int64  `json:"volumes"`
	Size     *int64 `json:"size,omitempty"`
	Promised *int64 `json:"promised,omitempty"`
	Message  string `json:"message,omitempty"`
}

// Nodes gives those that have the driver: the controller's, else those on which the kubelet knows it.
func Nodes(f facts.Facts) []Node {
	var all []Node
	for _, n := range f.Reported.Nodes {
		all = append(all, ofNode(f, n))
	}
	if !f.Answered() {
		for _, n := range f.CSINodes {
			if !f.LacksDriver(n.Name) {
				all = append(all, Node{Name: n.Name})
			}
		}
	}
	for i := range all {
		all[i].Volumes = f.VolumesOn(all[i].Name)
	}
	return all
}

func ofNode(f facts.Facts, n nodeapi.NodeStatus) Node {
	row := Node{Name: n.Name, State: n.State, Version: n.Version, Seen: n.Seen}
	if n.State != facts.Connected {
		return row
	}
	row.Message = n.Message
	var present, pools, size, promised int64
	for _, p := range n.Pools {
		if p.Served() || p.Used || p.Selected && !f.NeverHere(p) {
			pools++
		}
		if p.Served() {
			present, size, promised = present+1, size+p.Size, promised+p.Promised
		}
	}
	row.Present, row.Pools, row.Size, row.Promised = &present, &pools, &size, &promised
	return row
}

// Deleted is a volume in the trash. Sizes are in bytes.
type Deleted struct {
	Claim   string    `json:"claim,omitempty"`
	Node    string    `json:"node"`
	Pool    string    `json:"pool,omitempty"`
	Size    int64     `json:"size"`
	Deleted time.Time `json:"deleted,omitzero"`
	Due     time.Time `json:"due,omitzero"` // when it is purged; without it never
	ID      string    `json:"id"`
	Entry   string    `json:"entry"`
}

// Trash gives what can be undeleted, and of which nodes nothing is known and why.
func Trash(listed []nodeapi.DeletedVolume) (all []Deleted, unknown []string) {
	for _, v := range listed {
		if v.Entry == "" {
			unknown = append(unknown, v.State)
			continue
		}
		all = append(all, Deleted{
			Claim: v.Claim, Node: v.Node, Pool: v.Pool, Size: v.Bytes, Deleted: v.Deleted, Due: v.Due, ID: v.ID,
			Entry: v.Entry,
		})
	}
	return all, unknown
}
