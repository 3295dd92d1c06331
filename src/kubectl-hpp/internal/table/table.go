// Package table writes rows: for people in columns, for programs as JSON or YAML, or only their names.
package table

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"
	"sigs.k8s.io/yaml"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/bytesize"
)

// Formats.
const (
	Table = "table"
	Wide  = "wide"
	JSON  = "json"
	YAML  = "yaml"
	Name  = "name"
)

// Column is one of a table.
type Column[T any] struct {
	Head string
	Cell func(T) string // "" is shown as "-"
	Wide bool           // it is in the wide table alone
}

// Rows is what is written.
type Rows[T any] struct {
	All     []T
	Columns []Column[T]
	Name    func(T) string
}

// Check refuses a format that is none of these.
func Check(format string, allowed ...string) error {
	if slices.Contains(allowed, format) {
		return nil
	}
	return fmt.Errorf("--output: %q: want %s", format, strings.Join(allowed, ", "))
}

// Write writes rows in a format. No rows are an empty list, and in a table nothing.
func (r Rows[T]) Write(w io.Writer, format string) error {
	switch format {
	case JSON, YAML:
		if r.All == nil {
			r.All = []T{}
		}
		return Document(w, format, r.All)
	case Name:
		for _, row := range r.All {
			if _, err := fmt.Fprintln(w, r.Name(row)); err != nil {
				return err
			}
		}
		return nil
	}
	if len(r.All) == 0 {
		return nil
	}
	columns := slices.DeleteFunc(slices.Clone(r.Columns), func(c Column[T]) bool { return c.Wide && format != Wide })
	lines := make([][]string, 1, 1+len(r.All))
	for _, c := range columns {
		lines[0] = append(lines[0], c.Head)
	}
	for _, row := range r.All {
		var line []string
		for _, c := range columns {
			cell := c.Cell(row)
			if cell == "" {
				cell = "-"
			}
			line = append(line, cell)
		}
		lines = append(lines, line)
	}
	return Lines(w, lines)
}

// Lines writes cells in columns.
func Lines(w io.Writer, lines [][]string) error {
	table := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	for _, line := range lines {
		fmt.Fprintln(table, strings.TrimRight(strings.Join(line, "\t"), "\t"))
	}
	return table.Flush()
}

// Document writes a value as JSON or YAML.
func Document(w io.Writer, format string, value any) error {
	if format == YAML {
		text, err := yaml.Marshal(value)
		if err == nil {
			_, err = w.Write(text)
		}
		return err
	}
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	return encoder.Encode(value)
}

// Bytes is a size for people, "" where it is not known.
func Bytes(size *int64) string {
	if size == nil {
		return ""
	}
	return bytesize.Format(*size)
}

// Count is a number, "" where it is not known.
func Count(n *int64) string {
	if n == nil {
		return ""
	}
	return fmt.Sprint(*n)
}

// Age is the time since then, "" where that is not known.
func Age(then, now time.Time) string {
	if then.IsZero() {
		return ""
	}
	return duration.HumanDuration(max(0, now.Sub(then)))
}
