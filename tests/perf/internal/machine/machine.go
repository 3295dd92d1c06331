// Package machine describes what a measurement ran on.
package machine

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/prometheus/procfs"

	"github.com/hostpath-provisioner/hostpath-provisioner/tests/perf/internal/report"
)

// Root is the repository's root folder. The working directory must be in its tests module, as with `go run`.
func Root(ctx context.Context) (string, error) {
	const module = "github.com/hostpath-provisioner/hostpath-provisioner/tests"
	out, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", module).Output()
	if err != nil {
		return "", fmt.Errorf("find the folder of module %s: %w; run this in the repository's tests folder", module, err)
	}
	return filepath.Dir(strings.TrimSpace(string(out))), nil
}

// Describe is this machine now, about to measure the repository at root.
func Describe(ctx context.Context, root string) (report.Machine, error) {
	m := report.Machine{Cores: runtime.NumCPU(), OS: runtime.GOOS, Arch: runtime.GOARCH, CPU: runtime.GOARCH}
	proc, err := procfs.NewDefaultFS()
	if err != nil {
		return m, fmt.Errorf("describe this machine: %w", err)
	}
	if cores, err := proc.CPUInfo(); err == nil && len(cores) > 0 && cores[0].ModelName != "" {
		m.CPU = cores[0].ModelName
	}
	kernel, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil {
		return m, fmt.Errorf("read the kernel's version: %w", err)
	}
	m.Kernel = strings.TrimSpace(string(kernel))
	cmd := exec.CommandContext(ctx, "git", "describe", "--always", "--dirty")
	cmd.Dir = root
	m.Driver = "of an unknown commit"
	if out, err := cmd.Output(); err == nil { // a source archive has no history
		m.Driver = strings.TrimSpace(string(out))
	}
	m.LoadBefore, err = Load()
	return m, err
}

// Load is the load average of the last minute (proc_loadavg(5)).
func Load() (float64, error) {
	proc, err := procfs.NewDefaultFS()
	if err != nil {
		return 0, fmt.Errorf("read the load average: %w", err)
	}
	load, err := proc.LoadAvg()
	if err != nil {
		return 0, fmt.Errorf("read the load average: %w", err)
	}
	return load.Load1, nil
}
