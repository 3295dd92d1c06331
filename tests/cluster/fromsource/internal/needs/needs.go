// Package needs looks for what only building from source takes.
package needs

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"

	"github.com/hostpath-provisioner/hostpath-provisioner/tests/cluster/internal/preflight"
	"github.com/hostpath-provisioner/hostpath-provisioner/tools/images/debian"
)

// Bytes that must be free where everything is compiled (Go's own caches included), and that linking Kubernetes'
// binaries takes at its peak.
const (
	diskToBuild   = 20 << 30
	memoryToBuild = 5 << 30
)

// Check says what is missing, and names the OS packages that Install can bring.
func Check(h preflight.Host, cacheDir string) (packages []string, err error) {
	if h.OS != "linux" {
		return nil, fmt.Errorf("a node image can be built from source on Linux only, this is %s: let Docker reach a "+
			"registry that has the kindest/node image", h.OS)
	}
	errs := []error{preflight.Disk(h, cacheDir, diskToBuild), memory(h)}
	if h.UID != 0 {
		errs = append(errs, errors.New("building a node image from source needs root, for debootstrap: run it once "+
			"with sudo -E, or let Docker reach a registry that has the kindest/node image"))
	}
	for _, tool := range []string{"debootstrap", "gpgv", "tar"} { // gpgv is what debootstrap checks signatures with
		if _, err := h.LookPath(tool); err != nil {
			packages = append(packages, tool)
		}
	}
	if !h.Exists(debian.Keyring) {
		packages = append(packages, debian.KeyringPackage)
	}
	if _, err := h.LookPath("apt-get"); err != nil && len(packages) > 0 {
		errs = append(errs, fmt.Errorf("%s is missing and there is no apt-get here to install it with: install it "+
			"the way this system does", strings.Join(packages, ", ")))
	}
	return packages, errors.Join(errs...)
}

func memory(h preflight.Host) error {
	have, err := h.Memory()
	if err != nil {
		return fmt.Errorf("ask how much memory is available: %w", err)
	}
	if have < memoryToBuild {
		return fmt.Errorf("only %d GiB of memory are available, and compiling Kubernetes takes %d GiB: "+
			"stop something, or add swap", have>>30, uint64(memoryToBuild)>>30)
	}
	return nil
}

// Install installs Debian packages, as root.
func Install(ctx context.Context, packages []string) error {
	for _, args := range [][]string{
		{"update", "--quiet"},
		append([]string{"install", "--yes", "--quiet", "--no-install-recommends"}, packages...),
	} {
		// Somebody else may be installing something: that is waited for, for ten minutes.
		cmd := exec.CommandContext(ctx, "apt-get", append([]string{"-o", "DPkg::Lock::Timeout=600"}, args...)...)
		cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("apt-get %s: %w\n%s", strings.Join(args, " "), err, out)
		}
	}
	return nil
}
