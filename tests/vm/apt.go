package vm

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"

	"github.com/hostpath-provisioner/hostpath-provisioner/tests/internal/cache"
	"github.com/hostpath-provisioner/hostpath-provisioner/tools/images/debian"
)

// apt is Debian's archive of the kernel's suite.
type apt struct{ debian.Archive }

func newApt(ctx context.Context, dir cache.Dir) (apt, error) {
	archive, err := debian.Open(ctx, dir.Path("vm", "apt-"+suite), "amd64", suite)
	return apt{archive}, err
}

// newest says which package the newest kernel is in, and its version.
func (a apt) newest(ctx context.Context) (name, version string, err error) {
	out, err := a.Show(ctx, meta)
	if err != nil {
		return "", "", err
	}
	match := regexp.MustCompile(`(?m)^Depends: (linux-image-\S+) \(= (\S+)\)`).FindSubmatch(out)
	if match == nil {
		return "", "", fmt.Errorf("apt-cache does not say which kernel %s of %s stands for:\n%s", meta, suite, out)
	}
	return string(match[1]), string(match[2]), nil
}

// unpack downloads a kernel package and unpacks it into folder.
func (a apt) unpack(ctx context.Context, name, folder string) error {
	if err := a.Unpack(ctx, folder, name); err != nil {
		return err
	}
	// kmod looks below lib/; Debian's packages count on lib being a link to usr/lib.
	if _, err := os.Lstat(filepath.Join(folder, "lib")); errors.Is(err, os.ErrNotExist) {
		if err := os.Symlink("usr/lib", filepath.Join(folder, "lib")); err != nil {
			return err
		}
	}
	kernel, err := opened(folder)
	if err != nil {
		return err
	}
	if out, err := exec.CommandContext(ctx, "depmod", "-b", folder, kernel.Release).CombinedOutput(); err != nil {
		return fmt.Errorf("depmod of the kernel %s: %w\n%s", kernel.Release, err, out)
	}
	return os.WriteFile(filepath.Join(folder, "complete"), nil, 0o644)
}
