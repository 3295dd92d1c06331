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
	"time"

	"github.com/prometheus/procfs"

	"github.com/hostpath-provisioner/hostpath-provisioner/tests/perf/internal/report"
)

// Root is the repository's root folder. The working directory must be in its tests module, as with `go run`.
func Root(ctx context.Context) (string, error) {
	const module = "github.com/hostpath-provisioner/hostpath-provisioner/tests"
	out, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", module).Output()
	if err != nil {
		return "", fmt.Errorf("find the folder of module %s: %w; run this in the repository's tests folder", module,
			err)
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

// Quiet waits until everything that runs here takes no more than so many cores together, waiting for a disk included.
// When that does not come it gives a note for the report about what begins regardless. The load average would take
// minutes to fall.
func Quiet(ctx context.Context, what string, cores float64) (note string, err error) {
	const look, looks = 5 * time.Second, 24
	proc, err := procfs.NewDefaultFS()
	if err != nil {
		return "", fmt.Errorf("read what the processors do: %w", err)
	}
	var taken float64
	for range looks {
		before, err := proc.Stat()
		if err != nil {
			return "", fmt.Errorf("read what the processors do: %w", err)
		}
		select {
		case <-ctx.Done():
			return "", context.Cause(ctx)
		case <-time.After(look):
		}
		after, err := proc.Stat()
		if err != nil {
			return "", fmt.Errorf("read what the processors do: %w", err)
		}
		taken = float64(runtime.NumCPU()) - (after.CPUTotal.Idle-before.CPUTotal.Idle)/look.Seconds()
		if taken <= cores {
			return "", nil
		}
	}
	return fmt.Sprintf("**Not quiet**: %s began while %.1f cores were busy; at most %.1f were wanted.",
		what, taken, cores), nil
}
