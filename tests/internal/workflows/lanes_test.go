package workflows_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"
)

// TestALaneGoesOnAfterAFailure: the targets after one that fails run too, and the lane fails.
func TestALaneGoesOnAfterAFailure(t *testing.T) {
	timings := t.TempDir()
	lane := exec.Command("make", "-C", root, "computes", "COMPUTES=no-such-target help", "TIMINGS="+timings)
	lane.Env = append(os.Environ(), "MAKEFLAGS=")
	printed, err := lane.CombinedOutput()
	if err == nil {
		t.Errorf("the lane passed; it printed\n%s", printed)
	}
	targets := read(t, filepath.Join(timings, "targets.txt"))
	if !regexp.MustCompile(`^make no-such-target: \d+ s, FAILED\nmake help: \d+ s, passed\n$`).MatchString(targets) {
		t.Errorf("targets.txt has\n%s", targets)
	}
}

// TestEachNightlyTargetHasAJob, which runs as much of it.
func TestEachNightlyTargetHasAJob(t *testing.T) {
	lanes := regexp.MustCompile(`(?m)^test-nightly: deps.*\n\t@\$\(call lanes,(.*)\)$`).
		FindStringSubmatch(read(t, root+"/Makefile"))
	if lanes == nil {
		t.Fatal("the Makefile does not say which targets test-nightly runs")
	}
	nightly := read(t, root+"/.github/workflows/nightly.yaml")
	for _, target := range regexp.MustCompile(`[ ,]`).Split(lanes[1], -1) {
		if !regexp.MustCompile(`(?m)^ +- run: .*make ` + target + `( .*)?$`).MatchString(nightly) {
			t.Errorf("nightly.yaml has no job that runs make %s", target)
		}
	}
}
