package report

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// sample is a report with everything in it.
func sample() Report {
	return Report{
		Started: time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC),
		Machine: Machine{
			CPU: "Some CPU", Cores: 2, Kernel: "6.18", OS: "linux", Arch: "amd64", Driver: "abc1234",
			LoadBefore: 0.25, LoadAfter: 1.5,
		},
		Sections: []Section{
			{Title: "Driver", About: "Over its socket.", Figures: []Figure{
				{Name: "CreateVolume p50", Value: 1.234, Unit: Milliseconds, Samples: 500, Budget: AtMost(2)},
				{Name: "CreateVolume p99", Value: 12.34, Unit: Milliseconds, Samples: 500, Budget: AtMost(10)},
				{Name: "CreateVolume, 16 clients", Value: 812.4, Unit: PerSecond, Budget: AtLeast(500)},
				{Name: "RSS", Value: 19, Unit: MiB},
			}},
			{Title: "Burst", Figures: []Figure{
				{
					Name: "Bound, ours / local-path", Value: 7.9, Low: 7, High: 7.99, Unit: Ratio, Samples: 4,
					Budget: AtLeast(8),
				},
				{
					Name: "Running, ours / ceiling", Value: 1.06, Low: 1.02, High: 1.1, Unit: Ratio, Samples: 4,
					Budget: AtMost(1.05),
				},
			}},
		},
		Notes: []string{"The machine was not quiet."},
		Bench: []BenchLine{
			{Name: "CreateVolume/fs=host/volumes=100", N: 50, Values: map[string]float64{"ns/op": 1234567}},
			{Name: "Burst/system=ours", N: 60, Values: map[string]float64{"running-s": 20.5, "bound/s": 4.12}},
		},
	}
}

// golden compares text with a file; `go test ./perf/... -update` writes it anew.
func golden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if update := flag.Lookup("update"); update != nil && update.Value.String() == "true" {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", file, diff)
	}
}

func TestMain(m *testing.M) {
	flag.Bool("update", false, "write the golden files anew")
	m.Run()
}

func TestMarkdown(t *testing.T) { golden(t, "report.md", sample().Markdown()) }

func TestMarkdownAllMet(t *testing.T) {
	r := sample()
	r.Sections = r.Sections[:1]
	r.Sections[0].Figures[1].Value = 9.99
	if text := r.Markdown(); !strings.Contains(text, "Budgets: 3 of 3 met.\n") || strings.Contains(text, "missed") {
		t.Errorf("got:\n%s", text)
	}
}

func TestBenchText(t *testing.T) { golden(t, "bench.txt", sample().BenchText()) }

func TestVerdict(t *testing.T) {
	for name, c := range map[string]struct {
		figure Figure
		want   Verdict
	}{
		"no budget":                    {Figure{Value: 2}, Unbudgeted},
		"at the limit":                 {Figure{Value: 2, Budget: AtMost(2)}, Met},
		"a step past it":               {Figure{Value: 2.001, Budget: AtMost(2)}, Missed},
		"at the least":                 {Figure{Value: 8, Budget: AtLeast(8)}, Met},
		"a step below it":              {Figure{Value: 7.999, Budget: AtLeast(8)}, Missed},
		"an interval within":           {Figure{Value: 1.5, Low: 1, High: 2, Budget: AtMost(2)}, Met},
		"an interval past it":          {Figure{Value: 2.5, Low: 2.1, High: 3, Budget: AtMost(2)}, Missed},
		"a budget in the interval":     {Figure{Value: 1.9, Low: 1, High: 2.1, Budget: AtMost(2)}, Open},
		"the least in the interval":    {Figure{Value: 1.9, Low: 1, High: 2.1, Budget: AtLeast(2)}, Open},
		"a ratio without its divisor":  {Quotient("x", []float64{1}, []float64{0}, AtMost(1.2)), Missed},
		"a ratio without its dividend": {Quotient("x", nil, []float64{1}, AtMost(1.2)), Missed},
		"a ratio":                      {Quotient("x", []float64{3}, []float64{2}, AtMost(1.5)), Met},
		"a difference": {
			Difference("x", Milliseconds, []float64{3}, []float64{2}, AtMost(0.9)), Missed,
		},
		"memory of no process": {Memory("x", 0, AtMost(90)), Missed},
	} {
		if got := c.figure.Verdict(); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

func TestWhatWasNotMeasuredIsNotMet(t *testing.T) {
	text := Report{Sections: []Section{{Figures: []Figure{Memory("x", 0, AtMost(90))}}}}.Markdown()
	for _, want := range []string{
		"Budgets: 0 of 1 met.", "- x: not measured, budget ≤ 90: **missed**", "| x | not measured |",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
}
