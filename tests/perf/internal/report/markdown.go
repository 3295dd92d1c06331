package report

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Markdown is the report for people.
func (r Report) Markdown() string {
	var b strings.Builder
	fmt.Fprintf(&b, "# Performance, %s\n\n", r.Started.UTC().Format(time.RFC3339))
	fmt.Fprintf(&b, "Driver %s on %s (%d cores), kernel %s. Load average before %s, after %s.\n",
		r.Machine.Driver, r.Machine.CPU, r.Machine.Cores, r.Machine.Kernel, number(r.Machine.LoadBefore),
		number(r.Machine.LoadAfter))
	b.WriteString("Absolute figures mean nothing on another machine: compare them with the baselines and peers of " +
		"the same run.\n\n")
	b.WriteString(r.verdict())
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
	met, total, rest := 0, 0, ""
	for _, s := range r.Sections {
		for _, f := range s.Figures {
			switch f.Verdict() {
			case Unbudgeted:
				continue
			case Met:
				met++
			case Missed, Open:
				rest += fmt.Sprintf("- %s: %s, budget %s: %s\n", f.Name, f.quantity(), f.Budget, f.Verdict())
			}
			total++
		}
	}
	if rest != "" {
		rest = " The others, open where the budget is within the interval:\n\n" + rest
	} else {
		rest = "\n"
	}
	return fmt.Sprintf("Budgets: %d of %d met.", met, total) + rest
}

func (s Section) table() string {
	var b strings.Builder
	b.WriteString("| what | measured | n | budget | |\n|---|---:|---:|---:|---|\n")
	for _, f := range s.Figures {
		samples, budget := "", ""
		if f.Samples > 0 {
			samples = strconv.Itoa(f.Samples)
		}
		if f.Budget != nil {
			budget = f.Budget.String()
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s |\n", f.Name, f.quantity(), samples, budget, f.Verdict())
	}
	return b.String()
}

// quantity is the value with its unit and its interval.
func (f Figure) quantity() string {
	if f.NotMeasured {
		return "not measured"
	}
	text := number(f.Value)
	if f.Unit != Ratio && f.Unit != Count {
		text += " "
	}
	text += string(f.Unit)
	if f.Low != 0 || f.High != 0 {
		text += fmt.Sprintf(" (%s to %s)", number(f.Low), number(f.High))
	}
	return text
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
