package inventory

import (
	"cmp"
	"slices"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/kubectl-hpp/internal/cluster"
)

// Summary is how it is, and what is wrong. Sizes are in bytes. What the controller alone knows is nil without it.
type Summary struct {
	Driver     string    `json:"driver"`
	Namespace  string    `json:"namespace,omitempty"`
	Version    string    `json:"version,omitempty"`
	Connected  *int64    `json:"nodesConnected,omitempty"`
	Nodes      int64     `json:"nodes"`
	Present    *int64    `json:"poolsPresent,omitempty"`
	Pools      *int64    `json:"pools,omitempty"`
	Volumes    int64     `json:"volumes"`
	Promised   *int64    `json:"promised,omitempty"`
	Size       *int64    `json:"size,omitempty"`
	Trash      *int64    `json:"trash,omitempty"`
	TrashBytes *int64    `json:"trashBytes,omitempty"`
	Waiting    int64     `json:"claimsWaiting"`
	Problems   []Problem `json:"problems"`
}

// Problem is one thing that is wrong.
type Problem struct {
	Severity Severity `json:"severity"` // 1 is the gravest
	About    string   `json:"about"`    // the node, or what else it is about
	What     string   `json:"what"`
	More     string   `json:"more,omitempty"` // what follows of it, or why it is so
}

// Severity is how grave a problem is.
type Severity int

// Severities, the gravest first.
const (
	Unusable   Severity = iota + 1 // a node or pool serves nothing
	Damaged                        // data is missing, or cannot be used
	Limited                        // no new volumes, or nothing keeps them to their sizes
	Filling                        // soon it is worse
	Left                           // something is to be cleaned up
	Differing                      // versions
	Noteworthy                     // all else that a pool says
)

// Summarize says how it is. plugin is the version of this program.
func Summarize(s cluster.State, a Answers, plugin string, now time.Time) Summary {
	sum := Summary{
		Driver: s.Controller.Driver, Namespace: s.Controller.Namespace, Version: s.Controller.Version,
		Problems: []Problem{},
	}
	nodes := Nodes(s, a)
	sum.Nodes = int64(len(nodes))
	volumes := Volumes(s, a)
	for _, v := range volumes {
		if v.State != Snapshot {
			sum.Volumes++
		}
	}
	waiting := waitingClaims(s)
	for _, count := range waiting {
		sum.Waiting += count
	}
	if a.Status == nil {
		return sum
	}
	sum.Version = cmp.Or(a.Status.Version, sum.Version)
	sum.add(nodes, a)
	find := finder{sum: &sum, volumes: volumes, waiting: waiting, now: now}
	for _, n := range a.Status.Nodes {
		find.node(n)
	}
	find.orphans()
	find.versions(a.Status, plugin)
	slices.SortStableFunc(sum.Problems, func(a, b Problem) int { return cmp.Compare(a.Severity, b.Severity) })
	return sum
}

// add adds what the nodes have together.
func (sum *Summary) add(nodes []Node, a Answers) {
	var connected, present, pools, promised, size, trash, bytes int64
	for _, n := range nodes {
		if n.State != stateConnected {
			continue
		}
		connected++
		present, pools, promised, size = present+*n.Present, pools+*n.Pools, promised+*n.Promised, size+*n.Size
	}
	for _, n := range a.Status.Nodes {
		for _, p := range n.Pools {
			trash += int64(p.TrashEntries)
		}
	}
	sum.Connected, sum.Present, sum.Pools, sum.Promised, sum.Size = &connected, &present, &pools, &promised, &size
	sum.Trash = &trash
	if a.Deleted == nil {
		return
	}
	all, _ := Trash(a)
	for _, d := range all {
		bytes += d.Size
	}
	sum.TrashBytes = &bytes
}
