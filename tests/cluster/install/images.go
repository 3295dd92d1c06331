package install

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/yaml"
	syaml "sigs.k8s.io/yaml"

	"github.com/hostpath-provisioner/hostpath-provisioner/tools/images/product"
)

// valueOf is the chart's value below which an image is described.
func valueOf(name string) string {
	if name == "legacyprovisioner" {
		return "legacyProvisioner"
	}
	return name
}

// imagesOf returns the names of this repository's images that a rendered chart runs, sorted. An operator may later run
// any of them: which, is in a resource that nobody has applied yet.
func imagesOf(manifests []byte) ([]string, error) {
	var names []string
	documents := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(manifests), 4096)
	for {
		var object map[string]any
		err := documents.Decode(&object)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("read what the chart renders: %w", err)
		}
		names = appendImages(names, object)
	}
	if slices.Contains(names, "operator") {
		names = product.Names()
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

// appendImages looks for containers at any depth.
func appendImages(names []string, node any) []string {
	switch node := node.(type) {
	case []any:
		for _, item := range node {
			names = appendImages(names, item)
		}
	case map[string]any:
		for key, value := range node {
			if image, isText := value.(string); isText && key == "image" {
				names = append(names, ours(image)...)
			}
			names = appendImages(names, value)
		}
	}
	return names
}

// ours is the name of an image if this repository builds it. The registry says nothing: nodes look for every image in
// the cluster's own first.
func ours(image string) []string {
	repository, _, _ := strings.Cut(image, "@")
	if colon := strings.LastIndex(repository, ":"); colon > strings.LastIndex(repository, "/") {
		repository = repository[:colon]
	}
	name := path.Base(repository)
	if path.Base(path.Dir(repository)) != path.Base(product.Repository) || !slices.Contains(product.Names(), name) {
		return nil
	}
	return []string{name}
}

// digestValues pins the images just pushed. The tag stays the same from one
// `up` to the next; the digest changes exactly when the content does, and
// then the pods are replaced.
func digestValues(digests map[string]string) ([]byte, error) {
	values := map[string]any{}
	for name, digest := range digests {
		values[valueOf(name)] = map[string]any{"image": map[string]any{"digest": digest}}
	}
	return syaml.Marshal(values)
}
