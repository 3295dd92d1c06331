// Package localpath puts rancher's local-path provisioner into a cluster, built from its Go module, to be measured beside ours.
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
	"github.com/hostpath-provisioner/hostpath-provisioner/tests/perf/internal/burst"
)

// Version is the release that the budgets in docs/explanation/performance.md name.
const Version = "v0.0.30"

const module = "github.com/rancher/local-path-provisioner"

// manifest installs it with its own defaults: four workers, a helper pod for each creation and each deletion.
//
//go:embed manifest.yaml
var manifest string

// System is it as the burst measures it.
func System() burst.System {
	return burst.System{
		Name: burst.LocalPath, Class: "perf-local-path", Namespace: "perf-local-path-system", Account: "local-path-provisioner",
		Processes: []string{"local-path-prov"},
	}
}

// Install builds and pushes the images, if the cache does not have them, and installs the provisioner.
func Install(ctx context.Context, c *kindcluster.Cluster) error {
	cache, err := kindcluster.CacheDir()
	if err != nil {
		return err
	}
	provisioner, err := build(ctx, filepath.Join(cache, "bin", "local-path-provisioner-"+Version+"-"+runtime.GOOS+"-"+runtime.GOARCH))
	if err != nil {
		return err
	}
	shell, err := busybox(ctx, filepath.Join(cache, "bin", "busybox-static-"+runtime.GOARCH))
	if err != nil {
		return err
	}
	for _, image := range []struct{ binary, target, name string }{
		{provisioner, "/local-path-provisioner", "rancher/local-path-provisioner:" + Version},
		{shell, "/bin/sh", "perf/busybox:static"}, // called sh, it is a shell with its other tools built in
	} {
		if _, err := c.PushBinary(ctx, image.binary, image.target, image.name); err != nil {
			return fmt.Errorf("push %s: %w", image.name, err)
		}
	}
	if _, err := c.Kubectl(ctx, strings.NewReader(manifest), "apply", "-f", "-"); err != nil {
		return fmt.Errorf("install local-path: %w", err)
	}
	_, err = c.Kubectl(ctx, nil, "rollout", "status", "deployment/local-path-provisioner", "-n", System().Namespace, "--timeout=120s")
	return err
}

// Remove removes all of it, also after an interrupt.
func Remove(ctx context.Context, c *kindcluster.Cluster) error {
	_, err := c.Kubectl(context.WithoutCancel(ctx), strings.NewReader(manifest), "delete", "--ignore-not-found", "--timeout=120s", "-f", "-")
	return err
}

// build compiles the provisioner into the folder dir, through a module of its own: go install refuses modules that it cannot list.
func build(ctx context.Context, dir string) (string, error) {
	binary := filepath.Join(dir, "local-path-provisioner")
	if _, err := os.Stat(binary); err == nil {
		return binary, nil
	}
	work, err := os.MkdirTemp("", "hpp-local-path-")
	if err != nil {
		return "", fmt.Errorf("make a folder to build local-path in: %w", err)
	}
	defer func() { _ = os.RemoveAll(work) }()
	text := "module wrapper\n\ngo 1.26.0\n\nrequire " + module + " " + Version + "\n"
	if err := os.WriteFile(filepath.Join(work, "go.mod"), []byte(text), 0o644); err != nil {
		return "", fmt.Errorf("write the module that builds local-path: %w", err)
	}
	built := filepath.Join(work, "provisioner")
	cmd := exec.CommandContext(ctx, "go", "build", "-mod=mod", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w", "-o", built, module)
	cmd.Dir = work
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=", "GOWORK=off")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("compile %s %s: %w\n%s", module, Version, err, out)
	}
	return binary, keep(built, binary)
}

// busybox gives a static busybox: the machine's own, or Debian's package, unpacked and not installed.
func busybox(ctx context.Context, dir string) (string, error) {
	binary := filepath.Join(dir, "busybox")
	if _, err := os.Stat(binary); err == nil {
		return binary, nil
	}
	work, err := os.MkdirTemp("", "hpp-busybox-")
	if err != nil {
		return "", fmt.Errorf("make a folder for busybox: %w", err)
	}
	defer func() { _ = os.RemoveAll(work) }()
	if own, err := exec.LookPath("busybox"); err == nil && works(ctx, own, work) {
		return own, nil
	}
	script := "apt-get download -q busybox-static && dpkg-deb --extract busybox-static_*.deb unpacked"
	cmd := exec.CommandContext(ctx, "sh", "-ec", script)
	cmd.Dir = work
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("local-path's helper pods need a static busybox: install one (Debian: busybox-static): %s: %w\n%s", script, err, out)
	}
	unpacked := filepath.Join(work, "unpacked", "bin", "busybox")
	if !works(ctx, unpacked, work) {
		return "", errors.New("the busybox-static of Debian cannot run mkdir and rm on its own: install another static busybox")
	}
	return binary, keep(unpacked, binary)
}

// works tells whether a busybox, alone in an image and called sh, would do what helper pods do.
func works(ctx context.Context, binary, work string) bool {
	shell := filepath.Join(work, "sh")
	if os.Symlink(binary, shell) != nil {
		return false
	}
	defer func() { _ = os.Remove(shell) }()
	cmd := exec.CommandContext(ctx, shell, "-ec", `mkdir -m 0777 -p try/it; rm -rf try`)
	cmd.Dir, cmd.Env = work, []string{"PATH=/nonexistent"}
	if cmd.Run() != nil {
		return false
	}
	libraries, err := exec.CommandContext(ctx, "ldd", binary).CombinedOutput()
	return err != nil && strings.Contains(string(libraries), "not a dynamic executable")
}

// keep puts a finished file into the cache in one step.
func keep(from, to string) error {
	data, err := os.ReadFile(from)
	if err != nil {
		return fmt.Errorf("keep %s: %w", filepath.Base(to), err)
	}
	temporary := fmt.Sprintf("%s.%d", to, os.Getpid())
	err = errors.Join(os.MkdirAll(filepath.Dir(to), 0o755), os.WriteFile(temporary, data, 0o755))
	if err == nil {
		err = os.Rename(temporary, to)
	}
	if err != nil {
		return fmt.Errorf("keep %s in the cache: %w", filepath.Base(to), err)
	}
	return nil
}
