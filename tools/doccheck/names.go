package main

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strings"
)

// chartReadme is generated: the first cell of each row of its tables names values of the chart.
const chartReadme = "charts/hostpath-provisioner/README.md"

var (
	spanPattern   = regexp.MustCompile("`([^`]+)`")
	keyPattern    = regexp.MustCompile(`(?:^|--set |--set-string )([a-z][A-Za-z]+(?:\.[a-z][A-Za-z]+)+)(?:$|[=: ])`)
	metricPattern = regexp.MustCompile(`\b(?:kubevirt_)?hpp_[a-z_]*[a-z]\b`)
	flagPattern   = regexp.MustCompile(`^--([a-z][a-z-]+)$`)
	reasonPattern = regexp.MustCompile(`^[A-Z][a-z]+[A-Z][A-Za-z]+$`)
)

// names are what a document says by name, and the code has to have.
type names struct {
	keys    []string // values of the chart, dotted
	metrics []string
	terms   []string // flags and reasons that a table of docs/reference explains
}

// readNames looks at one line of a document. In a table's first cell stands what the row explains.
func (n *names) readNames(line string, inBlock bool) {
	codes := []string{line}
	if !inBlock {
		codes = spans(line)
	}
	for _, code := range codes {
		n.metrics = append(n.metrics, metricPattern.FindAllString(code, -1)...)
		for _, match := range keyPattern.FindAllStringSubmatch(code, -1) {
			n.keys = append(n.keys, match[1])
		}
	}
	if cells := strings.Split(line, "|"); !inBlock && strings.HasPrefix(line, "|") && len(cells) > 2 {
		n.terms = append(n.terms, spans(cells[1])...)
	}
}

func spans(text string) []string {
	var found []string
	for _, match := range spanPattern.FindAllStringSubmatch(text, -1) {
		found = append(found, match[1])
	}
	return found
}

// code is what names are looked up in.
type code struct {
	source string   // of all that ships, its tests and the chart's templates
	values []string // of the chart, dotted
}

func readCode(files fs.FS) (code, error) {
	var c code
	var source strings.Builder
	for _, folder := range []string{"src", path.Join(path.Dir(chartReadme), "templates")} {
		err := fs.WalkDir(files, folder, func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() {
				return err
			}
			text, err := fs.ReadFile(files, path)
			source.Write(text)
			return err
		})
		if err != nil {
			return c, fmt.Errorf("read the source: %w", err)
		}
	}
	c.source = source.String()
	readme, err := fs.ReadFile(files, chartReadme)
	for line := range strings.Lines(string(readme)) {
		if cells := strings.Split(line, "|"); strings.HasPrefix(line, "| `") && len(cells) > 2 {
			c.values = append(c.values, spans(cells[1])...)
		}
	}
	return c, errors.Join(err)
}

// history tells of names that are gone.
func history(path string) bool {
	return path == "CHANGELOG.md" || path == "docs/how-to/upgrade.md" || strings.HasPrefix(path, "docs/decisions/")
}

// check returns one sentence for each name that the code does not have. from is the document.
func (c code) check(from string, n names) []string {
	if history(from) {
		return nil
	}
	var problems []string
	for _, key := range n.keys {
		if !c.hasValue(key) {
			problems = append(problems, fmt.Sprintf("names `%s`, which is no value of the chart", key))
		}
	}
	for _, metric := range n.metrics {
		if !strings.Contains(c.source, metric) {
			problems = append(problems,
				fmt.Sprintf("names the metric `%s`, which is in neither src nor the chart", metric))
		}
	}
	if strings.HasPrefix(from, "docs/reference/") {
		for _, term := range n.terms {
			problems = append(problems, c.checkTerm(term)...)
		}
	}
	return problems
}

func (c code) checkTerm(term string) []string {
	if match := flagPattern.FindStringSubmatch(term); match != nil && !strings.Contains(c.source, `"`+match[1]+`"`) {
		return []string{fmt.Sprintf("explains the flag `%s`, which is not in src", term)}
	}
	if reasonPattern.MatchString(term) && !strings.Contains(c.source, term) {
		return []string{fmt.Sprintf("explains `%s`, which is not in src", term)}
	}
	return nil
}

// hasValue reports whether key is a value, has values below it, or lies below one that is a whole object. Files, and
// what begins with no value of the chart, are something else.
func (c code) hasValue(key string) bool {
	top, _, _ := strings.Cut(key, ".")
	ofChart := slices.ContainsFunc(c.values, func(value string) bool { return strings.HasPrefix(value, top+".") })
	return !ofChart || path.Ext(key) == ".yaml" || slices.ContainsFunc(c.values, func(value string) bool {
		return value == key || strings.HasPrefix(value, key+".") || strings.HasPrefix(key, value+".")
	})
}
