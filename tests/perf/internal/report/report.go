// Package report is what a run of the performance tests leaves behind: figures beside their budgets, as Markdown for
// people, and the rounds behind them as `go test -bench` lines for benchstat. It is pure: figures in, text out.
package report

import (
	"slices"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/tests/perf/internal/stat"
)

// Report is one run.
type Report struct {
	Started  time.Time
	Machine  Machine
	Sections []Section
	// Notes are sentences that a reader needs to judge the figures.
	Notes []string
	// Bench are the lines that benchstat reads.
	Bench []BenchLine
}

// Machine is what ran it.
type Machine struct {
	CPU    string
	Cores  int
	Kernel string
	// OS and Arch as Go names them.
	OS, Arch string
	// Driver is the commit that was measured, with -dirty where the tree had changes.
	Driver string
	// LoadBefore and LoadAfter are the load averages of the last minute.
	LoadBefore, LoadAfter float64
}

// Section groups figures under a heading.
type Section struct {
	Title string
	// About says in a sentence or two how the figures came about.
	About   string
	Figures []Figure
}

// Unit is what a figure counts.
type Unit string

// Units. Times are kept in milliseconds, memory in MiB.
const (
	Milliseconds Unit = "ms"
	Seconds      Unit = "s"
	PerSecond    Unit = "/s"
	PerMinute    Unit = "/min"
	MiBPerSecond Unit = "MiB/s"
	MiB          Unit = "MiB"
	Ratio        Unit = "×"
	Count        Unit = ""
	Percent      Unit = "%"
)

// Figure is one number.
type Figure struct {
	// Name identifies the figure across runs.
	Name  string
	Value float64
	// Low and High are the ends of its 95 % interval, both 0 where it has none.
	Low, High float64
	// NotMeasured says that there is no value, because something that it is made of is missing.
	NotMeasured bool
	Unit        Unit
	// Samples is how many measurements it stands for, 0 where that means nothing.
	Samples int
	Budget  *Budget
}

// Budget is a limit that docs/explanation/performance.md sets, in the figure's unit. Exactly one of the two is set.
type Budget struct{ AtMost, AtLeast float64 }

// AtMost is a budget that a figure must not exceed.
func AtMost(limit float64) *Budget { return &Budget{AtMost: limit} }

// AtLeast is a budget that a figure must reach.
func AtLeast(limit float64) *Budget { return &Budget{AtLeast: limit} }

// Quotient is one quantity per other one, measured in turns, with its interval from two rounds on. Both are more than
// nothing wherever they were measured, so a zero makes the figure one that was not measured.
func Quotient(name string, of, to []float64, budget *Budget) Figure {
	missing := func(v float64) bool { return v <= 0 }
	if slices.ContainsFunc(of, missing) || slices.ContainsFunc(to, missing) {
		of = nil
	}
	f := Figure{Name: name, Unit: Ratio, Budget: budget}
	return f.paired(of, to, func(of, to float64) float64 { return of / to })
}

// Difference is by how much one quantity is more than another one, measured in turns.
func Difference(name string, unit Unit, of, to []float64, budget *Budget) Figure {
	f := Figure{Name: name, Unit: unit, Budget: budget}
	return f.paired(of, to, func(of, to float64) float64 { return of - to })
}

// paired is the figure with its value, which has an interval from two rounds on.
func (f Figure) paired(of, to []float64, by func(of, to float64) float64) Figure {
	rounds := min(len(of), len(to))
	f.NotMeasured = rounds == 0
	f.Value, f.Low, f.High = stat.Paired(of, to, by)
	if f.Samples = rounds; rounds < 2 {
		f.Samples, f.Low, f.High = 0, 0, 0
	}
	return f
}

// Memory is a number of bytes in MiB. No process needs none, so zero was not measured.
func Memory(name string, bytes int64, budget *Budget) Figure {
	return Figure{Name: name, Value: float64(bytes) / (1 << 20), Unit: MiB, Budget: budget, NotMeasured: bytes <= 0}
}

// Verdict is how a figure stands to its budget.
type Verdict string

// Verdicts.
const (
	Unbudgeted Verdict = ""
	Met        Verdict = "met"
	Missed     Verdict = "**missed**"
	// Open says that the interval holds the budget: more rounds would decide.
	Open Verdict = "open"
)

// Verdict is how the figure stands to its budget. One that was not measured has missed it.
func (f Figure) Verdict() Verdict {
	if f.Budget == nil {
		return Unbudgeted
	}
	low, high := f.Low, f.High
	if low == 0 && high == 0 {
		low, high = f.Value, f.Value
	}
	switch {
	case f.NotMeasured || !f.Budget.allows(low) && !f.Budget.allows(high):
		return Missed
	case f.Budget.allows(low) && f.Budget.allows(high):
		return Met
	default:
		return Open
	}
}

func (b Budget) allows(value float64) bool {
	if b.AtLeast > 0 {
		return value >= b.AtLeast
	}
	return value <= b.AtMost
}

// String is the budget as a table shows it.
func (b Budget) String() string {
	if b.AtLeast > 0 {
		return "≥ " + number(b.AtLeast)
	}
	return "≤ " + number(b.AtMost)
}

// Ms is a duration in milliseconds.
func Ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
