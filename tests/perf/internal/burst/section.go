package burst

import (
	"fmt"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/tests/perf/internal/report"
	"github.com/hostpath-provisioner/hostpath-provisioner/tests/perf/internal/stat"
)

// last is when the last of them happened.
func last(rising []time.Duration) time.Duration {
	if len(rising) == 0 {
		return 0
	}
	return rising[len(rising)-1]
}

// boundPerSecond counts from the first claim to the last one bound.
func (o Outcome) boundPerSecond() float64 { return stat.Rate(len(o.Bound), last(o.Bound)) }

// Section is the outcome of one system as a table.
func (o Outcome) Section() report.Section {
	bound, running := stat.Summarize(o.ToBound), stat.Summarize(o.ToRunning)
	n, name := len(o.Bound), o.System.Name+": "
	seconds := func(what string, d time.Duration, samples int) report.Figure {
		return report.Figure{Name: name + what, Value: d.Seconds(), Unit: report.Seconds, Samples: samples}
	}
	s := report.Section{
		Title: fmt.Sprintf("Burst of %d: %s", n, o.System.Name),
		About: "Claims of a class with WaitForFirstConsumer, each with a pod of one container, created by 16 clients as " +
			"fast as the API server took them.",
		Figures: []report.Figure{
			seconds("all Bound", last(o.Bound), n),
			{Name: name + "Bound per second", Value: o.boundPerSecond(), Unit: report.PerSecond},
			seconds("claim→Bound p50", bound.P50, bound.N),
			seconds("claim→Bound p99", bound.P99, bound.N),
			seconds("all Running", last(o.Running), n),
			seconds("claim→Running p50", running.P50, running.N),
			seconds("claim→Running p99", running.P99, running.N),
			seconds("all PVs gone after delete", last(o.Gone), len(o.Gone)),
		},
	}
	s.Figures = append(s.Figures, o.requestFigures()...)
	for _, process := range o.System.Processes {
		s.Figures = append(s.Figures, report.Memory(name+"RSS of "+process+" on a node, most", o.Memory.MostOf(process), nil))
	}
	return s
}

// requestFigures are the requests per volume life, in all and by kind of object.
func (o Outcome) requestFigures() []report.Figure {
	per := float64(max(1, len(o.Bound)))
	name := o.System.Name + ": API requests"
	figures := []report.Figure{{Name: name + " per volume life", Value: o.Requests.Total() / per}}
	for _, kind := range kinds() {
		if n := o.Requests[kind]; n > 0 {
			figures = append(figures, report.Figure{Name: name + " per volume life, " + kind, Value: n / per})
		}
	}
	return append(figures, report.Figure{Name: name + " per minute, idle", Value: o.IdlePerMinute})
}

// Against compares ours with the others of the same run.
func Against(ours Outcome, others []Outcome) report.Section {
	s := report.Section{
		Title: "Burst: ours beside the others",
		About: "Ratios of this run. The ceiling is what a driver that does nothing reaches with a csi-provisioner on every " +
			"node, as kubevirt's driver has it.",
	}
	for _, o := range others {
		s.Figures = append(s.Figures, beside(ours, o)...)
		for _, peer := range others {
			if o.System.Name == Ceiling && peer.System.Name != Ceiling {
				s.Figures = append(
					s.Figures,
					report.Quotient("Bound per second, ceiling / "+peer.System.Name, o.boundPerSecond(), peer.boundPerSecond(), nil),
				)
			}
		}
	}
	node := ours.Memory.Without(ours.System.Central).Most()
	s.Figures = append(s.Figures,
		report.Memory("RSS of all our containers on a node", node, report.AtMost(28)),             // 30 MB
		report.Memory("RSS of the controller's pod", ours.Memory.Most()-node, report.AtMost(238)), // 250 MB
	)
	return s
}

// beside compares ours with one other system.
func beside(ours, o Outcome) []report.Figure {
	var bound, time, requests *report.Budget
	switch o.System.Name {
	case LocalPath:
		bound = report.AtLeast(6)
	case Ceiling:
		// Its driver sends no requests: the figure is what the sidecars need by themselves. What is idle differs by chance.
		bound, time, requests = report.AtLeast(1), report.AtMost(0.9), report.AtMost(1.1)
	}
	with := "ours / " + o.System.Name
	return []report.Figure{
		report.Quotient("Bound per second, "+with, ours.boundPerSecond(), o.boundPerSecond(), bound),
		report.Quotient("all Running, "+with, last(ours.Running).Seconds(), last(o.Running).Seconds(), time),
		report.Quotient("all PVs gone, "+with, last(ours.Gone).Seconds(), last(o.Gone).Seconds(), time),
		report.Quotient("API requests per volume life, "+with, ours.Requests.Total(), o.Requests.Total(), requests),
	}
}

const (
	// LocalPath is the name of the peer that docs/explanation/performance.md sets a budget against.
	LocalPath = "local-path"
	// Ceiling is the name of a driver that does nothing, with a csi-provisioner on every node.
	Ceiling = "ceiling"
)

// Panels plot every system's claims, pods and volumes over time.
func Panels(all []Outcome) []report.Panel {
	panels := []report.Panel{
		{Title: "Claims Bound", X: "seconds after the first claim", Y: "claims"},
		{Title: "Pods Running", X: "seconds after the first claim", Y: "pods"},
		{Title: "Volumes gone", X: "seconds after the request for deletion", Y: "volumes"},
	}
	for _, o := range all {
		for i, rising := range [][]time.Duration{o.Bound, o.Running, o.Gone} {
			curve := report.Curve{Name: o.System.Name, Points: []report.Point{{}}}
			for n, d := range rising {
				curve.Points = append(curve.Points, report.Point{X: d.Seconds(), Y: float64(n + 1)})
			}
			panels[i].Curves = append(panels[i].Curves, curve)
		}
	}
	return panels
}
