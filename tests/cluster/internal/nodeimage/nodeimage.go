// Package nodeimage provides the image that the nodes of a kind cluster run:
// the public one where it can be pulled, else one built from source.
package nodeimage

import (
	"context"
	_ "embed"
	"fmt"
	"os"
	"runtime"
	"strings"

	"github.com/hostpath-provisioner/hostpath-provisioner/tests/cluster/internal/dockercli"
	"github.com/hostpath-provisioner/hostpath-provisioner/tests/cluster/internal/rootfs"
	"github.com/hostpath-provisioner/hostpath-provisioner/tests/cluster/internal/versions"
)

// Variable names a node image to use instead, or "source" to build one even
// where the public one could be pulled. CI's matrix of versions sets it.
const Variable = "HPP_NODE_IMAGE"

const fromSource = "source"

// Repository holds the images built here. The name says localhost so that no
// one looks for it elsewhere.
const Repository = "localhost/hostpath-provisioner/node"

// recipe is part of the image's tag: raise it when this package does something new.
const recipe = "1"

//go:embed entrypoint.sh
var entrypoint string

// programs are the binaries of the image.
func programs() []versions.Program {
	return []versions.Program{
		versions.KubernetesProgram(), versions.EtcdProgram(),
		versions.ContainerdProgram(), versions.CoreDNSProgram(),
	}
}

// BuiltName is the name of the image built from source. Its tag changes with
// everything that goes into it.
func BuiltName() string {
	parts := []string{recipe, versions.Kind, rootfs.Key(), runtime.GOARCH, entrypoint}
	for _, p := range programs() {
		parts = append(parts, p.Name, p.Version, p.Tags, p.Ldflags)
	}
	return Repository + ":" + versions.Kubernetes + "-" + versions.Key(parts...)
}

// IsBuilt reports whether the image is one built here, which has no network
// plugin of its own.
func IsBuilt(image string) bool { return strings.HasPrefix(image, Repository+":") }

// Wanted is the image that the user or the versions name; "" means build.
func Wanted() string {
	switch image := os.Getenv(Variable); image {
	case "":
		return versions.PublicNodeImage
	case fromSource:
		return ""
	default:
		return image
	}
}

// Choose returns the image to use. The second result is false when it must be
// built first. unprivileged is true where nodes cannot be privileged
// containers: only an image built here starts there. note gets a line about a
// pull that was tried.
func Choose(ctx context.Context, unprivileged bool, note func(format string, args ...any)) (string, bool, error) {
	built := BuiltName()
	wanted := Wanted()
	if unprivileged && os.Getenv(Variable) == "" {
		wanted = ""
	}
	if wanted != "" {
		have, err := dockercli.HasImage(ctx, wanted)
		if have || err != nil {
			return wanted, true, err
		}
	}
	// What was built before is taken without asking the network again.
	if have, err := dockercli.HasImage(ctx, built); err != nil || (have && os.Getenv(Variable) == "") {
		return built, true, err
	}
	if wanted == "" {
		have, err := dockercli.HasImage(ctx, built)
		return built, have, err
	}
	note("Pulling %s", wanted)
	err := dockercli.Pull(ctx, wanted)
	if err == nil {
		return wanted, true, nil
	}
	if os.Getenv(Variable) != "" {
		return "", false, fmt.Errorf("node image %s, which %s names: %w", wanted, Variable, err)
	}
	note("It cannot be pulled (%v): building a node image from source instead.", err)
	return built, false, nil
}
