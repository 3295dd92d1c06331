// Package repo finds this repository's own folders while its programs and
// tests run from source.
package repo

import (
	"errors"
	"os"
	"path/filepath"
)

// Root returns the repository's root folder. The working directory must be in it, as with `go run` and `go test`.
func Root() (string, error) {
	folder, err := os.Getwd()
	for err == nil {
		if _, missing := os.Stat(filepath.Join(folder, "ct.yaml")); missing == nil {
			return folder, nil
		}
		if filepath.Dir(folder) == folder {
			err = errors.New("no folder above this one holds ct.yaml: run this in a clone of the repository")
		}
		folder = filepath.Dir(folder)
	}
	return "", err
}
