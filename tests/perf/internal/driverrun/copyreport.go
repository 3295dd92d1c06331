package driverrun

import (
	"fmt"

	"github.com/hostpath-provisioner/hostpath-provisioner/tests/perf/internal/report"
	"github.com/hostpath-provisioner/hostpath-provisioner/tests/perf/internal/stat"
)

// Operations on a tree, and what follows the name of a call beside copies.
const (
	opSnapshot = "CreateSnapshot of %s"
	opRestore  = "CreateVolume from a snapshot of %s"
	opClone    = "CreateVolume from a volume of %s"
	opCp       = "cp -a and syncfs of %s"
	opRemove   = "DeleteVolume"
	opAlone    = " without a copy"
	opBeside   = " beside a copy of %s"
)

// lifeOps are the calls that are timed beside copies.
func lifeOps() []string { return []string{opCreate, opPublish, opStats, opUnpublish, opRemove} }

// copiesSection is everything measured of copies of trees on the disk, in a pool of so many volumes.
func (r *recorder) copiesSection(volumes int, trees []tree) report.Section {
	s := report.Section{
		Title: fmt.Sprintf("Copies on %s (%s)", r.disk.Name, r.disk.FSType),
		About: "A copy is a volume made from another one, file by file, until the driver says that it is whole. " +
			"The driver takes turns with cp, and so do calls without a copy and beside one of each kind. What is " +
			"copied is in memory too, and shared where the filesystem can do that.",
	}
	if r.counted() {
		s.About = "The filesystem makes the copies, which share the data. Volumes of two sizes take turns."
	}
	s.About += " Ratios are of the medians of a round, in brackets their 95 % interval."
	for _, k := range r.order {
		figures := r.figures(k)
		if r.counted() {
			figures[0].Budget = report.AtMost(100)
		}
		s.Figures = append(s.Figures, figures...)
	}
	if r.counted() {
		s.Figures = append(s.Figures, r.growth(volumes, trees)...)
		return s
	}
	for _, t := range trees {
		s.Figures = append(append(s.Figures, r.copyRates(volumes, t)...), r.slowed(volumes, t)...)
	}
	return s
}

// growth compares copies of the larger tree with those of the smaller.
func (r *recorder) growth(volumes int, trees []tree) (figures []report.Figure) {
	small, large := trees[0].name, trees[1].name
	for _, op := range []string{opSnapshot, opRestore, opClone} {
		figures = append(figures, report.Quotient(fmt.Sprintf("%s: "+op+" / %s, p50", r.disk.Name, large, small),
			r.medians(key{fmt.Sprintf(op, large), volumes}), r.medians(key{fmt.Sprintf(op, small), volumes}), nil))
	}
	return figures
}

// copyRates are how fast a tree is copied, by the driver and by cp.
func (r *recorder) copyRates(volumes int, t tree) []report.Figure {
	driver, cp := key{fmt.Sprintf(opClone, t.name), volumes}, key{fmt.Sprintf(opCp, t.name), baseline}
	name := fmt.Sprintf("%s: time for a copy of %s, driver / cp", r.disk.Name, t.name)
	figures := []report.Figure{report.Quotient(name, r.medians(driver), r.medians(cp), nil)}
	for _, k := range []key{driver, cp} {
		rounds := r.medians(k)
		files := float64(t.files) / stat.Median(rounds) * 1000
		data := files * float64(t.bytes) / (1 << 20)
		figures = append(figures,
			report.Figure{Name: r.figureName(k, "data"), Value: data, Unit: report.MiBPerSecond, Samples: len(rounds)})
		if t.files == 1 {
			continue
		}
		rate := report.Figure{
			Name: r.figureName(k, "rate"), Value: files, Unit: report.PerSecond, Samples: len(rounds),
		}
		if k == driver && r.disk.FSType == "xfs" { // which shares the data
			rate.Budget = report.AtLeast(50_000)
		}
		figures = append(figures, rate)
	}
	return figures
}

// slowed compares calls beside a copy with those without one.
func (r *recorder) slowed(volumes int, t tree) (figures []report.Figure) {
	beside := fmt.Sprintf(opBeside, t.name)
	for _, op := range lifeOps() {
		with, without := r.medians(key{op + beside, volumes}), r.medians(key{op + opAlone, volumes})
		if len(with) < len(without) { // some copies were whole before the call
			with = nil
		}
		figures = append(figures, report.Quotient(fmt.Sprintf("%s: %s%s / without, p50", r.disk.Name, op, beside),
			with, without, nil))
	}
	return figures
}
