// Package provide sees to what an installation into a cluster needs besides
// this repository's own images: the sidecars' images and Helm.
package provide

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/hostpath-provisioner/hostpath-provisioner/tests/cluster/fromsource"
	"github.com/hostpath-provisioner/hostpath-provisioner/tests/cluster/internal/versions"
	"github.com/hostpath-provisioner/hostpath-provisioner/tests/cluster/kindcluster"
	"github.com/hostpath-provisioner/hostpath-provisioner/tests/internal/cache"
	"github.com/hostpath-provisioner/hostpath-provisioner/tests/internal/repo"
)

// Sidecars makes sure that nodes can pull csi-provisioner and csi-resizer.
func Sidecars(ctx context.Context, c *kindcluster.Cluster) error {
	dir, err := cache.Open()
	if err != nil {
		return err
	}
	for _, image := range []string{
		"sig-storage/csi-provisioner:" + versions.CSIProvisioner, "sig-storage/csi-resizer:" + versions.CSIResizer,
	} {
		if err := fromsource.ProgramImage(ctx, dir, c.Printer(), image, c.PushBinary); err != nil {
			return err
		}
	}
	return nil
}

// Program compiles the main package at the root of a Go module and pushes it to the cluster's registry as an image.
func Program(ctx context.Context, c *kindcluster.Cluster, module, version, image string) error {
	dir, err := cache.Open()
	if err != nil {
		return err
	}
	binary, err := fromsource.Module(ctx, dir, module, version)
	if err != nil {
		return err
	}
	_, err = c.PushBinary(ctx, binary, "/"+filepath.Base(binary), image)
	return err
}

// Helm returns the path of Helm at the version that tools/ pins, which is built if the cache does not have it.
func Helm(ctx context.Context, c *kindcluster.Cluster) (binary string, err error) {
	root, err := repo.Root()
	if err != nil {
		return "", err
	}
	err = c.Printer().Step("helm", 0, func(func(string)) error {
		cmd := exec.CommandContext(ctx, "go", "run", "./install", "helm4")
		cmd.Dir = filepath.Join(root, "tools")
		out, err := cmd.Output()
		binary = strings.TrimSpace(string(out))
		if exit, is := errors.AsType[*exec.ExitError](err); is {
			err = fmt.Errorf("%w\n%s", err, exit.Stderr)
		}
		return err
	})
	if err != nil {
		return "", fmt.Errorf("build helm (go -C tools run ./install helm4): %w", err)
	}
	return binary, nil
}
