package vm

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/hostpath-provisioner/hostpath-provisioner/tests/internal/cache"
	"github.com/hostpath-provisioner/hostpath-provisioner/tools/images/compile"
	"github.com/hostpath-provisioner/hostpath-provisioner/tools/images/product"
)

// Tag marks test files that only run in the VM.
const Tag = "vm"

// architecture is the VM's.
const architecture = "amd64"

// BuildDriver compiles the driver as it is shipped.
func BuildDriver(ctx context.Context, out string) error {
	target := product.Target(filepath.Join("..", ".."), "./src/driver", "0.0.0-dev", out)
	target.Arch = architecture
	return compile.Run(ctx, target)
}

// buildGuest compiles the VM's first process.
func buildGuest(ctx context.Context, out string) error {
	return goTool(ctx, ".", "build", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w", "-o", out, "./vm/guest")
}

// BuildTest compiles the tests of a package of this module (module ".") or of the root module (".."), with those that
// only run in the VM.
func BuildTest(ctx context.Context, out, module, pkg string) error {
	return goTool(ctx, module, "test", "-c", "-tags", Tag, "-trimpath", "-ldflags", "-s -w", "-o", out, pkg)
}

func goTool(ctx context.Context, module string, arguments ...string) error {
	cmd := exec.CommandContext(ctx, "go", arguments...)
	cmd.Dir = filepath.Join("..", module)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOARCH="+architecture)
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
