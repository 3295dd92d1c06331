// Package repo finds this repository's own folders while its programs and
// tests run from source.
package repo

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
)

const testsModule = "github.com/hostpath-provisioner/hostpath-provisioner/tests"

// Tests returns the folder of the module that this program is part of. The
// working directory must be in it, as with `go run` and `go test`.
func Tests(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", testsModule).Output()
	if err != nil {
		return "", fmt.Errorf("find the folder of module %s: %w; run from the repository's tests folder", testsModule, err)
	}
	return strings.TrimSpace(string(out)), nil
}

// Root returns the repository's root folder.
func Root(ctx context.Context) (string, error) {
	tests, err := Tests(ctx)
	return filepath.Dir(tests), err
}
