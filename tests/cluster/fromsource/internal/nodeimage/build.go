package nodeimage

import (
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"golang.org/x/sync/errgroup"

	"github.com/hostpath-provisioner/hostpath-provisioner/tests/cluster/fromsource/internal/gobuild"
	"github.com/hostpath-provisioner/hostpath-provisioner/tests/cluster/fromsource/internal/programs"
	"github.com/hostpath-provisioner/hostpath-provisioner/tests/cluster/fromsource/internal/rootfs"
	"github.com/hostpath-provisioner/hostpath-provisioner/tests/cluster/internal/dockercli"
	"github.com/hostpath-provisioner/hostpath-provisioner/tests/cluster/internal/progress"
	"github.com/hostpath-provisioner/hostpath-provisioner/tests/cluster/internal/versions"
	"github.com/hostpath-provisioner/hostpath-provisioner/tests/internal/cache"
	"github.com/hostpath-provisioner/hostpath-provisioner/tests/internal/repo"
	"github.com/hostpath-provisioner/hostpath-provisioner/tools/images/compile"
	"github.com/hostpath-provisioner/hostpath-provisioner/tools/images/scratch"
)

// buildSteps is how many steps Build prints.
const buildSteps = 6

// Build makes the node image from source and returns its name. What the cache
// already has is not made again.
func Build(ctx context.Context, dir cache.Dir, steps *progress.Printer) (string, error) {
	steps.Expect(buildSteps)
	p, err := collect(ctx, dir, steps)
	if err != nil {
		return "", err
	}
	image := Name()
	err = steps.Step("node image: put together, load the control plane into it",
		40*time.Second, func(report func(string)) error {
			return assemble(ctx, p, image, report)
		})
	return image, err
}

// collect brings the parts, two at a time: unpacking Debian waits for the
// network and the disk most of the time, linking uses one core.
func collect(ctx context.Context, dir cache.Dir, steps *progress.Printer) (parts, error) {
	var p parts
	group, building := errgroup.WithContext(ctx)
	group.SetLimit(2)
	step := func(target *string, what string, usual time.Duration, entry string,
		build func(func(string)) (string, error),
	) {
		if dir.Has(entry) {
			what, usual = what+": in the cache", 0
		}
		group.Go(func() error {
			return steps.Step(what, usual, func(report func(string)) (err error) {
				*target, err = build(report)
				return err
			})
		})
	}
	program := func(target *string, v programs.Program) {
		step(target, "compile "+v.Name+" "+v.Version, v.Usual, gobuild.Folder(v),
			func(report func(string)) (string, error) {
				return gobuild.Build(building, dir, v, report)
			})
	}
	step(&p.system, "root filesystem: Debian "+programs.Debian, 110*time.Second, rootfs.Folder(),
		func(report func(string)) (string, error) {
			return rootfs.Build(building, dir, report)
		})
	program(&p.kubernetes, programs.Kubernetes())
	program(&p.containerd, programs.Containerd())
	program(&p.etcd, programs.Etcd())
	program(&p.coredns, programs.CoreDNS())
	if err := group.Wait(); err != nil {
		return p, err
	}
	kind, err := gobuild.Fetch(ctx, "sigs.k8s.io/kind", versions.Kind)
	p.kindModule = kind.Dir
	return p, err
}

// assemble makes the base image, and the final one from it.
func assemble(ctx context.Context, p parts, image string, report func(string)) (err error) {
	work, err := os.MkdirTemp("", "hpp-node-image-")
	if err != nil {
		return fmt.Errorf("make a folder for the node image: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(work)) }()

	report("the pause program")
	p.pause = filepath.Join(work, "pause")
	if err := compilePause(ctx, p.pause); err != nil {
		return err
	}
	report("the control plane's images")
	config, err := os.ReadFile(filepath.Join(p.kindModule, "images/base/files", containerdConfig))
	if err != nil {
		return err
	}
	sandbox, err := sandboxImage(string(config))
	if err != nil {
		return err
	}
	podImages := filepath.Join(work, "images.tar")
	if err := writePodImages(ctx, p, sandbox, podImages); err != nil {
		return err
	}
	report("the node's files")
	base := image + "-base"
	if err := loadBase(ctx, p, work, base); err != nil {
		return err
	}
	report("importing the control plane's images")
	return preload(ctx, base, podImages, image)
}

func compilePause(ctx context.Context, folder string) error {
	root, err := repo.Root()
	if err != nil {
		return err
	}
	return compile.Run(ctx, compile.Target{
		Dir: filepath.Join(root, "tests"), Package: "./cluster/fromsource/internal/pause", OS: "linux",
		Arch: runtime.GOARCH, Output: filepath.Join(folder, "pause"),
	})
}

// loadBase gives Docker an image with Debian and the overlay. Its layers are
// not compressed: they go no further than Docker's own store.
func loadBase(ctx context.Context, p parts, work, image string) error {
	files, err := overlay(ctx, p)
	if err != nil {
		return err
	}
	overlayTar := filepath.Join(work, "overlay.tar")
	if err := writeTarFile(overlayTar, files); err != nil {
		return err
	}
	var layers []v1.Layer
	for _, path := range []string{filepath.Join(p.system, rootfs.SystemTar), overlayTar} {
		layer, err := tarball.LayerFromFile(path, tarball.WithCompressionLevel(gzip.NoCompression))
		if err != nil {
			return fmt.Errorf("read %s: %w", path, err)
		}
		layers = append(layers, layer)
	}
	img, err := scratch.FromLayers(scratch.Config{
		OS:         "linux",
		Arch:       runtime.GOARCH,
		Entrypoint: nodeEntrypoint(),
		// systemd looks for the variable, and stops on this signal alone.
		Env:        []string{"container=docker", "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"},
		StopSignal: "SIGRTMIN+3",
	}, layers...)
	if err != nil {
		return err
	}
	return LoadIntoDocker(ctx, image, img)
}

func nodeEntrypoint() []string {
	return []string{"/hostpath-provisioner/entrypoint", "/usr/local/bin/entrypoint", "/sbin/init"}
}

func writeTarFile(path string, files []scratch.File) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	return errors.Join(scratch.WriteTar(f, files...), f.Close())
}

// LoadIntoDocker puts img into Docker's store under the name given.
func LoadIntoDocker(ctx context.Context, image string, img v1.Image) error {
	tag, err := name.NewTag(image)
	if err != nil {
		return fmt.Errorf("image name %q: %w", image, err)
	}
	r, w := io.Pipe()
	go func() { w.CloseWithError(tarball.Write(tag, img, w)) }()
	_, err = dockercli.Input(ctx, r, "load", "--quiet")
	return errors.Join(err, r.Close())
}
