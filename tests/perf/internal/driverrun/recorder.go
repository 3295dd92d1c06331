package driverrun

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/tests/perf/internal/report"
	"github.com/hostpath-provisioner/hostpath-provisioner/tests/perf/internal/stat"
	"github.com/hostpath-provisioner/hostpath-provisioner/tests/perf/internal/workdisk"
)

// Operations, as figures and benchmarks call them.
const (
	opMkdir     = "mkdir+fsync" // on btrfs of a subvolume with its limit
	opByHand    = "same steps by hand"
	opBind      = "bind mount and unmount by hand"
	opUsed      = "one quota search by hand"
	opTrash     = "delete by hand"
	opCreate    = "CreateVolume"
	opParallel  = "CreateVolume, 16 clients"
	opPurging   = "CreateVolume during a purge"
	opPublish   = "NodePublishVolume"
	opUnpublish = "NodeUnpublishVolume"
	opStats     = "NodeGetVolumeStats"
	opDelete    = "DeleteVolume, 1 file"
	opFull      = "DeleteVolume, %d files"
	opRecover   = "start and recovery"
)

// isByHand reports whether an operation needs no driver.
func isByHand(op string) bool {
	return slices.Contains([]string{opMkdir, opByHand, opBind, opUsed, opTrash}, op)
}

// baseline is the number of volumes of what needs no driver.
const baseline = 0

// key is one thing that was measured on one disk.
type key struct {
	op string
	// in the pool beforehand; baseline for what is done by hand, except where they are on the disk for that too
	volumes int
}

// recorder collects samples on one disk.
type recorder struct {
	disk    workdisk.Disk
	samples map[key][]time.Duration
	rates   map[key][]float64
	commits map[int]share // of creation, by the number of volumes
	order   []key
	bench   []report.BenchLine
	extra   []report.Figure
}

func newRecorder(disk workdisk.Disk) *recorder {
	return &recorder{disk: disk, samples: map[key][]time.Duration{}, rates: map[key][]float64{}, commits: map[int]share{}}
}

// share is how many of something so many calls took.
type share struct{ calls, of int }

// commit keeps how many commits of the filesystem so many creations took.
func (r *recorder) commit(volumes, calls, commits int) {
	all := r.commits[volumes]
	r.commits[volumes] = share{all.calls + calls, all.of + commits}
}

// counted reports whether volumes are subvolumes that quota holds to their size.
func (r *recorder) counted() bool { return r.disk.Counted }

// add keeps one round of samples.
func (r *recorder) add(op string, volumes int, took []time.Duration) {
	k := key{op, volumes}
	if _, known := r.samples[k]; !known {
		r.order = append(r.order, k)
	}
	r.samples[k] = append(r.samples[k], took...)
	s := stat.Summarize(took)
	r.bench = append(r.bench, report.BenchLine{
		Name: r.benchName(k), N: s.N, NsPerOp: float64(s.Mean), P50: float64(s.P50), P99: float64(s.P99),
	})
}

// addParallel keeps one round of several clients, which took so long together.
func (r *recorder) addParallel(volumes int, took []time.Duration, all time.Duration) {
	k := key{opParallel, volumes}
	r.rates[k] = append(r.rates[k], stat.Rate(len(took), all))
	r.add(opParallel, volumes, took)
}

// benchName is the name of a benchmark: no spaces, key=value parts.
func (r *recorder) benchName(k key) string {
	name := make([]rune, 0, len(k.op))
	for _, c := range k.op {
		switch c {
		case ' ':
			c = '_'
		case ',', '+':
			continue
		}
		name = append(name, c)
	}
	return fmt.Sprintf("%s/fs=%s/volumes=%d", string(name), r.disk.Name, k.volumes)
}

// figureName identifies a figure across runs.
func (r *recorder) figureName(k key, what string) string {
	if k.volumes == baseline {
		return fmt.Sprintf("%s, by hand: %s %s", r.disk.Name, k.op, what)
	}
	return fmt.Sprintf("%s, %d volumes: %s %s", r.disk.Name, k.volumes, k.op, what)
}

// section is everything measured on the disk, beside its budgets.
func (r *recorder) section() report.Section {
	fsType := r.disk.FSType
	if r.counted() {
		fsType += ", simple quota, a filesystem for each pool, which also holds a thousand volumes made by hand"
	}
	s := report.Section{
		Title: fmt.Sprintf("Driver alone on %s (%s)", r.disk.Name, fsType),
		About: "One process, gRPC over its unix socket. Two drivers, one with each pool, and the baselines took turns in " +
			"short rounds, so that noise hits all of them alike. The pools were made and synced beforehand.",
	}
	for _, k := range r.order {
		s.Figures = append(s.Figures, r.figures(k)...)
	}
	s.Figures = append(s.Figures, r.ratios()...)
	s.Figures = append(s.Figures, r.extra...)
	return s
}

func (r *recorder) figures(k key) []report.Figure {
	sum := stat.Summarize(r.samples[k])
	if k.op == opRecover {
		return []report.Figure{{
			Name: r.figureName(k, "time"), Value: sum.P50.Seconds(), Unit: report.Seconds, Budget: r.budget(k).p50,
		}}
	}
	b := r.budget(k)
	figures := []report.Figure{
		{Name: r.figureName(k, "p50"), Value: report.Ms(sum.P50), Unit: report.Milliseconds, Samples: sum.N, Budget: b.p50},
		{Name: r.figureName(k, "p99"), Value: report.Ms(sum.P99), Unit: report.Milliseconds, Samples: sum.N, Budget: b.p99},
	}
	if rates := r.rates[k]; len(rates) > 0 {
		figures = append(figures, report.Figure{
			Name: r.figureName(k, "rate"), Value: median(rates), Unit: report.PerSecond, Samples: len(rates), Budget: b.rate,
		})
	}
	return figures
}

// budgeted is the largest pool, in volumes, that start and memory have a budget for.
const budgeted = 100_000

// budgets of one operation; nil where docs/explanation/performance.md sets none.
type budgets struct{ p50, p99, rate *report.Budget }

// budget is the table of docs/explanation/performance.md, times in milliseconds.
func (r *recorder) budget(k key) budgets {
	if isByHand(k.op) {
		return budgets{}
	}
	switch k.op {
	case opCreate:
		if r.disk.FSType == "btrfs" {
			return budgets{p50: report.AtMost(10)}
		}
		return budgets{p99: report.AtMost(10)} // its p50 is compared with the steps by hand
	case opParallel:
		if r.disk.FSType == "btrfs" {
			return budgets{}
		}
		return budgets{rate: report.AtLeast(500)}
	case opPublish, opUnpublish:
		return budgets{p50: report.AtMost(1)}
	case opStats:
		return budgets{p50: report.AtMost(0.5)}
	case opRecover:
		if k.volumes > budgeted {
			return budgets{}
		}
		return budgets{p50: report.AtMost(2)} // seconds
	case opPurging:
		return budgets{}
	default: // deletes
		return budgets{p99: report.AtMost(10)}
	}
}

// ratios compare the largest pool with the smallest, and the driver with the same steps by hand.
func (r *recorder) ratios() []report.Figure {
	sizes := map[int]struct{}{}
	for k := range r.samples {
		if k.volumes != baseline {
			sizes[k.volumes] = struct{}{}
		}
	}
	sorted := slices.Sorted(maps.Keys(sizes))
	if len(sorted) == 0 {
		return nil
	}
	small, large := sorted[0], sorted[len(sorted)-1]
	figures := r.overhead(small)
	if r.counted() {
		figures = append(figures, r.overhead(large)...)
	}
	compared := []string{opCreate, opDelete, opPublish, opUnpublish}
	if r.counted() {
		compared = append(compared, opStats, opMkdir, opByHand, opBind, opUsed, opTrash)
	}
	for _, op := range compared {
		var budget *report.Budget
		if !isByHand(op) {
			budget = report.AtMost(1.2)
		}
		name := fmt.Sprintf("%s: %s p50, %d / %d volumes", r.disk.Name, op, large, small)
		figures = append(figures, r.ratio(name, key{op, large}, key{op, small}, budget))
	}
	return figures
}

// overhead compares creation with the same steps by hand, and says how many commits it takes.
func (r *recorder) overhead(volumes int) []report.Figure {
	hand, name := key{opByHand, baseline}, r.disk.Name
	if r.counted() {
		hand.volumes, name = volumes, fmt.Sprintf("%s, %d volumes", r.disk.Name, volumes)
	}
	budget := report.AtMost(1.4)
	if r.disk.FSType == "btrfs" {
		budget = nil
	}
	figures := []report.Figure{
		r.ratio(name+": CreateVolume p50 / same steps by hand", key{opCreate, volumes}, hand, budget),
	}
	if c := r.commits[volumes]; r.counted() && c.calls > 0 {
		figures = append(figures, report.Figure{
			Name: name + ": commits of the filesystem per CreateVolume", Value: float64(c.of) / float64(c.calls),
			Unit: report.Count, Samples: c.calls,
		})
	}
	return figures
}

// ratio compares the medians of two things.
func (r *recorder) ratio(name string, of, to key, budget *report.Budget) report.Figure {
	p50 := func(k key) float64 { return float64(stat.Summarize(r.samples[k]).P50) }
	return report.Quotient(name, p50(of), p50(to), budget)
}

// panel plots how the times of creation are distributed.
func (r *recorder) panel() report.Panel {
	p := report.Panel{
		Title: "CreateVolume on " + r.disk.Name, X: "milliseconds", Y: "% of calls that took at most so long",
	}
	for _, k := range r.order {
		if k.op != opCreate && k.op != opByHand && k.op != opMkdir {
			continue
		}
		var ms []float64
		for _, d := range slices.Sorted(slices.Values(r.samples[k])) {
			ms = append(ms, report.Ms(d))
		}
		name := k.op
		if k.volumes != baseline {
			name = fmt.Sprintf("%s, %d volumes", k.op, k.volumes)
		}
		p.Curves = append(p.Curves, report.Distribution(name, ms))
	}
	return p
}
