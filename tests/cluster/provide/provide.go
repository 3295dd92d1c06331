// Package provide sees to what an installation into a cluster needs besides
// this repository's own images: the sidecar's image and Helm.
package provide

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/hostpath-provisioner/hostpath-provisioner/tests/cluster/internal/cache"
	"github.com/hostpath-provisioner/hostpath-provisioner/tests/cluster/internal/gobuild"
	"github.com/hostpath-provisioner/hostpath-provisioner/tests/cluster/internal/versions"
	"github.com/hostpath-provisioner/hostpath-provisioner/tests/cluster/kindcluster"
)

// The sidecar's image, as the chart names it.
const (
	sidecarRegistry = "registry.k8s.io"
	sidecarImage    = "sig-storage/csi-provisioner:" + versions.CSIProvisioner
)

// Sidecar makes sure that nodes can pull csi-provisioner: from its own
// registry where that answers, else from the cluster's, compiled here.
func Sidecar(ctx context.Context, c *kindcluster.Cluster) error {
	dir, err := cache.Open()
	if err != nil {
		return err
	}
	what, usual := "image "+sidecarRegistry+"/"+sidecarImage, time.Duration(0)
	program := versions.CSIProvisionerProgram()
	public := !dir.Has(gobuild.Folder(program)) && canPull(ctx, sidecarRegistry+"/"+sidecarImage)
	switch {
	case public:
		what += ": the nodes pull it"
	case dir.Has(gobuild.Folder(program)):
		what += ": push, compiled earlier"
	default:
		what += ": cannot be pulled, compile and push"
		usual = 100 * time.Second
	}
	return c.Printer().Step(what, usual, func(report func(string)) error {
		if public {
			return nil
		}
		folder, err := gobuild.Build(ctx, dir, program, report)
		if err != nil {
			return err
		}
		_, err = c.PushBinary(ctx, filepath.Join(folder, program.Name), "/"+program.Name, sidecarImage)
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

// Helm returns the path of Helm at the pinned version, in the folder
// that the Makefile uses too.
func Helm(ctx context.Context, c *kindcluster.Cluster) (string, error) {
	dir, err := cache.Open()
	if err != nil {
		return "", err
	}
	steps := c.Printer()
	program := versions.HelmProgram()
	entry := "tools/helm-" + program.Version
	binary := dir.Path(entry, program.Name)
	if _, err := os.Stat(binary); err == nil {
		return binary, steps.Step("helm "+program.Version+": in the cache", 0, func(func(string)) error { return nil })
	}
	err = steps.Step("compile helm "+program.Version, 2*time.Minute, func(report func(string)) error {
		_, err := gobuild.BuildAs(ctx, dir, entry, program, report)
		return err
	})
	if err != nil {
		return "", err
	}
	if _, err := os.Stat(binary); err != nil {
		return "", fmt.Errorf("the cache has a folder for Helm without it (remove %s): %w", filepath.Dir(binary), err)
	}
	return binary, nil
}
