// Package machine describes what a measurement ran on.
package machine

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"

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
	if cpu, ok := processor(); ok {
		m.CPU = cpu
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

// processor is the CPU's model name, where /proc/cpuinfo has one.
func processor() (string, bool) {
	text, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return "", false
	}
	for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
		if key, value, ok := strings.Cut(lines.Text(), ":"); ok && strings.TrimSpace(key) == "model name" {
			return strings.TrimSpace(value), true
		}
	}
	return "", false
}

// Load is the load average of the last minute (proc_loadavg(5)).
func Load() (float64, error) {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return 0, fmt.Errorf("read the load average: %w", err)
	}
	first, _, _ := strings.Cut(string(text), " ")
	return strconv.ParseFloat(first, 64)
}
