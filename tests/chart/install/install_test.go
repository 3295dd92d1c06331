// Package install installs the chart with every ci/*-values.yaml into a kind cluster, runs `helm test` and
// removes it again, all by chart-testing.
//
// By default the cluster hpp-ct is made for the run and removed after it.
//
//	CT_KUBECONFIG=file  use that cluster, which has no release of this chart and can pull the chart's images
package install

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/tests/chart/helmcli"
	"github.com/hostpath-provisioner/hostpath-provisioner/tests/cluster/kindcluster"
	"github.com/hostpath-provisioner/hostpath-provisioner/tests/cluster/provide"
)

// ownCluster is the cluster that the test makes for itself.
const ownCluster = "hpp-ct"

func TestInstallEveryCIFile(t *testing.T) {
	kubeconfig := os.Getenv("CT_KUBECONFIG")
	if kubeconfig == "" {
		kubeconfig = makeCluster(t)
	}
	t.Setenv("KUBECONFIG", kubeconfig)
	// Ours and ct's kubectl is of the cluster's version, on a machine with another one or none.
	t.Setenv("PATH", helmcli.Assets(t)+string(os.PathListSeparator)+os.Getenv("PATH"))
	if drivers := run(t, "kubectl", "get", "csidrivers", "--output=name"); strings.Contains(
		drivers, "kubevirt.io.hostpath-provisioner",
	) {
		t.Fatal("the cluster has a CSIDriver kubevirt.io.hostpath-provisioner already, which one of the ci files would " +
			"take over: uninstall that release, or use another cluster")
	}
	ct := helmcli.Tool(t, "ct", "v3.14.0")
	files, err := filepath.Glob(filepath.Join(helmcli.ChartDir(t), "ci", "*-values.yaml"))
	if err != nil || len(files) < 3 {
		t.Fatalf("ci files %v, %v; want at least three", files, err)
	}
	helmcli.Each(t, func(t *testing.T, _ helmcli.Helm) {
		out := run(t, ct, "install", "--config", "ct.yaml", "--all")
		for _, file := range files {
			if !strings.Contains(out, filepath.Base(file)) {
				t.Errorf("ct install did not use %s:\n%s", file, out)
			}
		}
		if !strings.Contains(out, "TEST SUITE:") || !strings.Contains(out, "Phase:          Succeeded") {
			t.Errorf("`helm test` ran no pod:\n%s", out)
		}
	})
}

// makeCluster makes a cluster of two nodes with the images that the chart names, and gives its kubeconfig.
func makeCluster(t *testing.T) string {
	t.Helper()
	if err := kindcluster.Delete(t.Context(), ownCluster); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		// The test's own context has ended by then.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 2*time.Minute)
		defer cancel()
		if err := kindcluster.Delete(ctx, ownCluster); err != nil {
			t.Error(err)
		}
	})
	cluster, err := kindcluster.Create(t.Context(), kindcluster.Options{Name: ownCluster, Workers: 1, Out: os.Stderr})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := cluster.PushProduct(t.Context(), helmcli.Chart(t).AppVersion); err != nil {
		t.Fatal(err)
	}
	if err := provide.Sidecars(t.Context(), cluster); err != nil {
		t.Fatal(err)
	}
	return cluster.Kubeconfig()
}

// run runs a command in the repository's root and gives its output.
func run(t *testing.T, name string, args ...string) string {
	t.Helper()
	command := exec.CommandContext(t.Context(), name, args...)
	command.Dir = helmcli.Root(t)
	var out bytes.Buffer
	command.Stdout, command.Stderr = &out, &out
	if err := command.Run(); err != nil {
		t.Fatalf("%s: %v\n%s", command, err, out.String())
	}
	return out.String()
}
