// Package gobuild compiles other projects' programs from their Go modules.
package gobuild

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hostpath-provisioner/hostpath-provisioner/tests/cluster/fromsource/internal/programs"
	"github.com/hostpath-provisioner/hostpath-provisioner/tests/internal/cache"
)

// Folder is where the program's binaries are, or will be, in the cache.
func Folder(p programs.Program) string { return "bin/" + p.Key() }

// Build returns the folder with the program's static binaries for this
// machine, compiling them when the cache does not have them. report gets a
// word about how far the compiler is.
func Build(ctx context.Context, dir cache.Dir, p programs.Program, report func(string)) (string, error) {
	return dir.Once(Folder(p), func(out string) error {
		module, err := os.MkdirTemp("", "hpp-build-"+p.Name+"-")
		if err != nil {
			return fmt.Errorf("make a folder to build %s in: %w", p.Name, err)
		}
		defer os.RemoveAll(module)
		if err := writeModule(ctx, module, p); err != nil {
			return err
		}
		return compile(ctx, module, out, p, report)
	})
}

// writeModule writes a module that requires the program and nothing else.
// `go install PACKAGE@VERSION` would refuse the modules that have replace
// directives; seen from another module they are ignored.
func writeModule(ctx context.Context, dir string, p programs.Program) error {
	text := "module wrapper\n\ngo 1.26.0\n\nrequire " + p.Module + " " + p.Version + "\n"
	if p.StagingVersion != "" {
		raw, err := goMod(ctx, p.Module, p.Version)
		if err != nil {
			return err
		}
		text += Replaces(string(raw), p.StagingVersion)
	}
	if err := os.WriteFile(filepath.Join(dir, "go.mod"), []byte(text), 0o644); err != nil {
		return fmt.Errorf("write the module that builds %s: %w", p.Name, err)
	}
	return nil
}

// Replaces returns one replace line for each requirement of goMod whose
// version is v0.0.0, which is how Kubernetes names the modules of its own
// staging folder.
func Replaces(goMod, version string) string {
	var b strings.Builder
	for line := range strings.Lines(goMod) {
		words := strings.Fields(strings.TrimPrefix(strings.TrimSpace(line), "require "))
		if len(words) >= 2 && strings.HasPrefix(words[0], "k8s.io/") && words[1] == "v0.0.0" {
			fmt.Fprintf(&b, "\nreplace %s => %s %s\n", words[0], words[0], version)
		}
	}
	return b.String()
}

// Download describes a module in Go's module cache.
type Download struct {
	// Dir holds the module's files, GoMod is the path of its go.mod.
	Dir, GoMod string
	Error      string
}

// Fetch downloads a module, if needed, and returns where it is.
func Fetch(ctx context.Context, module, version string) (Download, error) {
	var d Download
	cmd := exec.CommandContext(ctx, "go", "mod", "download", "-json", module+"@"+version)
	cmd.Dir = os.TempDir() // outside any module: the answer must not depend on ours
	cmd.Env = append(os.Environ(), "GOFLAGS=", "GOWORK=off")
	out, err := cmd.Output()
	if jsonErr := json.Unmarshal(out, &d); jsonErr != nil || err != nil || d.Error != "" {
		return d, fmt.Errorf("download module %s@%s: %s (%w); is the Go module proxy reachable (go env GOPROXY)?",
			module, version, d.Error, err)
	}
	return d, nil
}

func goMod(ctx context.Context, module, version string) ([]byte, error) {
	d, err := Fetch(ctx, module, version)
	if err != nil {
		return nil, err
	}
	return os.ReadFile(d.GoMod)
}

func compile(ctx context.Context, module, out string, p programs.Program, report func(string)) error {
	packages := p.Packages
	if len(packages) == 0 {
		packages = []string{p.Module}
	}
	how := []string{
		"-mod=mod", "-trimpath", "-buildvcs=false", "-tags", p.Tags, "-ldflags", "-s -w " + p.Ldflags, "-o", out + "/",
	}
	if err := runGo(ctx, module, p, report, slices.Concat([]string{"build", "-v"}, how, packages)); err != nil {
		return err
	}
	if len(p.Packages) == 0 {
		return nameAfterProgram(out, p)
	}
	if len(p.Tests) == 0 {
		return nil
	}
	return runGo(ctx, module, p, report, slices.Concat([]string{"test", "-c", "-vet=off"}, how, p.Tests))
}

func runGo(ctx context.Context, module string, p programs.Program, report func(string), args []string) error {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = module
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=", "GOWORK=off")
	stderr, err := cmd.StderrPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start the Go compiler: %w", err)
	}
	tail := follow(stderr, report)
	if err := cmd.Wait(); err != nil {
		return fmt.Errorf("compile %s %s: %w\n%s", p.Name, p.Version, err, strings.Join(tail, "\n"))
	}
	return nil
}

// follow counts what the compiler says and keeps its last lines for an error.
func follow(stderr io.Reader, report func(string)) []string {
	const keep = 15
	var (
		tail                []string
		downloads, compiled int
	)
	for lines := bufio.NewScanner(stderr); lines.Scan(); {
		if strings.HasPrefix(lines.Text(), "go: downloading") {
			downloads++
		} else {
			compiled++
		}
		report(fmt.Sprintf("%d modules downloaded, %d packages compiled", downloads, compiled))
		tail = append(tail, lines.Text())
		tail = tail[max(0, len(tail)-keep):]
	}
	return tail
}

// nameAfterProgram renames the one binary of a module whose root is a main
// package: the compiler names it after the module's path ("server").
func nameAfterProgram(dir string, p programs.Program) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	if len(entries) != 1 {
		return fmt.Errorf("compile %s: want one binary in %s, found %d", p.Name, dir, len(entries))
	}
	return os.Rename(filepath.Join(dir, entries[0].Name()), filepath.Join(dir, p.Name))
}
