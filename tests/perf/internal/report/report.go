// Package report is what a run of the performance tests leaves behind: figures beside their budgets,
// as Markdown for people, JSON for later comparison, `go test -bench` lines for benchstat, and a plot.
// It is pure: figures in, text out.
package report

import (
	"encoding/json"
	"fmt"
	"time"
)

// Version is the version of the JSON format.
const Version = 1

// Report is one run.
type Report struct {
	Version  int       `json:"version"`
	Started  time.Time `json:"started"`
	Machine  Machine   `json:"machine"`
	Sections []Section `json:"sections"`
	// Notes are sentences that a reader needs to judge the figures.
	Notes []string `json:"notes,omitempty"`
	// Bench are the lines that benchstat reads.
	Bench []BenchLine `json:"bench,omitempty"`
	// Panels are the plot's diagrams, from top to bottom.
	Panels []Panel `json:"panels,omitempty"`
}

// Machine is what ran it.
type Machine struct {
	CPU    string `json:"cpu"`
	Cores  int    `json:"cores"`
	Kernel string `json:"kernel"`
	// OS and Arch as Go names them.
	OS   string `json:"os"`
	Arch string `json:"arch"`
	// Driver is the commit that was measured, with -dirty where the tree had changes.
	Driver string `json:"driver"`
	// LoadBefore and LoadAfter are the load averages of the last minute.
	LoadBefore float64 `json:"loadBefore"`
	LoadAfter  float64 `json:"loadAfter"`
}

// Section groups figures under a heading.
type Section struct {
	Title string `json:"title"`
	// About says in a sentence or two how the figures came about.
	About   string   `json:"about,omitempty"`
	Figures []Figure `json:"figures"`
}

// Unit is what a figure counts.
type Unit string

// Units. Times are kept in milliseconds, memory in MiB.
const (
	Milliseconds Unit = "ms"
	Seconds      Unit = "s"
	PerSecond    Unit = "/s"
	MiBPerSecond Unit = "MiB/s"
	MiB          Unit = "MiB"
	Ratio        Unit = "×"
	Count        Unit = ""
	Percent      Unit = "%"
)

// Figure is one number.
type Figure struct {
	// Name identifies the figure across runs.
	Name  string  `json:"name"`
	Value float64 `json:"value"`
	// NotMeasured says that there is no value, because something that it is made of is missing.
	NotMeasured bool `json:"notMeasured,omitempty"`
	Unit        Unit `json:"unit,omitempty"`
	// Samples is how many measurements it stands for, 0 where that means nothing.
	Samples int     `json:"samples,omitempty"`
	Budget  *Budget `json:"budget,omitempty"`
}

// Budget is a limit that docs/explanation/performance.md sets, in the figure's unit. Exactly one of the two is set.
type Budget struct {
	AtMost  float64 `json:"atMost,omitempty"`
	AtLeast float64 `json:"atLeast,omitempty"`
}

// AtMost is a budget that a figure must not exceed.
func AtMost(limit float64) *Budget { return &Budget{AtMost: limit} }

// AtLeast is a budget that a figure must reach.
func AtLeast(limit float64) *Budget { return &Budget{AtLeast: limit} }

// Quotient is one quantity per other one. Both are more than nothing wherever they were measured, so a zero makes the
// figure one that was not measured.
func Quotient(name string, of, to float64, budget *Budget) Figure {
	f := Figure{Name: name, Unit: Ratio, Budget: budget, NotMeasured: of <= 0 || to <= 0}
	if !f.NotMeasured {
		f.Value = of / to
	}
	return f
}

// Memory is a number of bytes in MiB. No process needs none, so zero was not measured.
func Memory(name string, bytes int64, budget *Budget) Figure {
	return Figure{Name: name, Value: float64(bytes) / (1 << 20), Unit: MiB, Budget: budget, NotMeasured: bytes <= 0}
}

// Met reports whether the figure keeps within its budget. One that was not measured does not.
func (f Figure) Met() bool {
	switch {
	case f.NotMeasured:
		return false
	case f.Budget == nil:
		return true
	case f.Budget.AtLeast > 0:
		return f.Value >= f.Budget.AtLeast
	default:
		return f.Value <= f.Budget.AtMost
	}
}

// String is the budget as a table shows it.
func (b Budget) String() string {
	if b.AtLeast > 0 {
		return "≥ " + number(b.AtLeast)
	}
	return "≤ " + number(b.AtMost)
}

// Missed lists the figures that are outside their budget, or have one and were not measured.
func (r Report) Missed() []Figure {
	var missed []Figure
	for _, s := range r.Sections {
		for _, f := range s.Figures {
			if f.Budget != nil && !f.Met() {
				missed = append(missed, f)
			}
		}
	}
	return missed
}

// Ms is a duration in milliseconds.
func Ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// JSON is the report for later comparison.
func (r Report) JSON() ([]byte, error) {
	data, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("encode the report: %w", err)
	}
	return append(data, '\n'), nil
}

// Parse reads a report back.
func Parse(data []byte) (Report, error) {
	var r Report
	if err := json.Unmarshal(data, &r); err != nil {
		return Report{}, fmt.Errorf("not a report of this program: %w", err)
	}
	if r.Version != Version {
		return Report{}, fmt.Errorf("report format %d, this program reads %d: measure again", r.Version, Version)
	}
	return r, nil
}
