// Package sanity_test runs the conformance tests of the CSI specification
// (kubernetes-csi/csi-test) against the built driver's socket, with a pool on
// each filesystem that one can lie on.
package sanity_test

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	csisanity "github.com/kubernetes-csi/csi-test/v5/pkg/sanity"
	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/ginkgo/v2/types"
	"github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/util/wait"
)

// volumeBytes is the size of the volumes that the specs make; some ask for twice as much.
const volumeBytes = 16 << 20

// TestSanity runs every spec on every filesystem. Ginkgo can run one suite in
// a process, so the filesystems are containers of it.
func TestSanity(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Fatal("csi-sanity publishes volumes, which means mounting: run it as root")
	}
	binary := buildDriver(t)
	var drivers []*instance
	for _, filesystem := range filesystems() {
		d := start(t, binary, filesystem)
		drivers = append(drivers, d)
		ginkgo.Describe(filesystem, func() { csisanity.GinkgoTest(d.config()) })
	}
	var report types.Report
	ginkgo.ReportAfterSuite("keep the report", func(r ginkgo.Report) { report = r })
	gomega.RegisterFailHandler(ginkgo.Fail)
	suite, _ := ginkgo.GinkgoConfiguration()
	for _, d := range drivers {
		suite.SkipStrings = append(suite.SkipStrings, withoutCopies(d.filesystem)...)
	}
	if deadline, ok := t.Deadline(); ok {
		suite.Timeout = time.Until(deadline) - time.Minute // for the drivers to end and leave their logs
	}
	ginkgo.RunSpecs(t, "csi-sanity", suite)

	for _, d := range drivers {
		checkSkips(t, d.filesystem, report)
		d.checkClean(t)
		if want := " enforcement=" + enforcement(d.filesystem) + " "; !strings.Contains(d.Log(), want) {
			t.Errorf("%s: the driver's log does not say%s", d.filesystem, want)
		}
	}
}

// config says to csi-sanity where the driver is.
func (d *instance) config() *csisanity.TestConfig {
	c := csisanity.NewTestConfig()
	c.Address = "unix://" + d.socket
	c.TargetPath = filepath.Join(d.kubelet, "mount")
	c.StagingPath = filepath.Join(d.kubelet, "staging")
	c.TestVolumeSize = volumeBytes
	return &c
}

// checkSkips compares what was skipped with the list in testdata/skips.txt.
func checkSkips(t *testing.T, filesystem string, report types.Report) {
	t.Helper()
	ran := 0
	var skipped []string
	for _, spec := range report.SpecReports {
		name, ours := strings.CutPrefix(spec.FullText(), filesystem+" ")
		switch {
		case !ours || spec.LeafNodeType != types.NodeTypeIt:
		case spec.State.Is(types.SpecStateSkipped | types.SpecStatePending):
			skipped = append(skipped, name)
		default:
			ran++
		}
	}
	slices.Sort(skipped)
	if diff := cmp.Diff(skips(filesystem), skipped); diff != "" {
		t.Errorf("%s: skipped specs are not those listed with their reasons in testdata/skips*.txt (- listed, "+
			"+ skipped):\n%s",
			filesystem, diff)
	}
	if ran == 0 {
		t.Errorf("%s: no spec ran at all", filesystem)
	}
	t.Logf("%s: %d specs ran, %d skipped as listed", filesystem, ran, len(skipped))
}

// checkClean waits until the pool is as empty as before: whatever the specs
// made, they deleted, and the trash is purged in the background.
func (d *instance) checkClean(t *testing.T) {
	t.Helper()
	var left []string
	err := wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, waitTimeout, true,
		func(context.Context) (_ bool, err error) {
			left, err = d.leftovers()
			return len(left) == 0, err
		})
	if err != nil {
		t.Errorf("what is left in the pool on %s: %s: %v", d.filesystem, strings.Join(left, ", "), err)
	}
}
