// Package install has chart-testing install the chart into a kind cluster. The end-to-end suite does the same on its
// own cluster, as TestChartTesting: this is for a change of the chart alone.
//
// By default the cluster hpp-ct is made for the run and removed after it.
//
//	CT_KUBECONFIG=file  use that cluster, which has no release of this chart and can pull the chart's images
package install

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/tests/chart/cttest"
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
	cttest.Install(t, kubeconfig, true)
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
	if err := provide.Snapshots(t.Context(), cluster); err != nil {
		t.Fatal(err)
	}
	return cluster.Kubeconfig()
}
