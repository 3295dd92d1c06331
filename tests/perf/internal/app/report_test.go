package app

import (
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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
	set.Spec.Template.Spec.ServiceAccountName = "account"
	classes := []storagev1.StorageClass{
		{ObjectMeta: metav1.ObjectMeta{Name: "other"}, Provisioner: "other.example", VolumeBindingMode: &late},
		{ObjectMeta: metav1.ObjectMeta{Name: "immediate"}, Provisioner: driverName, VolumeBindingMode: &now},
		{ObjectMeta: metav1.ObjectMeta{Name: "late"}, Provisioner: driverName, VolumeBindingMode: &late},
	}
	got, _, err := choose([]appsv1.DaemonSet{set}, classes)
	if err != nil || got.Class != "late" || got.Namespace != "ns" || got.Account != "account" {
		t.Errorf("got %+v, %v", got, err)
	}
	if _, _, err := choose(nil, classes); err == nil {
		t.Error("no driver is installed, and none is missed")
	}
	if _, _, err := choose([]appsv1.DaemonSet{set}, classes[:2]); err == nil {
		t.Error("there is no class that waits, and none is missed")
	}
}
