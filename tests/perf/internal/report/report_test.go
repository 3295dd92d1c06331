package report

import (
	"encoding/xml"
	"errors"
	"flag"
	"io"
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
		Version: Version,
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
			{Title: "Burst", Figures: []Figure{{Name: "Bound, ours / local-path", Value: 7.9, Unit: Ratio, Budget: AtLeast(8)}}},
		},
		Notes: []string{"The machine was not quiet."},
		Bench: []BenchLine{
			{Name: "CreateVolume/fs=host/volumes=100", N: 50, NsPerOp: 1234567, P50: 1200000, P99: 3400000},
			{Name: "Recovery/fs=host/volumes=100000", N: 1, NsPerOp: 3e9},
		},
		Panels: []Panel{{
			Title: "Claims & pods", X: "seconds", Y: "bound",
			Curves: []Curve{
				{Name: "ours", Points: []Point{{0, 0}, {1.5, 20}, {15.6, 60}}},
				{Name: "rancher <local-path>", Points: []Point{{0, 0}, {111.5, 60}}},
			},
		}},
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

func TestMarkdown(t *testing.T) { golden(t, "report.md", sample().Markdown("plot.svg")) }

func TestMarkdownAllMet(t *testing.T) {
	r := sample()
	r.Sections = r.Sections[:1]
	r.Sections[0].Figures[1].Value = 9.99
	if text := r.Markdown(""); !strings.Contains(text, "Budgets: all 3 met.") || strings.Contains(text, "missed") ||
		strings.Contains(text, "![") {
		t.Errorf("got:\n%s", text)
	}
}

func TestBenchText(t *testing.T) { golden(t, "bench.txt", sample().BenchText()) }

func TestSVG(t *testing.T) {
	svg, err := sample().SVG()
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "plot.svg", svg)
	for d := xml.NewDecoder(strings.NewReader(svg)); ; {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatalf("not XML: %v", err)
		}
	}
}

func TestSVGWithoutPanels(t *testing.T) {
	if svg, err := (Report{}).SVG(); svg != "" || err != nil {
		t.Errorf("got %q, %v", svg, err)
	}
}

func TestJSONRoundTrip(t *testing.T) {
	data, err := sample().JSON()
	if err != nil {
		t.Fatal(err)
	}
	got, err := Parse(data)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(sample(), got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestParseRefuses(t *testing.T) {
	for name, text := range map[string]string{"no JSON": "BenchmarkX 1", "another format": `{"version": 99}`} {
		if _, err := Parse([]byte(text)); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

func TestCompare(t *testing.T) {
	older, newer := sample(), sample()
	older.Started = older.Started.Add(-time.Hour)
	newer.Sections[0].Figures[0].Value *= 2
	newer.Sections[0].Figures[2].Value /= 2
	newer.Sections[0].Figures[3].Name = "RSS after a burst"
	golden(t, "compare.md", Compare(older, newer))
}

func TestMissed(t *testing.T) {
	var names []string
	for _, f := range sample().Missed() {
		names = append(names, f.Name)
	}
	if diff := cmp.Diff([]string{"CreateVolume p99", "Bound, ours / local-path"}, names); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestBudgetAtTheLimit(t *testing.T) {
	met := func(b *Budget, value float64) bool { return Figure{Value: value, Budget: b}.Met() }
	if !met(AtMost(2), 2) || met(AtMost(2), 2.001) || !met(AtLeast(8), 8) || met(AtLeast(8), 7.999) {
		t.Error("a limit itself is within the budget, one step past it is not")
	}
}

func TestWhatWasNotMeasuredIsNotMet(t *testing.T) {
	for name, f := range map[string]Figure{
		"a ratio without its divisor":  Quotient("x", 1, 0, AtMost(1.2)),
		"a ratio without its dividend": Quotient("x", 0, 1, AtMost(1.2)),
		"memory of no process":         Memory("x", 0, AtMost(90)),
	} {
		r := Report{Sections: []Section{{Figures: []Figure{f}}}}
		if f.Met() || len(r.Missed()) != 1 {
			t.Errorf("%s counts as met", name)
		}
		text := r.Markdown("")
		for _, want := range []string{"Budgets: 0 of 1 met.", "- x: not measured, budget ≤", "| x | not measured |"} {
			if !strings.Contains(text, want) {
				t.Errorf("%s: no %q in\n%s", name, want, text)
			}
		}
		if text := Compare(r, Report{Sections: []Section{{Figures: []Figure{{Name: "x", Value: 1}}}}}); !strings.Contains(
			text, "| x | not measured | 1 | ? |") {
			t.Errorf("%s: compared as\n%s", name, text)
		}
	}
	if f := Quotient("x", 3, 2, AtMost(1.5)); !f.Met() || f.Value != 1.5 {
		t.Errorf("3 / 2 is %v, met %t", f.Value, f.Met())
	}
}

func TestDistribution(t *testing.T) {
	sorted := make([]float64, 1000)
	for i := range sorted {
		sorted[i] = float64(i + 1)
	}
	c := Distribution("x", sorted)
	if last := c.Points[len(c.Points)-1]; last != (Point{X: 990, Y: 99}) {
		t.Errorf("ends at %v, want 99 %% at 990 ms", last)
	}
	if few := Distribution("x", []float64{7}); len(few.Points) != 1 {
		t.Errorf("one sample: %v", few.Points)
	}
}

func TestTickSteps(t *testing.T) {
	for most, want := range map[float64]float64{0: 1, 4: 1, 60: 20, 111.5: 50, 0.9: 0.2, 99: 20} {
		if got := step(most); got != want {
			t.Errorf("up to %v: step %v, want %v", most, got, want)
		}
	}
}
