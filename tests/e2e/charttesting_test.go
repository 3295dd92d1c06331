package e2e

import (
	"context"
	"testing"

	"github.com/hostpath-provisioner/hostpath-provisioner/tests/chart/cttest"
	"github.com/hostpath-provisioner/hostpath-provisioner/tests/chart/helmcli"
)

// TestChartTesting: chart-testing installs the chart with each ci file, where this suite's release was.
func TestChartTesting(t *testing.T) {
	world.settle(t)
	ctx := world.inTime(t)
	if _, err := world.cluster.PushProduct(ctx, helmcli.Chart(t).AppVersion); err != nil {
		t.Fatal(err)
	}
	if err := world.runHelm(ctx, "uninstall", release, "--ignore-not-found", "--wait", "--timeout", "5m"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := world.install(context.WithoutCancel(ctx), world.values("info")); err != nil {
			t.Error(err)
		}
	})
	cttest.Install(t, world.cluster.Kubeconfig())
}
