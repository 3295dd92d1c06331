package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// skip leaves tests out, by a regular expression of their names.
type skip struct{ tests, reason string }

// skips are the tests of the suite that are not run. Those that need a capability which testdriver.yaml does not claim
// skip themselves, or are not there.
func skips() []skip {
	return []skip{
		{`\[Disruptive\]`, "they stop the kubelet, or a server of files, over SSH, which kind's nodes do not serve"},
		{
			`should provision storage with any volume data source`,
			"it runs hello-populator and volume-data-source-validator, whose modules the Go proxy does not serve",
		},
	}
}

// outcome is what became of the tests of storage.
type outcome struct {
	passed, failed []string       // names
	left           []int          // how many, for each of skips
	declined       map[string]int // how many, by the reason that the suite gave
}

// test is one of Ginkgo's report. Failure has the reason too why a test skipped itself.
type test struct {
	ContainerHierarchyTexts []string
	LeafNodeType            string
	LeafNodeText            string
	State                   string
	Failure                 struct{ Message string }
}

// read takes the tests of storage, and whatever failed, out of a report of Ginkgo.
func read(report []byte) (*outcome, error) {
	o := &outcome{left: make([]int, len(skips())), declined: map[string]int{}}
	var suites []struct{ SpecReports []test }
	if err := json.Unmarshal(report, &suites); err != nil {
		return o, fmt.Errorf("read Ginkgo's report: %w", err)
	}
	for _, suite := range suites {
		for _, t := range suite.SpecReports {
			o.add(t)
		}
	}
	return o, nil
}

func (o *outcome) add(t test) {
	name := strings.Join(append(t.ContainerHierarchyTexts, t.LeafNodeText), " ")
	switch {
	case t.State != "passed" && t.State != "skipped" && t.State != "pending":
		o.failed = append(o.failed, strings.TrimSpace(t.LeafNodeType+" "+name))
	case t.LeafNodeType != "It" || !strings.Contains(name, "External Storage"):
	case t.State == "passed":
		o.passed = append(o.passed, name)
	case t.Failure.Message != "":
		o.declined[t.Failure.Message]++
	default:
		for i, s := range skips() {
			if regexp.MustCompile(s.tests).MatchString(name) {
				o.left[i]++
				break
			}
		}
	}
}

// String is what a person reads at the end of a run.
func (o *outcome) String() string {
	var b strings.Builder
	left, declined := 0, 0
	for i, s := range skips() {
		left += o.left[i]
		fmt.Fprintf(&b, "left out %d: %s\n", o.left[i], s.reason)
	}
	for _, reason := range slices.Sorted(maps.Keys(o.declined)) {
		declined += o.declined[reason]
		fmt.Fprintf(&b, "skipped itself %d: %s\n", o.declined[reason], reason)
	}
	for _, name := range o.failed {
		fmt.Fprintf(&b, "FAILED: %s\n", name)
	}
	fmt.Fprintf(&b, "External.Storage: %d passed, %d failed, %d skipped themselves, %d left out\n",
		len(o.passed), len(o.failed), declined, left)
	return b.String()
}

// verdict is an error unless tests ran, none failed and, if all were asked for, each of skips leaves one out.
func (o *outcome) verdict(all bool) error {
	var errs []error
	if len(o.failed) > 0 {
		errs = append(errs, fmt.Errorf("%d tests failed", len(o.failed)))
	}
	if len(o.passed) == 0 {
		errs = append(errs, errors.New("no test passed"))
	}
	for i, s := range skips() {
		if all && o.left[i] == 0 {
			errs = append(errs, fmt.Errorf("no test is called %s: remove it from skips", s.tests))
		}
	}
	return errors.Join(errs...)
}
