package burst

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/tests/perf/internal/report"
	"github.com/hostpath-provisioner/hostpath-provisioner/tests/perf/internal/stat"
)

const (
	// LocalPath is the name of the peer that docs/explanation/performance.md sets a budget against.
	LocalPath = "local-path"
	// Ceiling is the name of a driver that only mounts, with a csi-provisioner on every node.
	Ceiling = "ceiling"
)

// last is when the last of them happened, in seconds.
func last(rising []time.Duration) float64 {
	if len(rising) == 0 {
		return 0
	}
	return rising[len(rising)-1].Seconds()
}

// boundPerSecond counts from the first claim to the last one bound.
func (r Round) boundPerSecond() float64 { return float64(len(r.Bound)) / max(last(r.Bound), 1e-9) }

func (r Round) allRunning() float64 { return last(r.Running) }
func (r Round) allGone() float64    { return last(r.Gone) }

// per is a quantity for each claim.
func (r Round) per(quantity float64) float64 { return quantity / float64(max(1, len(r.Bound))) }

// cost is the processor time of the system's pods and of the API server for each claim, in seconds.
func (o Outcome) cost(r Round) float64 {
	return r.per(r.CPU.of(o.System.Namespace, "") + r.CPU.of("kube-system", "kube-apiserver"))
}

// each gives one quantity of all rounds.
func (o Outcome) each(of func(Round) float64) (all []float64) {
	for _, r := range o.Rounds {
		all = append(all, of(r))
	}
	return all
}

// samples are those of all rounds together.
func (o Outcome) samples(of func(Round) []time.Duration) stat.Summary {
	var all []time.Duration
	for _, r := range o.Rounds {
		all = append(all, of(r)...)
	}
	return stat.Summarize(all)
}

// memory is that of the last round.
func (o Outcome) memory() Memory { return o.Rounds[len(o.Rounds)-1].Memory }

// Section is the outcome of one system as a table.
func (o Outcome) Section() report.Section {
	bound := o.samples(func(r Round) []time.Duration { return r.ToBound })
	running := o.samples(func(r Round) []time.Duration { return r.ToRunning })
	name := o.System.Name + ": "
	figure := func(what string, value float64, unit report.Unit, samples int) report.Figure {
		return report.Figure{Name: name + what, Value: value, Unit: unit, Samples: samples}
	}
	median := func(what string, unit report.Unit, of func(Round) float64) report.Figure {
		return figure(what, stat.Median(o.each(of)), unit, len(o.Rounds))
	}
	s := report.Section{
		Title: fmt.Sprintf("Bursts of %d: %s", len(o.Rounds[0].Bound), o.System.Name),
		About: "Claims of a class with WaitForFirstConsumer, each with a pod of one container, created by 16 clients " +
			"as fast as the API server took them. Medians of the rounds, and of all claims.",
		Figures: []report.Figure{
			median("Bound per second", report.PerSecond, Round.boundPerSecond),
			median("all Running", report.Seconds, Round.allRunning),
			median("all PVs gone after delete", report.Seconds, Round.allGone),
			figure("claim→Bound p50", bound.P50.Seconds(), report.Seconds, bound.N),
			figure("claim→Bound "+bound.TailName(), bound.Tail.Seconds(), report.Seconds, bound.N),
			figure("claim→Running p50", running.P50.Seconds(), report.Seconds, running.N),
			figure("claim→Running "+running.TailName(), running.Tail.Seconds(), report.Seconds, running.N),
			median("API requests per volume life", report.Count, requestsPerLife),
		},
	}
	for _, kind := range kinds() {
		per := func(r Round) float64 { return r.per(r.Requests[kind]) }
		if stat.Median(o.each(per)) > 0 {
			s.Figures = append(s.Figures, median("API requests per volume life, "+kind, report.Count, per))
		}
	}
	s.Figures = append(s.Figures, figure("API requests, idle", o.IdlePerMinute, report.PerMinute, 0))
	s.Figures = append(s.Figures, o.cpuFigures(median)...)
	for _, process := range o.System.Processes {
		most := o.memory().MostOf(process)
		s.Figures = append(s.Figures, report.Memory(name+"RSS of "+process+" on a node, most", most, nil))
	}
	return s
}

func requestsPerLife(r Round) float64 { return r.per(r.Requests.Total()) }

// cpuFigures say where the time goes, the most first.
func (o Outcome) cpuFigures(median func(string, report.Unit, func(Round) float64) report.Figure) []report.Figure {
	names := map[string]Consumer{"all on the nodes": {}}
	for _, r := range o.Rounds {
		for c := range r.CPU {
			if c.Namespace == o.System.Namespace || c.Namespace == "kube-system" {
				names[c.Namespace+"/"+c.Container] = c
			}
		}
	}
	var figures []report.Figure
	for name, c := range names {
		f := median("CPU per claim, "+name, report.Milliseconds, func(r Round) float64 {
			return r.per(r.CPU.of(c.Namespace, c.Container)) * 1000
		})
		if f.Value >= 1 {
			figures = append(figures, f)
		}
	}
	slices.SortFunc(figures, func(a, b report.Figure) int { return cmp.Compare(b.Value, a.Value) })
	return figures
}

// Bench are its rounds for benchstat.
func (o Outcome) Bench() (lines []report.BenchLine) {
	for _, r := range o.Rounds {
		lines = append(lines, report.BenchLine{
			Name: "Burst/system=" + o.System.Name, N: len(r.Bound), Values: map[string]float64{
				"bound/s": r.boundPerSecond(), "running-s": r.allRunning(), "gone-s": r.allGone(),
				"requests/claim": requestsPerLife(r), "cpu-s/claim": o.cost(r),
			},
		})
	}
	return lines
}

// Against compares ours with the others of the same run.
func Against(ours Outcome, others []Outcome) report.Section {
	s := report.Section{
		Title: "Bursts: ours beside the others",
		About: "Ratios of the rounds of this run, in brackets their 95 % interval. The ceiling is a driver that " +
			"binds a mount and does nothing else, with a csi-provisioner on every node, as kubevirt's driver has it.",
	}
	for _, o := range others {
		s.Figures = append(s.Figures, beside(ours, o)...)
	}
	// `make perf-controller` measures the controller's pod: here another system has processes of the sidecars' names.
	node := ours.memory().MostOf(ours.System.OnNodes)
	s.Figures = append(s.Figures, report.Memory("RSS of our container on a node", node, report.AtMost(28))) // 30 MB
	return s
}

// beside compares ours with one other system.
func beside(ours, o Outcome) []report.Figure {
	var bound, running, gone, cost, requests *report.Budget
	switch o.System.Name {
	case LocalPath:
		bound = report.AtLeast(6)
	case Ceiling:
		// Its driver sends no requests: the figure is what the sidecars need by themselves.
		bound, running, gone = report.AtLeast(1), report.AtMost(1.05), report.AtMost(0.75)
		cost, requests = report.AtMost(0.5), report.AtMost(1.1)
	}
	with := ", ours / " + o.System.Name
	compare := func(what string, of func(Round) float64, budget *report.Budget) report.Figure {
		return report.Quotient(what+with, ours.each(of), o.each(of), budget)
	}
	return []report.Figure{
		compare("Bound per second", Round.boundPerSecond, bound),
		compare("all Running", Round.allRunning, running),
		compare("all PVs gone", Round.allGone, gone),
		compare("API requests per volume life", requestsPerLife, requests),
		report.Quotient("CPU of the system's pods and the API server per claim"+with,
			ours.each(ours.cost), o.each(o.cost), cost),
	}
}
