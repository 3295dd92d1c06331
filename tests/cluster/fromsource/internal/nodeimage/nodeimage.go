// Package nodeimage builds the image that the nodes of a kind cluster run.
package nodeimage

import (
	_ "embed"
	"runtime"

	"github.com/hostpath-provisioner/hostpath-provisioner/tests/cluster/fromsource/internal/programs"
	"github.com/hostpath-provisioner/hostpath-provisioner/tests/cluster/fromsource/internal/rootfs"
	"github.com/hostpath-provisioner/hostpath-provisioner/tests/cluster/internal/versions"
)

// Repository holds the images built here. The name says localhost so that no
// one looks for it elsewhere.
const Repository = "localhost/hostpath-provisioner/node"

// recipe is part of the image's tag: raise it when this package does something new.
const recipe = "1"

//go:embed entrypoint.sh
var entrypoint string

// Name is the name of the image. Its tag changes with everything that goes into it.
func Name() string {
	parts := []string{recipe, versions.Kind, rootfs.Key(), runtime.GOARCH, entrypoint}
	for _, p := range []programs.Program{
		programs.Kubernetes(), programs.Etcd(), programs.Containerd(), programs.CoreDNS(),
	} {
		parts = append(parts, p.Name, p.Version, p.Tags, p.Ldflags)
	}
	return Repository + ":" + programs.KubernetesVersion + "-" + programs.Key(parts...)
}
