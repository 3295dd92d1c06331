package nodeimage

import (
	"compress/gzip"
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"github.com/hostpath-provisioner/hostpath-provisioner/tests/cluster/fromsource/internal/programs"
	"github.com/hostpath-provisioner/hostpath-provisioner/tests/cluster/fromsource/internal/rootfs"
	"github.com/hostpath-provisioner/hostpath-provisioner/tools/images/scratch"
)

// writePodImages writes the images of the control plane into one archive that
// containerd imports, under the names that kubeadm asks for.
func writePodImages(ctx context.Context, p parts, sandbox, target string) error {
	names, err := kubeadmImages(ctx, filepath.Join(p.kubernetes, "kubeadm"))
	if err != nil {
		return err
	}
	images := map[name.Reference]v1.Image{}
	for _, reference := range append(names, sandbox) {
		ref, err := name.NewTag(reference)
		if err != nil {
			return fmt.Errorf("image name %q: %w", reference, err)
		}
		if images[ref], err = podImage(p, reference); err != nil {
			return err
		}
	}
	if err := tarball.MultiRefWriteToFile(target, images); err != nil {
		return fmt.Errorf("write the control plane's images: %w", err)
	}
	return nil
}

// kubeadmImages asks kubeadm what it will run.
func kubeadmImages(ctx context.Context, kubeadm string) ([]string, error) {
	out, err := exec.CommandContext(ctx, kubeadm, "config", "images", "list", "--kubernetes-version",
		programs.KubernetesVersion).Output()
	if err != nil {
		return nil, fmt.Errorf("ask kubeadm which images it needs: %w", err)
	}
	return strings.Fields(string(out)), nil
}

// podImage makes the image that goes by reference.
func podImage(p parts, reference string) (v1.Image, error) {
	program := reference[strings.LastIndex(reference, "/")+1:]
	program, _, _ = strings.Cut(program, ":")
	folders := map[string]string{"etcd": p.etcd, "coredns": p.coredns, "pause": p.pause}
	folder, special := folders[program]
	if !special {
		folder = p.kubernetes
	}
	layers, err := fileLayers(scratch.File{Path: "/usr/local/bin/" + program, Source: filepath.Join(folder, program)})
	if err != nil {
		return nil, fmt.Errorf("make image %s: %w", reference, err)
	}
	if program == "kube-proxy" {
		base, err := tarball.LayerFromFile(
			filepath.Join(p.system, rootfs.FirewallTar), tarball.WithCompressionLevel(gzip.BestSpeed),
		)
		if err != nil {
			return nil, fmt.Errorf("make image %s: %w", reference, err)
		}
		layers = append([]v1.Layer{base}, layers...)
	}
	return scratch.FromLayers(scratch.Config{
		OS:         "linux",
		Arch:       runtime.GOARCH,
		Entrypoint: []string{"/usr/local/bin/" + program},
		Env:        []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"},
	}, layers...)
}

func fileLayers(files ...scratch.File) ([]v1.Layer, error) {
	layer, err := scratch.Layer(files...)
	return []v1.Layer{layer}, err
}

// sandboxImage reads which image containerd starts pods with.
func sandboxImage(config string) (string, error) {
	match := regexp.MustCompile(`(?m)^\s*sandbox_image = "([^"]+)"`).FindStringSubmatch(config)
	if match == nil {
		return "", fmt.Errorf("no sandbox_image in %s of kind's node files: look at what kind changed",
			containerdConfig)
	}
	return match[1], nil
}
