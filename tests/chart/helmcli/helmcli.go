// Package helmcli runs the commands of the Helm versions that the chart supports, and decodes what the chart renders
// strictly into the real API types.
package helmcli

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/hostpath-provisioner/hostpath-provisioner/tests/internal/repo"
)

// Release and Namespace are what every rendering uses.
const (
	Release   = "hpp"
	Namespace = "storage"
)

// KubeVersion is what `helm template` takes the cluster for. A Helm built without its
// release's linker flags would say 1.20.
const KubeVersion = "v1.37.1"

// Version3 and Version4 are the supported versions: those of tools/ and of go.mod.
const (
	Version3 = "v3.22.0"
	Version4 = "v4.3.1"
)

// Helm is one of the supported versions, built by `make chart-test` into the tool cache.
type Helm struct {
	Version    string // as its release is called: v4.3.1
	Binary     string
	Kubeconfig string // the cluster of the commands that need one
}

// Versions are the supported versions, oldest first. A missing binary fails the test.
func Versions(t *testing.T) []Helm {
	t.Helper()
	var all []Helm
	for _, version := range []string{Version3, Version4} {
		all = append(all, Helm{Version: version, Binary: Tool(t, "helm", version), Kubeconfig: os.DevNull})
	}
	return all
}

// Newest is the newest supported version: for tests of what does not depend on the version.
func Newest(t *testing.T) Helm {
	t.Helper()
	versions := Versions(t)
	return versions[len(versions)-1]
}

// Each runs a test with every supported version.
func Each(t *testing.T, test func(*testing.T, Helm)) {
	t.Helper()
	for _, version := range Versions(t) {
		t.Run("helm-"+version.Version, func(t *testing.T) { test(t, version) })
	}
}

// Environment is that of programs that look for `helm` on PATH, and of helm itself: its caches stay out of the home
// directory.
func (h Helm) Environment(t *testing.T) []string {
	t.Helper()
	home := t.TempDir()
	return append(os.Environ(), "PATH="+filepath.Dir(h.Binary)+string(os.PathListSeparator)+os.Getenv("PATH"),
		"HELM_CACHE_HOME="+home, "HELM_CONFIG_HOME="+home, "HELM_DATA_HOME="+home, "KUBECONFIG="+h.Kubeconfig)
}

// Values is what a rendering differs in.
type Values struct {
	Files       []string          // value files, relative to the test's folder
	Set         map[string]string // --set
	JSON        map[string]string // --set-json
	APIVersions []string          // --api-versions: what the cluster of a rendering serves beside Kubernetes' own
	NoHooks     bool              // --no-hooks
}

// Template renders the chart. The error holds what Helm wrote to stderr.
func (h Helm) Template(t *testing.T, values Values) (string, error) {
	t.Helper()
	return h.Run(t, values, "template", Release, ChartDir(t), "--kube-version", KubeVersion)
}

// MustTemplate is Template for values that have to render.
func (h Helm) MustTemplate(t *testing.T, values Values) string {
	t.Helper()
	out, err := h.Template(t, values)
	if err != nil {
		t.Fatalf("helm %s template with %+v: %v", h.Version, values, err)
	}
	return out
}

// Run runs any helm command with the values, also in a clean-up, and gives its stdout. The error holds its stderr.
func (h Helm) Run(t *testing.T, values Values, command string, args ...string) (string, error) {
	t.Helper()
	all := append([]string{command, "--namespace", Namespace}, values.arguments()...)
	// In a clean-up the test's own context is over.
	helm := exec.CommandContext(context.WithoutCancel(t.Context()), h.Binary, append(all, args...)...)
	helm.Env = h.Environment(t)
	var stderr bytes.Buffer
	helm.Stderr = &stderr
	out, err := helm.Output()
	if err != nil {
		return "", fmt.Errorf("%s: %w\n%s", helm, err, stderr.String())
	}
	return string(out), nil
}

func (v Values) arguments() (args []string) {
	for _, file := range v.Files {
		args = append(args, "--values", file)
	}
	for _, key := range slices.Sorted(maps.Keys(v.Set)) {
		args = append(args, "--set", key+"="+v.Set[key])
	}
	for _, key := range slices.Sorted(maps.Keys(v.JSON)) {
		args = append(args, "--set-json", key+"="+v.JSON[key])
	}
	for _, version := range v.APIVersions {
		args = append(args, "--api-versions", version)
	}
	if v.NoHooks {
		args = append(args, "--no-hooks")
	}
	return args
}

// Root is the repository's root folder: the nearest one above the test that holds ct.yaml.
func Root(t *testing.T) string {
	t.Helper()
	root, err := repo.Root()
	if err != nil {
		t.Fatal(err)
	}
	return root
}

// ChartDir is the chart's folder.
func ChartDir(t *testing.T) string {
	t.Helper()
	return filepath.Join(Root(t), "charts", "hostpath-provisioner")
}

// Tool is the path of a binary in the tool cache. A missing one fails the test.
func Tool(t *testing.T, name, version string) string {
	t.Helper()
	cache := os.Getenv("HPP_CACHE")
	if cache == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			t.Fatalf("neither HPP_CACHE nor a home directory is set: %v", err)
		}
		cache = filepath.Join(home, ".cache", "hostpath-provisioner")
	}
	path := filepath.Join(cache, "tools", name+"-"+version, name)
	if _, err := os.Stat(path); err != nil {
		t.Fatalf("%s %s is not built yet: run `make chart-test`, or `go -C tools run ./install helm3 helm4 ct` (%v)",
			name, version, err)
	}
	return path
}
