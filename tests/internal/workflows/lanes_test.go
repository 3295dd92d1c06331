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
