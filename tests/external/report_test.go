package main

import (
	"strings"
	"testing"
)

// spec is a test in a report of Ginkgo.
func spec(kind, name, state, message string) string {
	return `{"ContainerHierarchyTexts": ["External Storage"], "LeafNodeType": "` + kind + `", "LeafNodeText": "` +
		name + `", "State": "` + state + `", "Failure": {"Message": "` + message + `"}}`
}

// judged is what is found in a report of specs.
func judged(t *testing.T, specs ...string) *outcome {
	t.Helper()
	o, err := read([]byte(`[{"SpecReports": [` + strings.Join(specs, ",") + `]}]`))
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// complete is a run in which each of skips leaves a test out.
func complete() []string {
	return []string{
		spec("It", "should store data", "passed", ""),
		spec("It", "should use a block device", "skipped", "no block"),
		spec("It", "should unmount [Disruptive]", "skipped", ""),
		spec("It", "should provision storage with any volume data source", "skipped", ""),
		spec("It", "of another suite", "skipped", ""),
		strings.Replace(spec("It", "of another driver", "passed", ""), "External Storage", "CSI Volumes", 1),
	}
}

func TestCounts(t *testing.T) {
	o := judged(t, complete()...)
	if err := o.verdict(true); err != nil {
		t.Error(err)
	}
	said := o.String()
	for _, want := range []string{
		"External.Storage: 1 passed, 0 failed, 1 skipped themselves, 2 left out\n",
		"skipped itself 1: no block\n",
		"left out 1: they stop the kubelet,",
	} {
		if !strings.Contains(said, want) {
			t.Errorf("it does not say %q:\n%s", want, said)
		}
	}
}

func TestVerdicts(t *testing.T) {
	for name, specs := range map[string][]string{
		"1 tests failed": append(complete(), spec("It", "should fail", "failed", "why")),
		"tests failed":   append(complete(), spec("SynchronizedBeforeSuite", "", "timedout", "")),
		"no test passed": complete()[1:],
		"remove it":      complete()[:3],
	} {
		if err := judged(t, specs...).verdict(true); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("the verdict is %v, want %q", err, name)
		}
	}
	if err := judged(t, complete()[:1]...).verdict(false); err != nil {
		t.Errorf("some tests were asked for, and passed: %v", err)
	}
	if _, err := read([]byte("no report")); err == nil {
		t.Error("no error for what is no report")
	}
}
