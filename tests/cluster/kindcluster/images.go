package kindcluster

import (
	"context"
	"fmt"
	"runtime"
	"sync/atomic"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/tests/cluster/internal/dockercli"
	"github.com/hostpath-provisioner/hostpath-provisioner/tests/cluster/internal/registry"
	"github.com/hostpath-provisioner/hostpath-provisioner/tests/internal/repo"
	"github.com/hostpath-provisioner/hostpath-provisioner/tools/images/product"
)

// Registry is the address of the cluster's registry as seen from this
// machine: "localhost:49153". On the nodes every image is looked for there
// first, whatever registry its name has: push localhost:49153/a/b:c, run
// example.com/a/b:c.
func (c *Cluster) Registry(ctx context.Context) (string, error) {
	return registry.Address(ctx, c.name)
}

// PushProduct builds this repository's images (names as in product.Names;
// none means all) at the version given, pushes them, and returns their
// digests by name.
func (c *Cluster) PushProduct(ctx context.Context, version string, names ...string) (map[string]string, error) {
	return c.PushProductWithReport(ctx, version, func(string) {}, names...)
}

// PushProductWithReport is PushProduct for those who want to know how far it
// is: report gets a few words, from several goroutines at once.
func (c *Cluster) PushProductWithReport(
	ctx context.Context, version string, report func(string), names ...string,
) (map[string]string, error) {
	root, err := repo.Root()
	if err != nil {
		return nil, err
	}
	var compiled atomic.Int64
	return c.pushProduct(ctx, product.Options{
		Root: root, Names: names, Version: version,
		Report: func(string) { report(fmt.Sprintf("%d packages compiled", compiled.Add(1))) },
	})
}

// PushProductOf is PushProduct of another copy of the repository, such as an
// older version of it.
func (c *Cluster) PushProductOf(ctx context.Context, root, version string, names ...string) (map[string]string, error) {
	return c.pushProduct(ctx, product.Options{Root: root, Names: names, Version: version})
}

func (c *Cluster) pushProduct(ctx context.Context, o product.Options) (map[string]string, error) {
	built, err := build(ctx, o)
	if err != nil {
		return nil, err
	}
	return c.PushBuilt(ctx, o.Version, built)
}

// BuildProduct is the first half of PushProduct, which needs no cluster; PushBuilt is the other.
func BuildProduct(ctx context.Context, version string, names ...string) ([]product.Built, error) {
	root, err := repo.Root()
	if err != nil {
		return nil, err
	}
	return build(ctx, product.Options{Root: root, Names: names, Version: version})
}

func build(ctx context.Context, o product.Options) ([]product.Built, error) {
	o.Platforms = []product.Platform{platform()}
	return product.Build(ctx, o)
}

// PushBuilt pushes images that BuildProduct has built at that version, and returns their digests by name.
func (c *Cluster) PushBuilt(ctx context.Context, version string, built []product.Built) (map[string]string, error) {
	digests := map[string]string{}
	for _, b := range built {
		var err error
		if digests[b.Name], err = c.push(ctx, b, "hostpath-provisioner/"+b.Name+":"+version); err != nil {
			return nil, err
		}
	}
	return digests, nil
}

// PushBinary puts a static binary into an image of its own and pushes it as
// repository:tag ("sig-storage/csi-provisioner:v6.3.0", without a registry).
// The entrypoint is target ("/csi-provisioner"). It returns the digest.
func (c *Cluster) PushBinary(ctx context.Context, binary, target, image string) (string, error) {
	img, err := product.Wrap(platform(), binary, target, nil)
	if err != nil {
		return "", err
	}
	return c.PushImage(ctx, img, image)
}

// PushImage pushes an image for this machine as repository:tag, and returns its digest.
func (c *Cluster) PushImage(ctx context.Context, img v1.Image, image string) (string, error) {
	return c.push(ctx, product.Built{Name: image, Images: []product.PlatformImage{{Platform: platform(), Image: img}}},
		image)
}

func (c *Cluster) push(ctx context.Context, b product.Built, image string) (string, error) {
	address, err := c.Registry(ctx)
	if err != nil {
		return "", err
	}
	digest, err := product.Push(ctx, b, address+"/"+image)
	return digest.String(), err
}

func platform() product.Platform { return product.Platform{OS: "linux", Arch: runtime.GOARCH} }

func (c *Cluster) removeRegistry(ctx context.Context) error {
	container := registry.Container(c.name)
	have, err := dockercli.HasContainer(ctx, container)
	if !have || err != nil {
		return err
	}
	return dockercli.Remove(ctx, "container", container)
}
