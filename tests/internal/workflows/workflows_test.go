// Package workflows_test holds .github to what keeps it green, and to what keeps what is published ours.
package workflows_test

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

const root = "../../.."

// defaults are those of a workflow or a job.
type defaults struct {
	Run struct {
		Shell string `json:"shell"`
	} `json:"run"`
}

type job struct {
	Uses           string            `json:"uses"`
	Defaults       defaults          `json:"defaults"`
	Environment    string            `json:"environment"`
	TimeoutMinutes int               `json:"timeout-minutes"`
	Permissions    map[string]string `json:"permissions"`
	Steps          []step            `json:"steps"`
}

type step struct {
	Uses string `json:"uses"`
	Run  string `json:"run"`
	If   string `json:"if"`
	// Shell is what the step runs in, "" for the workflow's.
	Shell string         `json:"shell"`
	With  map[string]any `json:"with"`
}

// with is an input of the job's step that uses an action.
func (j job) with(action, input string) string {
	for _, s := range j.Steps {
		if strings.HasPrefix(s.Uses, action) {
			value, _ := s.With[input].(string)
			return value
		}
	}
	return ""
}

// jobs are those of all workflows, by workflow and name. What a workflow says of all its jobs is looked at here.
func jobs(t *testing.T) map[string]job {
	t.Helper()
	files, err := filepath.Glob(root + "/.github/workflows/*")
	if err != nil || len(files) < 4 {
		t.Fatalf("workflows: %v, %v", files, err)
	}
	all := map[string]job{}
	for _, file := range files {
		var w struct {
			Defaults    defaults          `json:"defaults"`
			Permissions map[string]string `json:"permissions"`
			Jobs        map[string]job    `json:"jobs"`
		}
		if err := yaml.Unmarshal([]byte(read(t, file)), &w); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		if w.Defaults.Run.Shell != "bash" {
			t.Errorf("%s: the default shell is without pipefail: want defaults.run.shell: bash", file)
		}
		if len(w.Permissions) != 1 || w.Permissions["contents"] != "read" {
			t.Errorf("%s: its jobs begin with the permissions %v: want contents: read", file, w.Permissions)
		}
		for name, j := range w.Jobs {
			all[filepath.Base(file)+" "+name] = j
		}
	}
	return all
}

func read(t *testing.T, file string) string {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// TestActionsArePinned: a tag can be moved to other code, a commit cannot. The comment is for people and dependabot.
func TestActionsArePinned(t *testing.T) {
	files, err := filepath.Glob(root + "/.github/workflows/*")
	if err != nil {
		t.Fatal(err)
	}
	nested, err := filepath.Glob(root + "/.github/actions/*/*")
	if err != nil {
		t.Fatal(err)
	}
	pinned, seen := regexp.MustCompile(`^[\w-]+/[\w-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+$`), 0
	for _, file := range append(files, nested...) {
		for _, match := range regexp.MustCompile(`uses: (.*)`).FindAllStringSubmatch(read(t, file), -1) {
			seen++
			if !strings.HasPrefix(match[1], "./") && !pinned.MatchString(match[1]) {
				t.Errorf("%s: %s: want a commit, and its version as a comment", file, match[1])
			}
		}
	}
	if seen < 30 {
		t.Errorf("only %d uses of actions were found", seen)
	}
}

func TestJobsEndAndKeepNoCredentials(t *testing.T) {
	for name, j := range jobs(t) {
		if j.Uses != "" {
			continue // a called workflow's jobs are looked at there
		}
		if j.TimeoutMinutes == 0 {
			t.Errorf("%s: no timeout-minutes", name)
		}
		for _, s := range j.Steps {
			if strings.HasPrefix(s.Uses, "actions/checkout@") && s.With["persist-credentials"] != false {
				t.Errorf("%s: the checkout leaves its credentials to the steps after it", name)
			}
		}
		if !slices.Contains(slices.Collect(maps.Values(j.Permissions)), "write") {
			continue
		}
		caches := func(s step) bool { return strings.HasPrefix(s.Uses, "actions/cache") }
		if j.with("./.github/actions/setup", "cache") != "false" || slices.ContainsFunc(j.Steps, caches) {
			t.Errorf("%s publishes what it makes with a cache that others have written", name)
		}
	}
}

// TestReleaseNeedsReview: a tag can be pushed on any commit, and by whoever may push.
func TestReleaseNeedsReview(t *testing.T) {
	publish := jobs(t)["release.yaml publish"]
	if publish.Environment != "release" {
		t.Errorf("publish runs in the environment %q, want release, which has reviewers", publish.Environment)
	}
	onMain := func(s step) bool { return s.Run == `git merge-base --is-ancestor "$GITHUB_SHA" origin/main` }
	at := slices.IndexFunc(publish.Steps, onMain)
	tools := slices.IndexFunc(publish.Steps, func(s step) bool { return strings.HasSuffix(s.Uses, "/actions/setup") })
	if at < 0 || at > tools || publish.Steps[0].With["fetch-depth"] != float64(0) {
		t.Errorf("publish does not begin with a check that its commit is on main, with all history to look at")
	}
}

// TestSetupWithoutCacheRestoresNothing: what the publishing job asks of the composite action.
func TestSetupWithoutCacheRestoresNothing(t *testing.T) {
	var setup struct {
		Runs job `json:"runs"`
	}
	if err := yaml.Unmarshal([]byte(read(t, root+"/.github/actions/setup/action.yaml")), &setup); err != nil {
		t.Fatal(err)
	}
	checked := 0
	for _, s := range setup.Runs.Steps {
		switch {
		case strings.HasPrefix(s.Uses, "actions/setup-go@"):
			checked++
			if s.With["cache"] != false {
				t.Errorf("%s restores a cache that all jobs share", s.Uses)
			}
		case strings.HasPrefix(s.Uses, "actions/cache"):
			checked++
			if s.If != "inputs.cache == 'true'" {
				t.Errorf("%s restores a cache if %q", s.Uses, s.If)
			}
		case s.Uses != "":
			t.Errorf("%s: does it restore a cache? Say so here", s.Uses)
		case s.Shell != "bash":
			t.Errorf("a step of the composite action runs in %q, want bash, which has pipefail there", s.Shell)
		}
	}
	if checked != 2 {
		t.Errorf("%d steps that cache were found, want setup-go and cache", checked)
	}
}

// command is a make target that a step runs, with or without root.
var command = regexp.MustCompile(`(as-root\.sh )?make ([a-z0-9-]+)`)

// TestJobsHaveTheirPrograms: where a target is run without root, the job installs what the target would.
func TestJobsHaveTheirPrograms(t *testing.T) {
	packages := map[string]string{}
	catalog := read(t, root+"/tools/install/catalog.go")
	for _, match := range regexp.MustCompile(`"([\w.-]+)": +"([\w.-]+)",`).FindAllStringSubmatch(catalog, -1) {
		packages[match[1]] = match[2]
	}
	checked := 0
	for name, j := range jobs(t) {
		has := append(strings.Fields(j.with("./.github/actions/setup", "packages")), "git", "gcc") // a runner has these
		for _, s := range j.Steps {
			match := command.FindStringSubmatch(s.Run)
			if match == nil || match[1] != "" {
				continue
			}
			for _, program := range programs(t, match[2]) {
				if pkg, is := packages[program]; is {
					checked++
					if !slices.Contains(has, pkg) {
						t.Errorf("%s: make %s wants %s, and the job does not install %s", name, match[2], program, pkg)
					}
				}
			}
		}
	}
	if checked < 4 {
		t.Errorf("only %d programs were looked at", checked)
	}
}

// programs are what a target of the Makefile has installed for it.
func programs(t *testing.T, target string) []string {
	t.Helper()
	var all []string
	installs := regexp.MustCompile(`\./install ([^>\n]*)>|call tool,([\w.-]+)`)
	for _, match := range installs.FindAllStringSubmatch(recipe(t, target), -1) {
		all = append(all, strings.Fields(match[1]+" "+match[2])...)
	}
	return all
}

// recipe is what a target of the Makefile runs, after what its prerequisites run. Lists of tools are spelt out.
func recipe(t *testing.T, target string) string {
	t.Helper()
	makefile := read(t, root+"/Makefile")
	for _, list := range regexp.MustCompile(`(?m)^(\w+_TOOLS) := (.*)$`).FindAllStringSubmatch(makefile, -1) {
		makefile = strings.ReplaceAll(makefile, "$("+list[1]+")", list[2])
	}
	rule := regexp.MustCompile(`(?m)^` + target + `:([a-z0-9 -]*)(?:##.*)?\n((?:\t.*\n?)*)`).
		FindStringSubmatch(makefile)
	if rule == nil {
		t.Fatalf("the Makefile has no target %s", target)
	}
	var all []string
	for prerequisite := range strings.FieldsSeq(rule[1]) {
		all = append(all, recipe(t, prerequisite))
	}
	return strings.Join(append(all, rule[2]), "\n")
}
