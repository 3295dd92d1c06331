package workflows_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
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

// TestEachNightlyTargetHasAJob, which runs as much of it as make test-nightly does. Targets deps-… test nothing.
func TestEachNightlyTargetHasAJob(t *testing.T) {
	makefile := read(t, root+"/Makefile")
	lanes := regexp.MustCompile(`(?m)^test-nightly: deps.*\n\t@\$\(call lanes,(.*)\)$`).FindStringSubmatch(makefile)
	if lanes == nil {
		t.Fatal("the Makefile does not say which targets test-nightly runs")
	}
	nightly := read(t, root+"/.github/workflows/nightly.yaml")
	for _, target := range regexp.MustCompile(`[ ,]`).Split(lanes[1], -1) {
		if strings.HasPrefix(target, "deps-") {
			continue
		}
		if !regexp.MustCompile(`(?m)^ +- run: .*make ` + target + `( .*)?$`).MatchString(nightly) {
			t.Errorf("nightly.yaml has no job that runs make %s", target)
		}
	}
	exports := regexp.MustCompile(`(?m)^test-nightly: export (\w+) := (\S+)$`).FindAllStringSubmatch(makefile, -1)
	if len(exports) == 0 {
		t.Error("the Makefile exports nothing for test-nightly")
	}
	for _, export := range exports {
		if !regexp.MustCompile(`\b` + export[1] + `(: |=)` + export[2] + `\b`).MatchString(nightly) {
			t.Errorf("nightly.yaml has no job with %s=%s", export[1], export[2])
		}
	}
}
