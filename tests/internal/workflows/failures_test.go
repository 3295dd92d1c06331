package workflows_test

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// TestPipesFail where one of their commands fails: `push | tee` must not end well because tee did.
func TestPipesFail(t *testing.T) {
	for name, j := range jobs(t) {
		if shell := j.Defaults.Run.Shell; shell != "" {
			t.Errorf("%s has the shell %q of its own", name, shell)
		}
		for _, s := range j.Steps {
			if s.Shell != "" || strings.Contains(s.Run, "+o pipefail") || strings.Contains(s.Run, "set +e") {
				t.Errorf("%s: a step that goes on after an error, or may: shell %q\n%s", name, s.Shell, s.Run)
			}
		}
	}
	scripts, err := filepath.Glob(root + "/.github/*.sh")
	if err != nil || len(scripts) < 4 {
		t.Fatalf("scripts: %v, %v", scripts, err)
	}
	for _, script := range scripts {
		if !strings.Contains(read(t, script), "\nset -euo pipefail\n") {
			t.Errorf("%s: want set -euo pipefail", script)
		}
	}
	if !strings.Contains(read(t, root+"/Makefile"), "\n.SHELLFLAGS := -euo pipefail -c\n") {
		t.Error("Makefile: want .SHELLFLAGS with pipefail")
	}
}

// TestJobsOutliveTheirTests: these then end by themselves, and leave what is needed to understand it.
func TestJobsOutliveTheirTests(t *testing.T) {
	checked := 0
	for name, j := range jobs(t) {
		var tests time.Duration
		for _, s := range j.Steps {
			tests += limits(t, s.Run)
		}
		if tests > 0 {
			checked++
		}
		if whole := time.Duration(j.TimeoutMinutes) * time.Minute; tests > 0 && whole < tests+10*time.Minute {
			t.Errorf("%s: it has %s, and its tests have %s: want ten minutes more", name, whole, tests)
		}
	}
	if checked < 8 {
		t.Errorf("only %d jobs were looked at", checked)
	}
}

// limits is the time that the go commands of a step have together.
func limits(t *testing.T, run string) (all time.Duration) {
	t.Helper()
	runs := []string{run}
	for _, match := range command.FindAllStringSubmatch(run, -1) {
		runs = append(runs, recipe(t, match[2]))
	}
	text := strings.Join(runs, "\n")
	// What a step gives goes before what a target says, and that before the Makefile's default.
	for _, source := range []string{run, read(t, root+"/Makefile")} {
		for _, match := range regexp.MustCompile(`(\w+_TIMEOUT) ?\??=(?: ?)(\d\S*)`).FindAllStringSubmatch(source, -1) {
			text = strings.ReplaceAll(text, "$("+match[1]+")", match[2])
		}
	}
	for _, match := range regexp.MustCompile(`-timeout (\S+)`).FindAllStringSubmatch(text, -1) {
		limit, err := time.ParseDuration(match[1])
		if err != nil {
			t.Fatalf("%s: %v", run, err)
		}
		all += limit
	}
	return all
}

// TestFailuresLeaveArtifacts, also where a job's time is over; of a cluster that was left behind, its logs.
func TestFailuresLeaveArtifacts(t *testing.T) {
	clusters := regexp.MustCompile(`make (e2e|e2e-nightly|chart-test)\b|(up-and-down|cert-manager|kubevirt)\.sh`)
	others := regexp.MustCompile(`make (test-sanity|test-power|fuzz)\b`)
	checked := 0
	for name, j := range jobs(t) {
		cluster, other := false, false
		var logs, upload int // the number of the step, counted from 1
		for i, s := range j.Steps {
			cluster = cluster || clusters.MatchString(s.Run)
			other = other || others.MatchString(s.Run)
			if s.If != "failure() || cancelled()" {
				continue
			}
			if s.Run == ".github/kind-logs.sh" {
				logs = i + 1
			}
			if strings.HasPrefix(s.Uses, "actions/upload-artifact@") {
				upload = i + 1
			}
		}
		if !cluster && !other {
			continue
		}
		checked++
		if upload == 0 {
			t.Errorf("%s leaves nothing when it fails or its time is over", name)
		}
		if cluster && (logs == 0 || logs > upload) {
			t.Errorf("%s makes a cluster, and leaves nothing of it when its time is over", name)
		}
	}
	if checked < 9 {
		t.Errorf("only %d jobs were looked at", checked)
	}
}
