package docs

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// metricsPage lists every metric of every program.
const metricsPage = "reference/metrics.md"

// RecordingRule is the type, on that page, of what Prometheus makes of metrics by the chart's rules.
const RecordingRule = "recording rule"

// Metric is what is known of a metric beside its name.
type Metric struct {
	Type   string // "gauge"; empty: not known
	Labels []string
}

// Metrics are those of sections of the page, by name. A name that ends in * stands for all that begin so; their types
// and labels are not ours, and empty.
func Metrics(sections ...string) (map[string]Metric, error) {
	all := map[string]Metric{}
	for _, section := range sections {
		rows, err := Table(metricsPage, section)
		if err != nil {
			return nil, err
		}
		for _, row := range rows {
			if len(row) != 4 { // metric, type, labels, meaning
				return nil, fmt.Errorf("%s, %s: %d cells in the row of %s, want 4", metricsPage, section, len(row),
					row[0])
			}
			for _, name := range Code(row[0]) {
				all[name] = Metric{Type: row[1], Labels: slices.Sorted(slices.Values(Code(row[2])))}
			}
		}
	}
	return all, nil
}

// CheckMetrics compares what a program exports with sections of the page: one line for each metric that is in one of
// them alone, or otherwise there.
func CheckMetrics(exported map[string]Metric, sections ...string) error {
	told, err := Metrics(sections...)
	if err != nil {
		return err
	}
	maps.DeleteFunc(told, func(_ string, m Metric) bool { return m.Type == RecordingRule })
	var problems []error
	seen := map[string]bool{}
	for _, name := range slices.Sorted(maps.Keys(exported)) {
		row := rowOf(name, told)
		seen[row] = true
		is, says := exported[name], told[row]
		slices.Sort(is.Labels)
		switch {
		case row == "":
			problems = append(problems, fmt.Errorf("%s is exported and not in %s, %q", name, metricsPage, sections))
		case strings.HasSuffix(row, "*"):
		case is.Type != "" && is.Type != says.Type || !slices.Equal(is.Labels, says.Labels):
			problems = append(problems, fmt.Errorf("%s is a %s with the labels %q, %s says %s with %q",
				name, is.Type, is.Labels, metricsPage, says.Type, says.Labels))
		}
	}
	for _, row := range slices.Sorted(maps.Keys(told)) {
		if !seen[row] {
			problems = append(problems, fmt.Errorf("%s is in %s and not exported", row, metricsPage))
		}
	}
	return errors.Join(problems...)
}

// rowOf is the row that a metric has: its own, or one that ends in *.
func rowOf(name string, told map[string]Metric) string {
	if _, ok := told[name]; ok {
		return name
	}
	for row := range told {
		if start, is := strings.CutSuffix(row, "*"); is && strings.HasPrefix(name, start) {
			return row
		}
	}
	return ""
}

// Exposed reads what /metrics answers, in Prometheus' text format. A metric without a sample is not there.
func Exposed(text string) map[string]Metric {
	var (
		kind    = regexp.MustCompile(`^# TYPE (\S+) (\S+)$`)
		sample  = regexp.MustCompile(`^(\w+)(?:\{(.*)\})? `)
		label   = regexp.MustCompile(`(\w+)="(?:[^"\\]|\\.)*"`)
		all     = map[string]Metric{}
		current string
	)
	for line := range strings.Lines(text) {
		if match := kind.FindStringSubmatch(strings.TrimSpace(line)); match != nil {
			current = match[1]
			all[current] = Metric{Type: match[2]}
			continue
		}
		match := sample.FindStringSubmatch(line)
		if match == nil || !strings.HasPrefix(match[1], current) {
			continue
		}
		m := all[current]
		for _, l := range label.FindAllStringSubmatch(match[2], -1) {
			if own := l[1]; own != "le" && own != "quantile" && !slices.Contains(m.Labels, own) {
				m.Labels = append(m.Labels, own)
			}
		}
		all[current] = m
	}
	return all
}
