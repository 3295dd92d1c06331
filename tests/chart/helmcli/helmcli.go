// Package helmcli renders the chart with the Helm versions that it supports, through terratest, and decodes the result
// strictly into the real API types.
package helmcli

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/gruntwork-io/terratest/modules/helm"
	"github.com/gruntwork-io/terratest/modules/k8s"
	"github.com/gruntwork-io/terratest/modules/logger"
)

// Release and Namespace are what every rendering uses.
const (
	Release   = "hpp"
	Namespace = "storage"
)

// KubeVersion is what `helm template` takes the cluster for. A Helm built without its
// release's linker flags would say 1.20.
const KubeVersion = "v1.37.1"

// Helm is one of the supported versions, built by `make chart-test` into the tool cache.
type Helm struct {
	Version string // as its release is called: v4.3.1
	dir     string // where a binary called helm lies
}

// Versions are the supported versions, oldest first. A missing binary fails the test.
func Versions(t *testing.T) []Helm {
	t.Helper()
	var all []Helm
	for _, version := range []string{"v3.22.0", "v4.3.1"} {
		all = append(all, Helm{Version: version, dir: filepath.Dir(Tool(t, "helm", version))})
	}
	return all
}

// Newest is the newest supported version, ready for use: for tests of what does not depend on the version.
func Newest(t *testing.T) Helm {
	t.Helper()
	versions := Versions(t)
	newest := versions[len(versions)-1]
	newest.use(t)
	return newest
}

// Each runs a test with every supported version.
func Each(t *testing.T, test func(*testing.T, Helm)) {
	t.Helper()
	for _, version := range Versions(t) {
		t.Run("helm-"+version.Version, func(t *testing.T) {
			version.use(t)
			test(t, version)
		})
	}
}

// use puts the version first on PATH, where terratest and ct look for `helm`, and keeps its
// caches out of the home directory.
func (h Helm) use(t *testing.T) {
	t.Helper()
	t.Setenv("PATH", h.dir+string(os.PathListSeparator)+os.Getenv("PATH"))
	for _, name := range []string{"HELM_CACHE_HOME", "HELM_CONFIG_HOME", "HELM_DATA_HOME"} {
		t.Setenv(name, t.TempDir())
	}
}

// Values is what a rendering differs in.
type Values struct {
	Files []string          // value files, relative to the test's folder
	Set   map[string]string // --set
	JSON  map[string]string // --set-json
	Args  []string          // further arguments of `helm template`
}

// Template renders the chart. The error holds what Helm wrote to stderr.
func (h Helm) Template(t *testing.T, values Values) (string, error) {
	t.Helper()
	args := append([]string{"--kube-version", KubeVersion}, values.Args...)
	return helm.RenderTemplateContextE(t, t.Context(), options(values), ChartDir(t), Release, nil, args...)
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

// Run runs any helm command with the values and gives its stdout.
func (h Helm) Run(t *testing.T, values Values, command string, args ...string) (string, error) {
	t.Helper()
	all := []string{"--namespace", Namespace}
	for _, file := range values.Files {
		all = append(all, "--values", file)
	}
	for key, value := range values.Set {
		all = append(all, "--set", key+"="+value)
	}
	for key, value := range values.JSON {
		all = append(all, "--set-json", key+"="+value)
	}
	all = append(append(all, values.Args...), args...)
	return helm.RunHelmCommandAndGetStdOutContextE(t, t.Context(), &helm.Options{Logger: logger.Discard}, command, all...)
}

func options(values Values) *helm.Options {
	return &helm.Options{
		Logger:         logger.Discard,
		KubectlOptions: k8s.NewKubectlOptions("", "", Namespace),
		ValuesFiles:    values.Files,
		SetValues:      values.Set,
		SetJSONValues:  values.JSON,
	}
}

// Root is the repository's root folder: the nearest one above the test that holds ct.yaml.
func Root(t *testing.T) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "ct.yaml")); err == nil {
			return dir
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			t.Fatal("no folder above the test holds ct.yaml: run the tests inside a clone of the repository")
		}
		dir = parent
	}
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
