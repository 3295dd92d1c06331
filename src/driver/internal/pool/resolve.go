package pool

import (
	"fmt"
	"slices"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/volume"
)

// LegacyPool is the pool of volumes whose class names none, as kubevirt's driver had it.
const LegacyPool = "legacy"

// Resolve names the pool of a class: the one it asks for, else the pool legacy, else the only one.
func (s *Set) Resolve(name string) (string, error) {
	var configured []string
	for _, p := range s.pools {
		configured = append(configured, p.spec.Name)
	}
	if name = Default(configured, name); name == "" {
		return "", fmt.Errorf("%w: the StorageClass parameter storagePool is missing; configured are: %s", volume.ErrInvalid, s.names())
	}
	return name, nil
}

// Default is the pool that a name means where these are configured, "" where it means none.
func Default(configured []string, name string) string {
	switch {
	case name != "":
		return name
	case slices.Contains(configured, LegacyPool):
		return LegacyPool
	case len(configured) == 1:
		return configured[0]
	default:
		return ""
	}
}
