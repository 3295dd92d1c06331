// Package report makes one static HTML file of what is known of an installation, to read, to keep, and to attach to a
// bug report: without scripts, without anything from elsewhere, and without Secrets, of which nothing is read.
package report

import (
	"cmp"
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/bytesize"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/kubectl-hpp/internal/doctor"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/kubectl-hpp/internal/facts"
)

//go:embed page.html
var source string

// fullest is how many volumes are shown.
const fullest = 20

// Facts are what a report is made of.
type Facts struct {
	doctor.Facts
	Context string // of the kubeconfig by which it was made
}

// page is what the template shows.
type page struct {
	Made, Context, Driver, Namespace    string
	Plugin, Controller, Kubernetes      string
	Connected, Nodes, Present, Selected int
	Volumes                             int
	Promised, Size                      string
	Wrong, Well                         []doctor.Check
	Fails, Warns                        int
	Pools                               []poolRow
	Fullest                             []volumeRow
	Unlisted                            int
}

// poolRow is a pool of a node, or a node without pools.
type poolRow struct {
	Node, NodeState, Version       string
	First                          bool // of its node
	Pool, State, Kept, Message     string
	Served, Good                   bool
	Used, Promised                 int // percent, at most 100, for bars
	UsedText, PromisedText, Volume string
	Volumes                        int
}

type volumeRow struct {
	Claim, ID, Node, Pool, Size, Used, State string
	Percent, Bar                             int
	Good                                     bool
}

// Write writes the page.
func Write(w io.Writer, f Facts) error {
	t, err := template.New("report").Parse(source)
	if err != nil {
		return fmt.Errorf("read the report's template: %w", err)
	}
	if err = t.Execute(w, view(f)); err != nil {
		return fmt.Errorf("write the report: %w", err)
	}
	return nil
}

func view(f Facts) page {
	p := page{
		Made: f.Now.UTC().Format(time.RFC1123), Context: f.Context, Driver: f.Controller.Driver,
		Namespace: cmp.Or(f.Controller.Namespace, "unknown"), Plugin: f.Plugin,
		Controller: cmp.Or(f.Reported.Version, "unknown"), Kubernetes: cmp.Or(f.Server, "unknown"),
	}
	for _, c := range doctor.Examine(f.Facts) {
		if c.Level == doctor.OK {
			p.Well = append(p.Well, c)
		} else {
			p.Wrong = append(p.Wrong, c)
		}
	}
	slices.SortStableFunc(p.Wrong, func(a, b doctor.Check) int { return cmp.Compare(a.Level, b.Level) }) // FAIL, warn
	p.Fails, p.Warns = doctor.Count(p.Wrong, doctor.Fail), doctor.Count(p.Wrong, doctor.Warn)
	p.addNodes(f.Facts.Facts)
	p.addVolumes(f.Listed)
	return p
}

func (p *page) addNodes(f facts.Facts) {
	var promised, size int64
	for _, n := range f.Reported.Nodes {
		p.Nodes++
		row := poolRow{Node: n.Name, NodeState: n.State, Version: n.Version, First: true}
		row.Good = n.State == facts.Connected
		if row.Good {
			p.Connected++
		}
		if len(n.Pools) == 0 {
			row.Message = n.Message
			p.Pools = append(p.Pools, row)
		}
		for i, pool := range n.Pools {
			row.First = i == 0
			p.Pools = append(p.Pools, row.of(f, pool))
			p.Volumes += pool.Volumes
			if pool.State != nodeapi.StateNotSelected && !f.NeverHere(pool) {
				p.Selected++
			}
			if pool.Served() {
				p.Present, promised, size = p.Present+1, promised+pool.Promised, size+pool.Size
			}
		}
	}
	p.Promised, p.Size = bytesize.Format(promised), bytesize.Format(size)
}

// of is the row of a pool of the node.
func (r poolRow) of(f facts.Facts, pool nodeapi.PoolStatus) poolRow {
	r.Pool, r.State, r.Message, r.Served = pool.Name, pool.State, pool.Message, pool.Served()
	r.Good = r.Good && (r.Served && pool.Reason == "" && !pool.ReadOnly || f.NeverHere(pool) ||
		pool.State == nodeapi.StateNotSelected)
	if !r.Served {
		return r
	}
	if pool.ReadOnly {
		r.State += ", read-only"
	}
	r.Kept = strings.TrimSpace(pool.Backend + " " + pool.Enforcement)
	r.Used, r.Promised = min(100, percent(pool.Size-pool.Free, pool.Size)), min(100, percent(pool.Promised, pool.Size))
	r.UsedText = fmt.Sprintf("%s of %s used", bytesize.Format(pool.Size-pool.Free), bytesize.Format(pool.Size))
	r.PromisedText = bytesize.Format(pool.Promised) + " promised"
	r.Volume, r.Volumes = bytesize.Format(max(0, pool.Allocatable)), pool.Volumes
	return r
}

func percent(part, whole int64) int {
	if whole <= 0 {
		return 0
	}
	return int(math.Round(100 * float64(part) / float64(whole)))
}

// addVolumes shows those that are the fullest, of those whose use is known.
func (p *page) addVolumes(all []nodeapi.VolumeStatus) {
	known := slices.DeleteFunc(slices.Clone(all),
		func(v nodeapi.VolumeStatus) bool { return v.Used < 0 || v.Bytes <= 0 })
	p.Unlisted = len(all) - len(known)
	slices.SortFunc(known, func(a, b nodeapi.VolumeStatus) int {
		return cmp.Or(cmp.Compare(percent(b.Used, b.Bytes), percent(a.Used, a.Bytes)), cmp.Compare(b.Used, a.Used),
			strings.Compare(a.Node+a.ID, b.Node+b.ID))
	})
	for _, v := range known[:min(len(known), fullest)] {
		use := percent(v.Used, v.Bytes)
		p.Fullest = append(p.Fullest, volumeRow{
			Claim: cmp.Or(v.Claim, "-"), ID: v.ID, Node: v.Node, Pool: v.Pool, Size: bytesize.Format(v.Bytes),
			Used: bytesize.Format(v.Used), State: cmp.Or(v.State, "ok"), Percent: use, Bar: min(100,
				use), Good: use < 90,
		})
	}
}
