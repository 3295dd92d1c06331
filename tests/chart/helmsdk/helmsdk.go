// Package helmsdk renders the chart in this process, by the code of the supported Helm versions' own commands. It gives
// what `helm template` prints and refuses with the same sentence; TestRenderingsAreStrictAndStable and
// TestCommandsRefuseWithTheSameWords hold it to the commands.
package helmsdk

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/hostpath-provisioner/hostpath-provisioner/tests/chart/helmcli"
)

// Helm is one of the supported versions.
type Helm struct {
	Version string // as its release is called: v4.3.1
	install func(context.Context, request) (release, error)
}

// request is what a dry run of an installation differs in.
type request struct {
	chart       string // the chart's folder
	files       []string
	set, json   []string // as on the command line: key=value
	apiVersions []string
}

// release is what both versions' releases have.
type release struct {
	manifest, notes string
	hooks           []hook
}

type hook struct{ path, manifest string }

// Versions are the supported versions, oldest first.
func Versions() []Helm {
	return []Helm{{Version: helmcli.Version3, install: install3}, {Version: helmcli.Version4, install: install4}}
}

// Newest is the newest supported version: for tests of what does not depend on the version.
func Newest() Helm {
	versions := Versions()
	return versions[len(versions)-1]
}

// Each runs a test with every supported version.
func Each(t *testing.T, test func(*testing.T, Helm)) {
	t.Helper()
	for _, version := range Versions() {
		t.Run("helm-"+version.Version, func(t *testing.T) { test(t, version) })
	}
}

// Template renders the chart as `helm template` prints it.
func (h Helm) Template(t *testing.T, values helmcli.Values) (string, error) {
	t.Helper()
	rel, err := h.dryRun(t, values)
	if err != nil {
		return "", err
	}
	var out strings.Builder
	fmt.Fprintln(&out, strings.TrimSpace(rel.manifest))
	if !values.NoHooks {
		for _, hook := range rel.hooks {
			fmt.Fprintf(&out, "---\n# Source: %s\n%s\n", hook.path, hook.manifest)
		}
	}
	return out.String(), nil
}

// MustTemplate is Template for values that have to render.
func (h Helm) MustTemplate(t *testing.T, values helmcli.Values) string {
	t.Helper()
	out, err := h.Template(t, values)
	if err != nil {
		t.Fatalf("Helm %s renders %+v: %v", h.Version, values, err)
	}
	return out
}

// Notes is what an installation prints after "NOTES:".
func (h Helm) Notes(t *testing.T, values helmcli.Values) string {
	t.Helper()
	rel, err := h.dryRun(t, values)
	if err != nil {
		t.Fatalf("Helm %s renders NOTES.txt with %+v: %v", h.Version, values, err)
	}
	return strings.TrimSpace(rel.notes) + "\n"
}

func (h Helm) dryRun(t *testing.T, values helmcli.Values) (release, error) {
	t.Helper()
	return h.install(t.Context(), request{
		chart: helmcli.ChartDir(t), files: values.Files, set: pairs(values.Set), json: pairs(values.JSON),
		apiVersions: values.APIVersions,
	})
}

// pairs writes each entry as an argument of --set.
func pairs(entries map[string]string) []string {
	all := make([]string, 0, len(entries))
	for _, key := range slices.Sorted(maps.Keys(entries)) {
		all = append(all, key+"="+entries[key])
	}
	return all
}
