// Package provide sees to what an installation into a cluster needs besides
// this repository's own images: the sidecars' images and Helm.
package provide

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/hostpath-provisioner/hostpath-provisioner/tests/cluster/internal/gobuild"
	"github.com/hostpath-provisioner/hostpath-provisioner/tests/cluster/internal/repo"
	"github.com/hostpath-provisioner/hostpath-provisioner/tests/cluster/internal/versions"
	"github.com/hostpath-provisioner/hostpath-provisioner/tests/cluster/kindcluster"
	"github.com/hostpath-provisioner/hostpath-provisioner/tests/internal/cache"
)

// sidecarRegistry is where the chart takes upstream's sidecars from.
const sidecarRegistry = "registry.k8s.io"

// sidecar is a program of upstream's and its image as the chart names it.
type sidecar struct {
	program versions.Program
	image   string
}

// Sidecars makes sure that nodes can pull csi-provisioner and csi-resizer.
func Sidecars(ctx context.Context, c *kindcluster.Cluster) error {
	dir, err := cache.Open()
	if err != nil {
		return err
	}
	for _, s := range []sidecar{
		{versions.CSIProvisionerProgram(), "sig-storage/csi-provisioner:" + versions.CSIProvisioner},
		{versions.CSIResizerProgram(), "sig-storage/csi-resizer:" + versions.CSIResizer},
	} {
		if err := s.provide(ctx, c, dir); err != nil {
			return err
		}
	}
	return nil
}

// provide leaves the image to its own registry where that answers, else compiles and pushes it to the cluster's.
func (s sidecar) provide(ctx context.Context, c *kindcluster.Cluster, dir cache.Dir) error {
	what, usual := "image "+sidecarRegistry+"/"+s.image, time.Duration(0)
	compiled := dir.Has(gobuild.Folder(s.program))
	public := !compiled && canPull(ctx, sidecarRegistry+"/"+s.image)
	switch {
	case public:
		what += ": the nodes pull it"
	case compiled:
		what += ": push, compiled earlier"
	default:
		what += ": cannot be pulled, compile and push"
		usual = 100 * time.Second
	}
	return c.Printer().Step(what, usual, func(report func(string)) error {
		if public {
			return nil
		}
		folder, err := gobuild.Build(ctx, dir, s.program, report)
		if err != nil {
			return err
		}
		_, err = c.PushBinary(ctx, filepath.Join(folder, s.program.Name), "/"+s.program.Name, s.image)
		return err
	})
}

// canPull asks the registry for the image's description, and does not wait
// long: no answer is an answer too.
func canPull(ctx context.Context, image string) bool {
	ref, err := name.ParseReference(image)
	if err != nil {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, 8*time.Second)
	defer cancel()
	_, err = remote.Head(ref, remote.WithContext(ctx))
	return err == nil
}

// Program compiles the main package at the root of a Go module and pushes it to the cluster's registry as an image.
func Program(ctx context.Context, c *kindcluster.Cluster, module, version, image string) error {
	dir, err := cache.Open()
	if err != nil {
		return err
	}
	program := versions.Program{Name: path.Base(module), Module: module, Version: version}
	folder, err := gobuild.Build(ctx, dir, program, func(string) {})
	if err != nil {
		return err
	}
	_, err = c.PushBinary(ctx, filepath.Join(folder, program.Name), "/"+program.Name, image)
	return err
}

// Helm returns the path of Helm at the version that tools/ pins, which is built if the cache does not have it.
func Helm(ctx context.Context, c *kindcluster.Cluster) (binary string, err error) {
	root, err := repo.Root(ctx)
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
