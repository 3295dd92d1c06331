package e2e

import (
	"testing"

	"github.com/hostpath-provisioner/hostpath-provisioner/tests/chart/cttest"
	"github.com/hostpath-provisioner/hostpath-provisioner/tests/chart/helmcli"
)

// TestChartTesting: chart-testing installs the chart, every night with each ci file, while this suite has no release.
func TestChartTesting(t *testing.T) {
	world.settle(t)
	ctx := world.inTime(t)
	if _, err := world.cluster.PushProduct(ctx, helmcli.Chart(t).AppVersion); err != nil {
		t.Fatal(err)
	}
	if err := world.bare(ctx); err != nil {
		t.Fatal(err)
	}
	cttest.Install(t, world.cluster.Kubeconfig(), world.nightly)
}
