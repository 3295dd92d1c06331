// Package provide sees to what an installation into a cluster needs besides
// this repository's own images: the sidecars' images and Helm.
package provide

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/tests/cluster/fromsource"
	"github.com/hostpath-provisioner/hostpath-provisioner/tests/cluster/internal/versions"
	"github.com/hostpath-provisioner/hostpath-provisioner/tests/cluster/kindcluster"
	"github.com/hostpath-provisioner/hostpath-provisioner/tests/internal/cache"
	"github.com/hostpath-provisioner/hostpath-provisioner/tests/internal/repo"
)

// Sidecars makes sure that nodes can pull csi-provisioner, csi-resizer and csi-snapshotter.
func Sidecars(ctx context.Context, c *kindcluster.Cluster) error {
	return images(ctx, c, "sig-storage/csi-provisioner:"+versions.CSIProvisioner,
		"sig-storage/csi-resizer:"+versions.CSIResizer, "sig-storage/csi-snapshotter:"+versions.CSISnapshotter)
}

// images makes sure that nodes can pull upstream's programs.
func images(ctx context.Context, c *kindcluster.Cluster, names ...string) error {
	dir, err := cache.Open()
	if err != nil {
		return err
	}
	for _, image := range names {
		if err := fromsource.ProgramImage(ctx, dir, c.Printer(), image, c.PushBinary); err != nil {
			return err
		}
	}
	return nil
}

// Snapshots gives the cluster what VolumeSnapshots need beside a driver: their definitions, which it serves afterwards,
// and the snapshot-controller, which may still be starting.
func Snapshots(ctx context.Context, c *kindcluster.Cluster) error {
	if err := images(ctx, c, fromsource.SnapshotController); err != nil {
		return err
	}
	const what = "VolumeSnapshots: definitions and snapshot-controller"
	return c.Printer().Step(what, 3*time.Second, func(func(string)) error {
		manifests, err := fromsource.Snapshots(ctx)
		if err != nil {
			return err
		}
		for _, step := range []struct {
			manifest []byte
			command  []string
		}{
			{manifests.Definitions, []string{"apply", "--server-side"}},
			{manifests.Definitions, []string{"wait", "--for=condition=Established", "--timeout=60s"}},
			{manifests.Controller, []string{"apply", "--server-side"}},
		} {
			_, err := c.Kubectl(ctx, bytes.NewReader(step.manifest), append(step.command, "-f", "-")...)
			if err != nil {
				return fmt.Errorf("give cluster %s VolumeSnapshots: %w", c.Name(), err)
			}
		}
		return nil
	})
}

// LocalPathVersion is the release of rancher's provisioner that LocalPath pushes.
const LocalPathVersion = versions.LocalPath

// LocalPath compiles rancher's provisioner, if the cache does not have it, and pushes it to the cluster's registry.
func LocalPath(ctx context.Context, c *kindcluster.Cluster) error {
	const name = "local-path-provisioner"
	dir, err := cache.Open()
	if err != nil {
		return err
	}
	folder, err := fromsource.Program(ctx, dir, os.Stderr, name)
	if err != nil {
		return err
	}
	_, err = c.PushBinary(ctx, filepath.Join(folder, name), "/"+name, "rancher/"+name+":"+LocalPathVersion)
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
