package app

import (
	"io"
	"os"
	"path/filepath"
	"runtime"
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

func TestFinish(t *testing.T) {
	s := &session{stderr: io.Discard}
	s.out = t.TempDir()
	s.report = report.Report{
		Started:  time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC),
		Sections: []report.Section{{Figures: []report.Figure{{Name: "time", Value: 2, Unit: report.Milliseconds}}}},
		Bench:    []report.BenchLine{{Name: "Time", N: 1, Values: map[string]float64{"ns/op": 2}}},
	}
	var out strings.Builder
	if err := s.finish(&out); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(s.out, "20261121T100000Z")
	for name, want := range map[string]string{"report.md": "| time | 2 ms |", "bench.txt": "BenchmarkTime"} {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil || !strings.Contains(string(text), want) {
			t.Errorf("%s: %v, no %q in\n%s", name, err, want, text)
		}
	}
	if !strings.Contains(out.String(), "Written to "+dir) {
		t.Errorf("printed\n%s", out.String())
	}
}

func TestQuietSaysWhenItWasNot(t *testing.T) {
	s := &session{}
	s.busy = float64(runtime.NumCPU() + 1)
	if err := s.quiet(t.Context(), "this", 0); err != nil || len(s.report.Notes) != 0 {
		t.Errorf("fewer cores are busy than there are: %v, %q", err, s.report.Notes)
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
		Processes: []string{"driver", "controller", "csi-provisioner", "csi-resizer"}, OnNodes: "driver",
		Central: "csi-provisioner",
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
