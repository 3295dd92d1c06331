// Package docs gives the pages of the reference to the tests that hold them to the code.
package docs

import (
	"embed"
	"fmt"
	"strings"
)

//go:embed reference/*.md
var pages embed.FS

// Table returns the rows of all tables below a heading of a page ("reference/metrics.md", "A node"), without their
// heads, up to the next heading. What stands between the bars is as it is written.
func Table(page, heading string) (rows [][]string, err error) {
	text, err := pages.ReadFile(page)
	if err != nil {
		return nil, err
	}
	within, below := false, false
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		switch {
		case strings.HasPrefix(line, "#"):
			within, below = strings.TrimLeft(line, "# ") == heading, false
		case !within:
		case !strings.HasPrefix(line, "|"):
			below = false
		case strings.HasPrefix(line, "|---"):
			below = true
		case below:
			rows = append(rows, cells(line))
		}
	}
	if len(rows) == 0 {
		return nil, fmt.Errorf("%s has no table below %q", page, heading)
	}
	return rows, nil
}

// cells are those of a row. A bar with a backslash before it is text.
func cells(row string) (all []string) {
	const bar = "\x00"
	for cell := range strings.SplitSeq(strings.Trim(strings.ReplaceAll(row, `\|`, bar), "|"), "|") {
		all = append(all, strings.TrimSpace(strings.ReplaceAll(cell, bar, "|")))
	}
	return all
}

// Code are the words in backticks of a cell.
func Code(cell string) (words []string) {
	for i, part := range strings.Split(cell, "`") {
		if i%2 == 1 {
			words = append(words, part)
		}
	}
	return words
}
