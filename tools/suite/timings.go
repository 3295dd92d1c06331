package main

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// whole stands for a test's name in the line of its package.
const whole = "-"

// timing is a line of a file in artifacts/timings.
type timing struct {
	seconds               float64
	target, pkg, testName string
}

// slowest prints the slowest tests of all files in a folder. Subtests are parts of their tests, and in the files.
func slowest(out io.Writer, folder string, number int) error {
	files, err := filepath.Glob(filepath.Join(folder, "*.tsv"))
	if err != nil {
		return err
	}
	var all []timing
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		for line := range strings.Lines(string(data)) {
			t, err := parse(strings.TrimSuffix(line, "\n"))
			if err != nil {
				return fmt.Errorf("%s: %w", file, err)
			}
			if t.testName != whole && !strings.Contains(t.testName, "/") {
				all = append(all, t)
			}
		}
	}
	slices.SortStableFunc(all, func(a, b timing) int { return cmp.Compare(b.seconds, a.seconds) })
	for _, t := range all[:min(number, len(all))] {
		_, err := fmt.Fprintf(out, "%7.1f s  %s (%s, %s)\n", t.seconds, t.testName, path.Base(t.pkg), t.target)
		if err != nil {
			return err
		}
	}
	return nil
}

func parse(line string) (timing, error) {
	fields := strings.Split(line, "\t")
	if len(fields) != 4 {
		return timing{}, fmt.Errorf("line %q: want seconds, target, package and test, with tabs between", line)
	}
	seconds, err := strconv.ParseFloat(fields[0], 64)
	return timing{seconds, fields[1], fields[2], fields[3]}, err
}
