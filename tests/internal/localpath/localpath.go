// Package localpath puts rancher's local-path provisioner into a cluster, built from its Go module: to be measured
// beside ours, and to provide pools of ours with claims.
package localpath

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/hostpath-provisioner/hostpath-provisioner/tests/cluster/kindcluster"
	"github.com/hostpath-provisioner/hostpath-provisioner/tests/cluster/provide"
	"github.com/hostpath-provisioner/hostpath-provisioner/tests/internal/cache"
)

// Version is the release that the budgets in docs/explanation/performance.md name.
const Version = provide.LocalPathVersion

// What the manifest makes. The names are its own, beside those of a local-path that a public node image brings.
const (
	Class     = "test-local-path"
	Namespace = "test-local-path-system"
	Account   = "local-path-provisioner"
	// Path is where its volumes lie on a node: PV_namespace_claim.
	Path = "/var/lib/test-local-path"
)

// manifest installs it with its own defaults: four workers, a helper pod for each creation and each deletion.
//
//go:embed manifest.yaml
var manifest string

// Install builds and pushes the images, if the cache does not have them, and installs the provisioner.
func Install(ctx context.Context, c *kindcluster.Cluster) error {
	dir, err := cache.Open()
	if err != nil {
		return err
	}
	if err := provide.LocalPath(ctx, c); err != nil {
		return err
	}
	shell, err := busybox(ctx, dir)
	if err != nil {
		return err
	}
	// Called sh, it is a shell with its other tools built in.
	if _, err := c.PushBinary(ctx, shell, "/bin/sh", "test-local-path/busybox:static"); err != nil {
		return err
	}
	if _, err := c.Kubectl(ctx, strings.NewReader(manifest), "apply", "-f", "-"); err != nil {
		return fmt.Errorf("install local-path: %w", err)
	}
	_, err = c.Kubectl(ctx, nil, "rollout", "status", "deployment/local-path-provisioner", "-n",
		Namespace, "--timeout=120s")
	return err
}

// Remove removes all of it, also after an interrupt.
func Remove(ctx context.Context, c *kindcluster.Cluster) error {
	_, err := c.Kubectl(context.WithoutCancel(ctx), strings.NewReader(manifest), "delete", "--ignore-not-found",
		"--timeout=120s", "-f", "-")
	return err
}

// busybox gives a static busybox: the machine's own, or Debian's package, unpacked and not installed.
func busybox(ctx context.Context, dir cache.Dir) (string, error) {
	if own, err := exec.LookPath("busybox"); err == nil && works(ctx, own) {
		return own, nil
	}
	folder, err := dir.Once("bin/busybox-static-"+runtime.GOARCH, func(folder string) error {
		const script = "apt-get download -q busybox-static && dpkg-deb --extract busybox-static_*.deb . && rm *.deb"
		cmd := exec.CommandContext(ctx, "sh", "-ec", script)
		cmd.Dir = folder
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("local-path's helper pods need a static busybox: install one (Debian: busybox-static): "+
				"%s: %w\n%s", script, err, out)
		}
		if !works(ctx, filepath.Join(folder, unpacked)) {
			return errors.New(
				"the busybox-static of Debian cannot run mkdir and rm on its own: install another static busybox")
		}
		return nil
	})
	return filepath.Join(folder, unpacked), err
}

// unpacked is where Debian's package has the program.
const unpacked = "bin/busybox"

// works reports whether a busybox, alone in an image and called sh, would do what helper pods do.
func works(ctx context.Context, binary string) bool {
	work, err := os.MkdirTemp("", "hpp-busybox-")
	if err != nil {
		return false
	}
	defer os.RemoveAll(work)
	shell := filepath.Join(work, "sh")
	if os.Symlink(binary, shell) != nil {
		return false
	}
	cmd := exec.CommandContext(ctx, shell, "-ec", `mkdir -m 0777 -p try/it; rm -rf try`)
	cmd.Dir, cmd.Env = work, []string{"PATH=/nonexistent"}
	if cmd.Run() != nil {
		return false
	}
	libraries, err := exec.CommandContext(ctx, "ldd", binary).CombinedOutput()
	return err != nil && strings.Contains(string(libraries), "not a dynamic executable")
}
