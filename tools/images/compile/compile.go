// Package compile runs the Go compiler for the binaries that go into images.
package compile

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Target is one binary for one platform.
type Target struct {
	// Dir is the directory of the module that holds Package.
	Dir string
	// Package is the import path or ./relative path of the main package.
	Package string
	// OS and Arch as Go names them.
	OS, Arch string
	// Ldflags are linker flags beyond -s -w, such as -X assignments.
	Ldflags []string
	// Output is the file to write.
	Output string
	// Report, when set, is called with each package that gets compiled; what
	// Go's cache has is not.
	Report func(importPath string)
}

// Run compiles one target into a static binary that carries no path and no
// build time of this machine. An error holds the compiler's own words.
func Run(ctx context.Context, t Target) error {
	if err := os.MkdirAll(filepath.Dir(t.Output), 0o755); err != nil {
		return fmt.Errorf("make the folder for %s: %w", t.Output, err)
	}
	cmd := exec.CommandContext(ctx, "go", Args(t)...)
	cmd.Dir = t.Dir
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS="+t.OS, "GOARCH="+t.Arch)
	stderr, err := cmd.StderrPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start the Go compiler: %w", err)
	}
	tail := follow(stderr, t.Report)
	if err := cmd.Wait(); err != nil {
		return fmt.Errorf("compile %s for %s/%s in %s: %w\n%s", t.Package, t.OS, t.Arch, t.Dir, err,
			strings.Join(tail, "\n"))
	}
	return nil
}

// follow passes on what the compiler names and keeps its last lines for an error.
func follow(stderr io.Reader, report func(string)) []string {
	const keep = 30
	var tail []string
	for lines := bufio.NewScanner(stderr); lines.Scan(); {
		if report != nil {
			report(lines.Text())
		}
		tail = append(tail, lines.Text())
		tail = tail[max(0, len(tail)-keep):]
	}
	return tail
}

// Args are the arguments of the go command for the target.
// -buildvcs=false keeps the state of the work tree out of the binary: the
// version is given by ldflags, and two checkouts of one commit must agree.
// grpcnotrace leaves out gRPC's trace pages, whose html/template keeps the linker
// from dropping unused methods: the driver is 21 MB with it, 25 MB without.
func Args(t Target) []string {
	ldflags := append([]string{"-s", "-w"}, t.Ldflags...)
	return []string{
		"build", "-v", "-tags", "grpcnotrace", "-trimpath", "-buildvcs=false", "-ldflags",
		strings.Join(ldflags, " "), "-o", t.Output, t.Package,
	}
}
