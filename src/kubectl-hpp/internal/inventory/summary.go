package inventory

import (
	"cmp"
	"slices"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/kubectl-hpp/internal/facts"
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

// Summarize says how it is. plugin is the version of this program.
func Summarize(f facts.Facts, plugin string) Summary {
	at := f.Controller
	sum := Summary{Driver: at.Driver, Namespace: at.Namespace, Version: at.Version, Problems: []Problem{}}
	nodes, volumes := Nodes(f), Volumes(f)
	sum.Nodes = int64(len(nodes))
	for _, v := range volumes {
		if v.State != facts.Snapshot {
			sum.Volumes++
		}
	}
	for _, count := range f.Waiting() {
		sum.Waiting += count
	}
	sum.Problems = slices.Concat(sum.Problems, ofResources(f), ofController(f), ofClaims(f))
	if f.Answered() {
		sum.Version = cmp.Or(f.Reported.Version, sum.Version)
		sum.add(nodes, f)
		sum.Problems = slices.Concat(sum.Problems, ofNodes(f), ofVolumes(volumes), ofVersions(f, plugin))
	} else {
		sum.told(f)
	}
	slices.SortStableFunc(sum.Problems, func(a, b Problem) int { return cmp.Compare(a.Severity, b.Severity) })
	return sum
}

// add adds what the nodes have together.
func (sum *Summary) add(nodes []Node, f facts.Facts) {
	var connected, present, pools, promised, size, trash, bytes int64
	for _, n := range nodes {
		if n.State != facts.Connected {
			continue
		}
		connected++
		present, pools, promised, size = present+*n.Present, pools+*n.Pools, promised+*n.Promised, size+*n.Size
	}
	for _, n := range f.Reported.Nodes {
		for _, p := range n.Pools {
			trash += int64(p.TrashEntries)
		}
	}
	sum.Connected, sum.Present, sum.Pools, sum.Promised, sum.Size = &connected, &present, &pools, &promised, &size
	sum.Trash = &trash
	if f.Deleted == nil {
		return
	}
	all, _ := Trash(f.Deleted)
	for _, d := range all {
		bytes += d.Size
	}
	sum.TrashBytes = &bytes
}
