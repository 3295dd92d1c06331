package vm

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/hostpath-provisioner/hostpath-provisioner/tests/internal/cache"
)

// Tag marks test files that only run in the VM.
const Tag = "vm"

// Build compiles a program, static, out of this module (module ".") or of the root module ("..").
func Build(ctx context.Context, out, module, pkg string) error {
	return goTool(ctx, module, "build", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w", "-o", out, pkg)
}

// BuildTest compiles a package's tests, with those that only run in the VM.
func BuildTest(ctx context.Context, out, module, pkg string) error {
	return goTool(ctx, module, "test", "-c", "-tags", Tag, "-trimpath", "-ldflags", "-s -w", "-o", out, pkg)
}

func goTool(ctx context.Context, module string, arguments ...string) error {
	cmd := exec.CommandContext(ctx, "go", arguments...)
	cmd.Dir = filepath.Join("..", module)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOARCH=amd64")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go %v: %w\n%s", arguments, err, out)
	}
	return nil
}

// Image makes a raw image of some bytes with a filesystem in it.
func Image(ctx context.Context, path string, bytes int64, mkfs string, arguments ...string) error {
	if err := need(mkfs); err != nil {
		return err
	}
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	if err := f.Truncate(bytes); err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	if out, err := exec.CommandContext(ctx, mkfs, append(arguments, "-q", path)...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", mkfs, err, out)
	}
	return nil
}

// scratch is a folder on a disk for images, which /tmp need not have room for.
func scratch(name string) (string, error) {
	dir, err := cache.Open()
	if err != nil {
		return "", err
	}
	folder := dir.Path("vm", "scratch")
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return "", err
	}
	return os.MkdirTemp(folder, name+"-")
}
