// Package cttest has chart-testing install the chart into a cluster, with the values of ci/*-values.yaml one after the
// other, run `helm test` and remove it again.
package cttest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hostpath-provisioner/hostpath-provisioner/tests/chart/helmcli"
)

// The ci files of the driver and of the operator, which both Helms install. What the others render is compared between
// both by the chart's own tests.
const driver, operator = "default-values.yaml", "operator-values.yaml"

// Install installs the driver with Helm 3 and the operator with Helm 4, or, if asked for, with Helm 4 all ci files, and
// with Helm 3 both. The cluster has no release of this chart, and can pull the images of the chart's appVersion.
func Install(t *testing.T, kubeconfig string, all bool) {
	t.Helper()
	newest := helmcli.Newest(t)
	newest.Kubeconfig = kubeconfig
	kubectl := filepath.Join(helmcli.Assets(t), "kubectl")
	drivers := run(t, newest, kubectl, "get", "csidrivers", "--output=name")
	if strings.Contains(drivers, "kubevirt.io.hostpath-provisioner") {
		t.Fatal("the cluster has a CSIDriver kubevirt.io.hostpath-provisioner already, which one of the ci files " +
			"would take over: uninstall that release, or use another cluster")
	}
	helmcli.Each(t, func(t *testing.T, helm helmcli.Helm) {
		helm.Kubeconfig = kubeconfig
		files := []string{operator}
		switch {
		case helm.Version == helmcli.Version3 && all:
			files = []string{driver, operator}
		case helm.Version == helmcli.Version3:
			files = []string{driver}
		case all:
			files = ciFiles(t, helmcli.ChartDir(t))
		}
		ct := helmcli.Tool(t, "ct", "v3.14.0")
		recorded, log := recorder(t, helm.Binary)
		helm.Binary = recorded
		out := run(t, helm, ct, "install", "--config", "ct.yaml", "--charts", only(t, files))
		for _, file := range files {
			if !strings.Contains(out, file) {
				t.Errorf("ct install did not use %s:\n%s", file, out)
			}
		}
		said, err := os.ReadFile(log)
		tested := strings.Contains(string(said), "Phase:          Succeeded")
		if err != nil || slices.Contains(files, driver) && !tested {
			t.Errorf("`helm test` ran no pod: %v\n%s", err, said)
		}
	})
}

// recorder is a helm that writes down what helm prints: ct closes the pipe when helm has ended, and loses what it has
// not read by then.
func recorder(t *testing.T, helm string) (binary, log string) {
	t.Helper()
	dir := t.TempDir()
	binary, log = filepath.Join(dir, "helm"), filepath.Join(dir, "log")
	script := fmt.Sprintf("#!/usr/bin/env bash\nset -o pipefail\n%q \"$@\" | tee -a %q\n", helm, log)
	if err := os.WriteFile(binary, []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	return binary, log
}

// ciFiles are the names of a chart's ci files.
func ciFiles(t *testing.T, chart string) []string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(chart, "ci", "*-values.yaml"))
	if err != nil || len(paths) < 2 {
		t.Fatalf("ci files %v, %v; want at least %s and %s", paths, err, driver, operator)
	}
	var names []string
	for _, path := range paths {
		names = append(names, filepath.Base(path))
	}
	return names
}

// only is a copy of the chart that has no other ci files: chart-testing uses all that it finds.
func only(t *testing.T, files []string) string {
	t.Helper()
	copied := filepath.Join(t.TempDir(), "hostpath-provisioner")
	if err := os.CopyFS(copied, os.DirFS(helmcli.ChartDir(t))); err != nil {
		t.Fatal(err)
	}
	for _, name := range ciFiles(t, copied) {
		if !slices.Contains(files, name) {
			if err := os.Remove(filepath.Join(copied, "ci", name)); err != nil {
				t.Fatal(err)
			}
		}
	}
	return copied
}

// run runs a command in the repository's root and gives its output. ct finds a kubectl of the cluster's version, on a
// machine with another one or none.
func run(t *testing.T, helm helmcli.Helm, name string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir = helmcli.Root(t)
	path := []string{filepath.Dir(helm.Binary), helmcli.Assets(t), os.Getenv("PATH")}
	cmd.Env = append(helm.Environment(t), "PATH="+strings.Join(path, string(os.PathListSeparator)))
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", cmd, err, out)
	}
	return string(out)
}
