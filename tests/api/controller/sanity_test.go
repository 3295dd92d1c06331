package controller_test

import (
	_ "embed"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	csisanity "github.com/kubernetes-csi/csi-test/v5/pkg/sanity"
	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/ginkgo/v2/types"
	"github.com/onsi/gomega"
)

//go:embed testdata/skips.txt
var skips string

// sanity runs csi-sanity with the controller's socket for the controller service, and with that of the node which has
// the most room, and so gets the volumes, for the node service. For the latter alone there is tests/sanity.
func sanity(t *testing.T, w *world) {
	node := w.nodes["node-1"]
	config := csisanity.NewTestConfig()
	config.Address, config.ControllerAddress = "unix://"+node.socket(), "unix://"+w.controller.socket()
	config.TargetPath = filepath.Join(node.dir, "kubelet", "mount")
	config.StagingPath = filepath.Join(node.dir, "kubelet", "staging")
	config.TestVolumeSize, config.TestVolumeExpandSize = 16*mib, 32*mib
	w.mostRoom(t, "node-1")
	csisanity.GinkgoTest(&config)
	var skipped []string
	ran := 0
	ginkgo.ReportAfterSuite("keep the report", func(r ginkgo.Report) {
		for _, spec := range r.SpecReports {
			switch {
			case spec.LeafNodeType != types.NodeTypeIt:
			case spec.State.Is(types.SpecStateSkipped | types.SpecStatePending):
				skipped = append(skipped, spec.FullText())
			default:
				ran++
			}
		}
	})
	gomega.RegisterFailHandler(ginkgo.Fail)
	ginkgo.RunSpecs(t, "csi-sanity")

	listed := specs(skips)
	slices.Sort(listed)
	slices.Sort(skipped)
	if diff := cmp.Diff(listed, skipped); diff != "" {
		t.Errorf("skipped specs are not those of testdata/skips.txt (- listed, + skipped):\n%s", diff)
	}
	entries, err := os.ReadDir(filepath.Join(node.dir, "pool", "csi"))
	left := slices.DeleteFunc(entries, func(e os.DirEntry) bool { return strings.HasPrefix(e.Name(), ".") })
	if err != nil || ran == 0 || len(left) > 0 {
		t.Errorf("%d specs ran, %v is left, %v", ran, left, err)
	}
}

// specs are the lines of a text that are no comments.
func specs(text string) []string {
	return slices.DeleteFunc(strings.FieldsFunc(text, func(r rune) bool { return r == '\n' }),
		func(line string) bool { return strings.HasPrefix(line, "#") })
}
