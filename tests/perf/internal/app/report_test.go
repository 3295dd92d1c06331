package app

import (
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/tests/perf/internal/burst"
	"github.com/hostpath-provisioner/hostpath-provisioner/tests/perf/internal/report"
)

// measured is a session that has measured one thing.
func measured(t *testing.T, value float64) *session {
	t.Helper()
	s := &session{stderr: io.Discard}
	s.out = t.TempDir()
	s.report = report.Report{
		Version: report.Version, Started: time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC),
		Machine: report.Machine{Driver: "abc", Cores: 2},
		Sections: []report.Section{
			{Title: "One", Figures: []report.Figure{{Name: "time", Value: value, Unit: report.Milliseconds}}},
		},
		Bench:  []report.BenchLine{{Name: "Time", N: 1, NsPerOp: value}},
		Panels: []report.Panel{{Title: "P", Curves: []report.Curve{{Name: "c", Points: []report.Point{{}, {X: 1, Y: 1}}}}}},
	}
	return s
}

const stamp = "20261121T100000Z"

func TestFinish(t *testing.T) {
	older, newer := measured(t, 2), measured(t, 3)
	if err := older.finish(io.Discard); err != nil {
		t.Fatal(err)
	}
	newer.compare = filepath.Join(older.out, stamp, "report.json")
	var out strings.Builder
	if err := newer.finish(&out); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(out.String(), "| time | 2 ms | 3 ms | +50 % |") {
		t.Errorf("no comparison in\n%s", out.String())
	}
	entries, err := os.ReadDir(filepath.Join(newer.out, stamp))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	if want := []string{"bench.txt", "plot.svg", "report.json", "report.md"}; !slices.Equal(names, want) {
		t.Errorf("files %q, want %q", names, want)
	}
	out.Reset()
	if err := compareFiles(newer.compare, filepath.Join(newer.out, stamp, "report.json"), &out); err != nil ||
		!strings.Contains(out.String(), "+50 %") {
		t.Errorf("compared files: %v\n%s", err, out.String())
	}
}

func TestCompareFilesNamesTheFile(t *testing.T) {
	bad := filepath.Join(t.TempDir(), "bad.json")
	if err := os.WriteFile(bad, []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := compareFiles(bad, bad, io.Discard); err == nil || !strings.Contains(err.Error(), bad) {
		t.Errorf("got %v", err)
	}
}

func TestChoose(t *testing.T) {
	late, now := storagev1.VolumeBindingWaitForFirstConsumer, storagev1.VolumeBindingImmediate
	set := appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Name: "hpp-csi", Namespace: "ns"}}
	set.Spec.Template.Spec.ServiceAccountName = "node"
	controller := appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "hpp-controller", Namespace: "ns"}}
	controller.Spec.Template.Spec.ServiceAccountName = "controller"
	bare := *controller.DeepCopy()
	controller.Spec.Template.Spec.Containers = []corev1.Container{
		{Name: "driver", Image: "driver:1"}, {Name: "csi-provisioner", Image: "csi-provisioner:1"},
	}
	classes := []storagev1.StorageClass{
		{ObjectMeta: metav1.ObjectMeta{Name: "other"}, Provisioner: "other.example", VolumeBindingMode: &late},
		{ObjectMeta: metav1.ObjectMeta{Name: "immediate"}, Provisioner: driverName, VolumeBindingMode: &now},
		{ObjectMeta: metav1.ObjectMeta{Name: "late"}, Provisioner: driverName, VolumeBindingMode: &late},
	}
	sets, controllers := []appsv1.DaemonSet{set}, []appsv1.Deployment{controller}
	got, err := choose(sets, controllers, classes)
	want := burst.System{
		Name: "ours", Class: "late", Namespace: "ns", Accounts: []string{"node", "controller"},
		Processes: []string{"driver", "csi-provisioner", "csi-resizer"}, Central: "csi-provisioner",
	}
	if diff := cmp.Diff(want, got.system); err != nil || diff != "" || got.provisioner != "csi-provisioner:1" {
		t.Errorf("provisioner %s, error %v, system (-want +got):\n%s", got.provisioner, err, diff)
	}
	for name, test := range map[string]struct {
		sets        []appsv1.DaemonSet
		controllers []appsv1.Deployment
		classes     []storagev1.StorageClass
	}{
		"no driver":          {nil, controllers, classes},
		"no controller":      {sets, nil, classes},
		"no csi-provisioner": {sets, []appsv1.Deployment{bare}, classes},
		"no class waits":     {sets, controllers, classes[:2]},
	} {
		if _, err := choose(test.sets, test.controllers, test.classes); err == nil {
			t.Errorf("%s: none is missed", name)
		}
	}
}
