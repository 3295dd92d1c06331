package product

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// Push publishes b as reference ("ghcr.io/hostpath-provisioner/driver:0.1.0")
// and returns its digest. One platform is pushed as a plain image, several as
// an index. Credentials are those of `docker login`; a registry on localhost
// is spoken to without TLS.
func Push(ctx context.Context, b Built, reference string) (v1.Hash, error) {
	ref, err := name.ParseReference(reference)
	if err != nil {
		return v1.Hash{}, fmt.Errorf("image name %q: %w", reference, err)
	}
	opts := []remote.Option{remote.WithContext(ctx), remote.WithAuthFromKeychain(authn.DefaultKeychain)}
	if len(b.Images) == 1 {
		if err := remote.Write(ref, b.Images[0].Image, opts...); err != nil {
			return v1.Hash{}, fmt.Errorf("push %s: %w", reference, err)
		}
		return b.Images[0].Image.Digest()
	}
	index := Index(b)
	if err := remote.WriteIndex(ref, index, opts...); err != nil {
		return v1.Hash{}, fmt.Errorf("push %s: %w", reference, err)
	}
	return index.Digest()
}

// Save writes b as an OCI layout in dir/<name> (replacing what is there) and
// returns its digest.
func Save(b Built, dir, tag string) (v1.Hash, error) {
	target := filepath.Join(dir, b.Name)
	if err := os.RemoveAll(target); err != nil {
		return v1.Hash{}, fmt.Errorf("clear %s: %w", target, err)
	}
	p, err := layout.Write(target, empty.Index)
	if err != nil {
		return v1.Hash{}, fmt.Errorf("start an OCI layout in %s: %w", target, err)
	}
	index := Index(b)
	ref := layout.WithAnnotations(map[string]string{"org.opencontainers.image.ref.name": tag})
	if err := p.AppendIndex(index, ref); err != nil {
		return v1.Hash{}, fmt.Errorf("write %s: %w", target, err)
	}
	return index.Digest()
}

// Index lists the images of b by platform.
func Index(b Built) v1.ImageIndex {
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, img := range b.Images {
		index = mutate.AppendManifests(index, mutate.IndexAddendum{
			Add:        img.Image,
			Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: img.Platform.OS, Architecture: img.Platform.Arch}},
		})
	}
	return index
}
