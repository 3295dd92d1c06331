package driverrun

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/tests/perf/internal/report"
	"github.com/hostpath-provisioner/hostpath-provisioner/tests/perf/internal/workdisk"
)

// seconds is a round of one call that took so many.
func seconds(n float64) []time.Duration {
	return []time.Duration{time.Duration(n * float64(time.Second))}
}

func checkFigures(t *testing.T, s report.Section, want map[string]report.Figure) {
	t.Helper()
	got := map[string]report.Figure{}
	for _, f := range s.Figures {
		if _, twice := got[f.Name]; twice {
			t.Errorf("two figures are called %q", f.Name)
		}
		got[f.Name] = f
	}
	for name, want := range want {
		is, ok := got[name]
		switch {
		case !ok:
			t.Errorf("no figure %q", name)
		case is.Value != want.Value || is.Unit != want.Unit || is.NotMeasured != want.NotMeasured:
			t.Errorf("%s: %v %s, not measured %t; want %v %s, %t", name, is.Value, is.Unit, is.NotMeasured,
				want.Value, want.Unit, want.NotMeasured)
		case fmt.Sprint(is.Budget) != fmt.Sprint(want.Budget):
			t.Errorf("%s: budget %v, want %v", name, is.Budget, want.Budget)
		}
	}
}

func TestCopiesThatShareTheirData(t *testing.T) {
	r := newRecorder(workdisk.Disk{Name: "loop-btrfs", FSType: "btrfs", Counted: true})
	for range 2 { // rounds
		for _, op := range []string{opSnapshot, opRestore, opClone} {
			r.add(fmt.Sprintf(op, "1 GiB"), 100, seconds(0.02))
			r.add(fmt.Sprintf(op, "512 MiB"), 100, seconds(0.01))
		}
	}
	s := r.copiesSection(100, []tree{{name: "512 MiB", files: 1}, {name: "1 GiB", files: 1}})
	checkFigures(t, s, map[string]report.Figure{
		"loop-btrfs, 100 volumes: CreateSnapshot of 1 GiB p50": {
			Value: 20, Unit: report.Milliseconds, Budget: report.AtMost(100),
		},
		"loop-btrfs, 100 volumes: CreateVolume from a volume of 512 MiB max": {Value: 10, Unit: report.Milliseconds},
		"loop-btrfs: CreateSnapshot of 1 GiB / 512 MiB, p50":                 {Value: 2, Unit: report.Ratio},
		"loop-btrfs: CreateVolume from a snapshot of 1 GiB / 512 MiB, p50":   {Value: 2, Unit: report.Ratio},
	})
}

func TestCopiesByFile(t *testing.T) {
	one, many := tree{name: "1 file", files: 1, bytes: 64 << 20}, tree{name: "1000 files", files: 1000, bytes: 4 << 10}
	r := newRecorder(workdisk.Disk{Name: "loop-xfs", FSType: "xfs"})
	for round := range 2 {
		for _, from := range []tree{one, many} {
			r.add(fmt.Sprintf(opClone, from.name), 100, seconds(0.5))
			r.add(fmt.Sprintf(opCp, from.name), baseline, seconds(0.25))
		}
		for _, op := range lifeOps() {
			r.add(op+opAlone, 100, slices.Repeat(seconds(0.001), 100))
			r.add(op+fmt.Sprintf(opBeside, many.name), 100, slices.Repeat(seconds(0.003), 100))
		}
		if round == 0 { // in the other one, the copy was whole before there was a call
			r.add(opRemove+fmt.Sprintf(opBeside, one.name), 100, seconds(0.003))
		}
	}
	checkFigures(t, r.copiesSection(100, []tree{one, many}), map[string]report.Figure{
		"loop-xfs, 100 volumes: CreateVolume from a volume of 1 file p50":  {Value: 500, Unit: report.Milliseconds},
		"loop-xfs, 100 volumes: CreateVolume from a volume of 1 file data": {Value: 128, Unit: report.MiBPerSecond},
		"loop-xfs, by hand: cp -a and syncfs of 1 file data":               {Value: 256, Unit: report.MiBPerSecond},
		"loop-xfs: time for a copy of 1 file, driver / cp":                 {Value: 2, Unit: report.Ratio},
		"loop-xfs, 100 volumes: CreateVolume from a volume of 1000 files data": {
			Value: 7.8125, Unit: report.MiBPerSecond,
		},
		"loop-xfs, 100 volumes: CreateVolume from a volume of 1000 files rate": {
			Value: 2000, Unit: report.PerSecond, Budget: report.AtLeast(50_000),
		},
		"loop-xfs, by hand: cp -a and syncfs of 1000 files rate":            {Value: 4000, Unit: report.PerSecond},
		"loop-xfs, 100 volumes: DeleteVolume without a copy p99":            {Value: 1, Unit: report.Milliseconds},
		"loop-xfs: DeleteVolume beside a copy of 1000 files / without, p50": {Value: 3, Unit: report.Ratio},
		"loop-xfs: DeleteVolume beside a copy of 1 file / without, p50":     {Unit: report.Ratio, NotMeasured: true},
		"loop-xfs: CreateVolume beside a copy of 1 file / without, p50":     {Unit: report.Ratio, NotMeasured: true},
	})
}
