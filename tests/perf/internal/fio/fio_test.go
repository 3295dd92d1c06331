package fio

import (
	"errors"
	"os/exec"
	"testing"

	"github.com/hostpath-provisioner/hostpath-provisioner/tests/perf/internal/report"
)

func TestRate(t *testing.T) {
	out := []byte(
		"note: a remark\n" + `{"jobs": [{"read": {"bw_bytes": 2097152, "iops": 512.5}, "write": {"bw_bytes": 0}}]}`,
	)
	for unit, want := range map[report.Unit]float64{report.MiBPerSecond: 2, report.PerSecond: 512.5} {
		if got, err := rate(out, unit); err != nil || got != want {
			t.Errorf("%s: %v, %v, want %v", unit, got, err, want)
		}
	}
	for _, text := range []string{"fio: no such job", `{"jobs": []}`, ""} {
		if got, err := rate([]byte(text), report.PerSecond); err == nil {
			t.Errorf("%q: %v, want an error", text, got)
		}
	}
}

func TestRunWithoutFio(t *testing.T) {
	t.Setenv("PATH", "")
	if _, err := Run(t.Context(), t.TempDir(), Jobs()[0]); !errors.Is(err, ErrMissing) {
		t.Errorf("got %v, want ErrMissing", err)
	}
}

// TestJobs runs every job.
func TestJobs(t *testing.T) {
	if _, err := exec.LookPath("fio"); err != nil {
		t.Fatalf("fio is missing: `go -C tools run ./install fio` installs Debian's package fio (root): %v", err)
	}
	dir := t.TempDir()
	for _, job := range Jobs() {
		if got, err := Run(t.Context(), dir, job); err != nil || got <= 0 {
			t.Errorf("%s: %v, %v", job.Name, got, err)
		}
	}
}
