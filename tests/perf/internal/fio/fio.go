// Package fio measures what the data path of a directory carries, with fio (fio(1)). No page cache: what is read comes
// from the filesystem.
package fio

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"

	"github.com/hostpath-provisioner/hostpath-provisioner/tests/perf/internal/report"
)

// Job is one way of using a directory.
type Job struct {
	Name string
	Unit report.Unit
	args []string
}

// Bytes is the size of the file that the jobs write and read.
const Bytes = 256 << 20

// Jobs are all jobs in the order in which they have to run: the first one writes what the others read.
func Jobs() []Job {
	return []Job{
		{"sequential write", report.MiBPerSecond, []string{"--rw=write", "--bs=1M", "--loops=4", "--end_fsync=1"}},
		{"sequential read", report.MiBPerSecond, []string{"--rw=read", "--bs=1M", "--loops=4"}},
		{"random read of 4 KiB", report.PerSecond, []string{"--rw=randread", "--bs=4k", "--time_based", "--runtime=2"}},
	}
}

// ErrMissing says that fio is not installed.
var ErrMissing = errors.New("fio is not installed")

// Run does a job in a directory and gives its rate in the job's unit.
func Run(ctx context.Context, dir string, job Job) (float64, error) {
	args := append([]string{
		"--name=perf", "--directory=" + dir, "--filename=fio", fmt.Sprintf("--size=%d", Bytes),
		"--direct=1", "--ioengine=psync", "--output-format=json",
	}, job.args...)
	out, err := exec.CommandContext(ctx, "fio", args...).CombinedOutput()
	if errors.Is(err, exec.ErrNotFound) {
		return 0, ErrMissing
	}
	if err != nil {
		return 0, fmt.Errorf("fio, %s in %s: %w\n%s", job.Name, dir, err, out)
	}
	return rate(out, job.Unit)
}

// rate reads what fio prints: remarks, and then an object.
func rate(out []byte, unit report.Unit) (float64, error) {
	type direction struct {
		Bandwidth float64 `json:"bw_bytes"` // bytes per second
		IOPS      float64 `json:"iops"`
	}
	var result struct {
		Jobs []struct{ Read, Write direction }
	}
	if err := json.Unmarshal(out[max(0, bytes.IndexByte(out, '{')):], &result); err != nil {
		return 0, fmt.Errorf("read what fio prints: %w\n%s", err, out)
	}
	if len(result.Jobs) != 1 {
		return 0, fmt.Errorf("fio reports %d jobs, want 1\n%s", len(result.Jobs), out)
	}
	read, write := result.Jobs[0].Read, result.Jobs[0].Write
	if unit == report.PerSecond {
		return read.IOPS + write.IOPS, nil
	}
	return (read.Bandwidth + write.Bandwidth) / (1 << 20), nil
}
