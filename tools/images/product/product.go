// Package product knows which images this project ships, builds them, and
// publishes them to a registry or to a folder in OCI layout.
package product

import (
	"context"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"golang.org/x/sync/errgroup"

	"github.com/hostpath-provisioner/hostpath-provisioner/tools/images/compile"
	"github.com/hostpath-provisioner/hostpath-provisioner/tools/images/debian"
	"github.com/hostpath-provisioner/hostpath-provisioner/tools/images/scratch"
)

// Repository is the prefix under which releases publish the images.
const Repository = "ghcr.io/hostpath-provisioner"

// versionVariable is the variable of the root module that the linker sets.
const versionVariable = "github.com/hostpath-provisioner/hostpath-provisioner/src/internal/buildinfo.version"

// Names are the images, which are also the folders below src/ and the names
// of the binaries at the root of each image.
func Names() []string {
	return []string{"controller", "driver", "legacyprovisioner", "mounter", "operator", "selftest"}
}

// Platform is an operating system and an architecture, as Go names them.
type Platform struct{ OS, Arch string }

// String returns the platform as registries write it: "linux/amd64".
func (p Platform) String() string { return p.OS + "/" + p.Arch }

// ParsePlatforms reads a list such as "linux/amd64,linux/arm64".
func ParsePlatforms(list string) ([]Platform, error) {
	var all []Platform
	for part := range strings.SplitSeq(list, ",") {
		goos, arch, ok := strings.Cut(strings.TrimSpace(part), "/")
		if !ok || goos == "" || arch == "" {
			return nil, fmt.Errorf("platform %q: want OS/ARCH, for example linux/amd64", part)
		}
		all = append(all, Platform{OS: goos, Arch: arch})
	}
	return all, nil
}

// Options say what Build builds.
type Options struct {
	// Root is the repository's root folder.
	Root string
	// Names are the images wanted; empty means all of Names().
	Names []string
	// Version goes into the binaries and is the tag of the images.
	Version   string
	Platforms []Platform
	// Report, when set, is called with each package that gets compiled, from
	// several goroutines at once.
	Report func(importPath string)
}

// Built is one image, for one platform or several.
type Built struct {
	Name   string
	Images []PlatformImage
}

// PlatformImage is the image for one platform.
type PlatformImage struct {
	Platform Platform
	Image    v1.Image
}

// Build compiles the binaries, at most two at a time because the compiler
// itself uses every core, and wraps each into an image.
func Build(ctx context.Context, o Options) ([]Built, error) {
	names := o.Names
	if len(names) == 0 {
		names = Names()
	}
	dir, err := os.MkdirTemp("", "hpp-images-")
	if err != nil {
		return nil, fmt.Errorf("make a folder for the binaries: %w", err)
	}
	defer os.RemoveAll(dir)
	built := make([]Built, len(names))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(2)
	for i, name := range names {
		built[i] = Built{Name: name, Images: make([]PlatformImage, len(o.Platforms))}
		for j, platform := range o.Platforms {
			group.Go(func() error {
				output := filepath.Join(dir, platform.OS, platform.Arch, name)
				img, err := buildOne(ctx, o, name, platform, output)
				built[i].Images[j] = PlatformImage{Platform: platform, Image: img}
				return err
			})
		}
	}
	return built, group.Wait()
}

// Target is a program of the repository at root, such as ./src/driver, as its image has it, for this machine. Tests run
// the same.
func Target(root, program, version, output string) compile.Target {
	return compile.Target{
		Dir: root, Package: program, OS: "linux", Arch: runtime.GOARCH,
		Ldflags: []string{"-X", versionVariable + "=" + version}, Output: output,
	}
}

func buildOne(ctx context.Context, o Options, name string, p Platform, output string) (v1.Image, error) {
	target := Target(o.Root, "./src/"+name, o.Version, output)
	target.OS, target.Arch, target.Report = p.OS, p.Arch, o.Report
	if err := compile.Run(ctx, target); err != nil {
		return nil, err
	}
	more, err := programs(ctx, name, p)
	if err != nil {
		return nil, err
	}
	return wrap(p, output, "/"+name, scratch.Config{User: user(name), Labels: labels(name, o.Version)}, more...)
}

// programs are what an image has besides its binary: the mounter makes filesystems, once it knows that a disk has none.
func programs(ctx context.Context, name string, p Platform) ([]scratch.File, error) {
	if name != "mounter" {
		return nil, nil
	}
	packages := []string{"xfsprogs", "util-linux", "libblkid1", "libuuid1", "libinih1", "liburcu8", "libc6"}
	return debian.Programs(ctx, p.Arch, packages, "/sbin/mkfs.xfs", "/sbin/blkid")
}

// user is who an image runs as. Controller and operator only talk to others, so nobody in particular; as a number,
// because the kubelet can tell only of a number that it is not root. The others work on the node, or their pod says who
// they are.
func user(name string) string {
	if name == "controller" || name == "operator" {
		return "65532:65532"
	}
	return ""
}

func labels(name, version string) map[string]string {
	return map[string]string{
		"org.opencontainers.image.title":    "hostpath-provisioner " + name,
		"org.opencontainers.image.version":  version,
		"org.opencontainers.image.source":   "https://github.com/hostpath-provisioner/hostpath-provisioner",
		"org.opencontainers.image.licenses": "Apache-2.0",
	}
}

// Wrap puts an already compiled static binary into an image of its own, at
// target, which is also the entrypoint.
func Wrap(p Platform, binary, target string, labels map[string]string) (v1.Image, error) {
	return wrap(p, binary, target, scratch.Config{Labels: labels})
}

func wrap(p Platform, binary, target string, config scratch.Config, more ...scratch.File) (v1.Image, error) {
	config.OS, config.Arch = p.OS, p.Arch
	config.Entrypoint = []string{target}
	config.Env = []string{"PATH=" + path.Dir(target)}
	if len(more) > 0 {
		config.Env[0] += ":/sbin"
	}
	return scratch.Image(config, append(more, scratch.File{Path: target, Source: binary})...)
}
