package report

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Markdown is the report for people. plot is the file name of the picture beside it, "" where there is none.
func (r Report) Markdown(plot string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "# Performance, %s\n\n", r.Started.UTC().Format(time.RFC3339))
	fmt.Fprintf(&b, "Driver %s on %s (%d cores), kernel %s. Load average before %s, after %s.\n",
		r.Machine.Driver, r.Machine.CPU, r.Machine.Cores, r.Machine.Kernel, number(r.Machine.LoadBefore),
		number(r.Machine.LoadAfter))
	b.WriteString("Absolute figures mean nothing on another machine: compare them with the baselines and peers of the " +
		"same run.\n\n")
	b.WriteString(r.verdict())
	if plot != "" {
		fmt.Fprintf(&b, "\n![plot](%s)\n", plot)
	}
	for _, s := range r.Sections {
		fmt.Fprintf(&b, "\n## %s\n\n", s.Title)
		if s.About != "" {
			b.WriteString(s.About + "\n\n")
		}
		b.WriteString(s.table())
	}
	if len(r.Notes) > 0 {
		b.WriteString("\n## Notes\n\n")
		for _, n := range r.Notes {
			b.WriteString("- " + n + "\n")
		}
	}
	return b.String()
}

// verdict is the summary of all budgets.
func (r Report) verdict() string {
	total := 0
	for _, s := range r.Sections {
		for _, f := range s.Figures {
			if f.Budget != nil {
				total++
			}
		}
	}
	missed := r.Missed()
	if len(missed) == 0 {
		return fmt.Sprintf("Budgets: all %d met.\n", total)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "Budgets: %d of %d met. Missed:\n\n", total-len(missed), total)
	for _, f := range missed {
		fmt.Fprintf(&b, "- %s: %s, budget %s\n", f.Name, f.quantity(), f.Budget)
	}
	return b.String()
}

func (s Section) table() string {
	var b strings.Builder
	b.WriteString("| what | measured | n | budget | |\n|---|---:|---:|---:|---|\n")
	for _, f := range s.Figures {
		samples, budget, met := "", "", ""
		if f.Samples > 0 {
			samples = strconv.Itoa(f.Samples)
		}
		if f.Budget != nil {
			budget, met = f.Budget.String(), "**missed**"
			if f.Met() {
				met = "met"
			}
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s |\n", f.Name, f.quantity(), samples, budget, met)
	}
	return b.String()
}

// quantity is the value with its unit.
func (f Figure) quantity() string {
	if f.NotMeasured {
		return "not measured"
	}
	if f.Unit == Ratio || f.Unit == Count {
		return number(f.Value) + string(f.Unit)
	}
	return number(f.Value) + " " + string(f.Unit)
}

// number writes three significant digits, and whole numbers in full.
func number(v float64) string {
	switch {
	case v == float64(int64(v)):
		return strconv.FormatInt(int64(v), 10)
	case v >= 100 || v <= -100:
		return strconv.FormatFloat(v, 'f', 0, 64)
	default:
		return strconv.FormatFloat(v, 'g', 3, 64)
	}
}
