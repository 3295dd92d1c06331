// Package mirror copies images, and the chart, which is an artifact like them, from registry to registry.
package mirror

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/google/go-containerregistry/pkg/crane"
	"github.com/google/go-containerregistry/pkg/name"
)

// References are those of a list with one in each line. Blank lines and those that begin with # are left out.
func References(list string) []string {
	var all []string
	for line := range strings.Lines(list) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			all = append(all, line)
		}
	}
	return all
}

// Target is a reference below another registry, which may have a path. Only the registry changes, as with the chart's
// global.imageRegistry.
func Target(reference, registry string) (string, error) {
	parsed, err := name.ParseReference(reference)
	if err != nil {
		return "", fmt.Errorf("image name %q: %w", reference, err)
	}
	separator := ":"
	if _, digest := parsed.(name.Digest); digest {
		separator = "@"
	}
	target := strings.TrimSuffix(registry, "/") + "/" +
		parsed.Context().RepositoryStr() + separator + parsed.Identifier()
	if _, err := name.ParseReference(target); err != nil || registry == "" {
		return "", fmt.Errorf("registry %q: want HOST or HOST/PATH, without a scheme (%s)", registry, target)
	}
	return target, nil
}

// Copy copies each reference, with all its platforms and under the same digest, and says so, in a line each. All names
// are looked at before anything is copied. Credentials are those of `docker login`.
func Copy(ctx context.Context, references []string, registry string, out io.Writer) error {
	targets := make([]string, len(references))
	for i, reference := range references {
		var err error
		if targets[i], err = Target(reference, registry); err != nil {
			return err
		}
	}
	for i, reference := range references {
		if err := crane.Copy(reference, targets[i], crane.WithContext(ctx)); err != nil {
			return fmt.Errorf("copy %s to %s: %w", reference, targets[i], err)
		}
		if _, err := fmt.Fprintln(out, targets[i]); err != nil {
			return err
		}
	}
	return nil
}
