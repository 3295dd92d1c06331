package driverrun

import (
	"fmt"
	"maps"
	"slices"
	"strings"
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
	opRepeat    = "CreateVolume, repeated"
	opEmpty     = "an empty call"
	opParallel  = "CreateVolume, 16 clients"
	opPurging   = "CreateVolume during a purge"
	opPublish   = "NodePublishVolume"
	opUnpublish = "NodeUnpublishVolume"
	opStats     = "NodeGetVolumeStats"
	opDeletes   = "DeleteVolume, "
	opDelete    = opDeletes + "1 file"
	opFull      = opDeletes + "%d files"
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
	samples map[key][][]time.Duration // by round
	rates   map[key][]float64
	commits map[int]share // of creation, by the number of volumes
	order   []key
	bench   []report.BenchLine
	extra   []report.Figure
}

func newRecorder(disk workdisk.Disk) *recorder {
	return &recorder{
		disk: disk, samples: map[key][][]time.Duration{}, rates: map[key][]float64{}, commits: map[int]share{},
	}
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
	r.samples[k] = append(r.samples[k], took)
	s := stat.Summarize(took)
	r.bench = append(r.bench, report.BenchLine{
		Name: r.benchName(k), N: s.N, Values: map[string]float64{"ns/op": float64(s.P50)},
	})
}

// medians are the rounds of one thing, in milliseconds.
func (r *recorder) medians(k key) (ms []float64) {
	for _, round := range r.samples[k] {
		ms = append(ms, report.Ms(stat.Summarize(round).P50))
	}
	return ms
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
		About: "One process, gRPC over its unix socket. Two drivers, one with each pool, and the baselines took " +
			"turns in short rounds, another one first in each, so that noise hits all of them alike. The pools were " +
			"made and synced beforehand. Ratios and differences are of the medians of a round, in brackets their " +
			"95 % interval.",
	}
	for _, k := range r.order {
		s.Figures = append(s.Figures, r.figures(k)...)
	}
	s.Figures = append(s.Figures, r.ratios()...)
	s.Figures = append(s.Figures, r.extra...)
	return s
}

func (r *recorder) figures(k key) []report.Figure {
	sum := stat.Summarize(slices.Concat(r.samples[k]...))
	if k.op == opRecover {
		return []report.Figure{{
			Name: r.figureName(k, "time"), Value: sum.P50.Seconds(), Unit: report.Seconds, Budget: r.budget(k).p50,
		}}
	}
	b := r.budget(k)
	if sum.TailName() != "p99" { // the largest of a few says nothing about the hundredth
		b.p99 = nil
	}
	figures := []report.Figure{
		{
			Name: r.figureName(k, "p50"), Value: report.Ms(sum.P50), Unit: report.Milliseconds, Samples: sum.N,
			Budget: b.p50,
		},
		{
			Name: r.figureName(k, sum.TailName()), Value: report.Ms(sum.Tail), Unit: report.Milliseconds,
			Samples: sum.N, Budget: b.p99,
		},
	}
	if rates := r.rates[k]; len(rates) > 0 {
		figures = append(figures, report.Figure{
			Name: r.figureName(k, "rate"), Value: stat.Median(rates), Unit: report.PerSecond, Samples: len(rates),
			Budget: b.rate,
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
		return budgets{p99: report.AtMost(10)} // for its p50 see overhead
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
	}
	if strings.HasPrefix(k.op, opDeletes) {
		return budgets{p99: report.AtMost(10)}
	}
	return budgets{}
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
		figures = append(figures, report.Quotient(name, r.medians(key{op, large}), r.medians(key{op, small}), budget))
	}
	return figures
}

// overhead compares creation with the same steps by hand, and says how many commits it takes.
func (r *recorder) overhead(volumes int) []report.Figure {
	hand, name := key{opByHand, baseline}, r.disk.Name
	if r.counted() {
		hand.volumes, name = volumes, fmt.Sprintf("%s, %d volumes", r.disk.Name, volumes)
	}
	budget := report.AtMost(0.4)
	if r.disk.FSType == "btrfs" {
		budget = nil
	}
	figures := []report.Figure{report.Difference(name+": CreateVolume p50, over the same steps by hand",
		report.Milliseconds, r.medians(key{opCreate, volumes}), r.medians(hand), budget)}
	if c := r.commits[volumes]; r.counted() && c.calls > 0 {
		figures = append(figures, report.Figure{
			Name: name + ": commits of the filesystem per CreateVolume", Value: float64(c.of) / float64(c.calls),
			Unit: report.Count, Samples: c.calls,
		})
	}
	return figures
}
