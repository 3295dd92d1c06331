// Package pools reads the pools of a HostPathProvisioner as the driver will read them: through poolspec, so that the
// webhook, the operator and the driver have the same rules. It is pure.
package pools

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/names"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/v1beta1"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/poolspec"
)

// FromSpec are the pools that a spec asks for, with their paths as Slashes makes them. pathConfig is a
// pool named legacy.
func FromSpec(spec v1beta1.HostPathProvisionerSpec) []v1beta1.StoragePool {
	all := slices.Clone(spec.StoragePools)
	if spec.PathConfig != nil {
		all = append(all, v1beta1.StoragePool{Name: names.LegacyPool, Path: spec.PathConfig.Path})
	}
	for i := range all {
		all[i].Path = Slashes(all[i].Path)
	}
	return all
}

// Slashes is a path without the slashes too many, which kubevirt's operator let in: it names the same directory, where
// one without its ".." may name another.
func Slashes(path string) string {
	for strings.Contains(path, "//") {
		path = strings.ReplaceAll(path, "//", "/")
	}
	if path == "/" {
		return path
	}
	return strings.TrimSuffix(path, "/")
}

// Names are the names of the pools that a spec asks for.
func Names(spec v1beta1.HostPathProvisionerSpec) []string {
	var found []string
	for _, pool := range FromSpec(spec) {
		found = append(found, pool.Name)
	}
	return found
}

// FieldOf is the field that pool i of a spec is written in.
func FieldOf(spec v1beta1.HostPathProvisionerSpec, i int) *field.Path {
	if i == len(spec.StoragePools) {
		return field.NewPath("spec", "pathConfig")
	}
	return field.NewPath("spec", "storagePools").Index(i)
}

// ForDriver is a pool without what only the operator reads. Of a template the driver reads whether nodes share the
// claim; another size for new nodes must not roll it out again.
func ForDriver(pool v1beta1.StoragePool) v1beta1.StoragePool {
	if SharesClaim(pool) {
		pool.Scope = Scope(pool)
	}
	pool.SnapshotProvider, pool.OverlayClassName = "", ""
	if pool.PVCTemplate != nil {
		pool.PVCTemplate = &corev1.PersistentVolumeClaimSpec{AccessModes: pool.PVCTemplate.AccessModes}
	}
	return pool
}

// Scope is that of a pool, also where the resource does not say it.
func Scope(pool v1beta1.StoragePool) string {
	if SharesClaim(pool) {
		return cmp.Or(pool.Scope, string(poolspec.ScopeShared))
	}
	return cmp.Or(pool.Scope, string(poolspec.ScopeNode))
}

// Read is a pool as the driver reads it, without defaults. The errors name the values that it cannot read.
func Read(pool v1beta1.StoragePool, at *field.Path) (poolspec.Pool, field.ErrorList) {
	data, err := json.Marshal(ForDriver(pool))
	if err != nil {
		return poolspec.Pool{}, field.ErrorList{field.InternalError(at, err)}
	}
	return poolspec.ReadPool(data, at)
}

// Outcome is what becomes of a pool of the resource.
type Outcome struct {
	Name string
	// Broken is what is wrong with the pool. Then the driver does not get it.
	Broken string
}

// Ignored are the fields of a spec that are accepted and have no effect, each with the reason.
func Ignored(spec v1beta1.HostPathProvisionerSpec) []string {
	var all []string
	ignore := func(at *field.Path, why string, args ...any) {
		all = append(all, at.String()+": "+fmt.Sprintf(why, args...))
	}
	root := field.NewPath("spec")
	for i, pool := range spec.StoragePools {
		at := FieldOf(spec, i)
		switch provider := pool.SnapshotProvider; provider {
		case "":
		case Reflink:
			if Scope(pool) == string(poolspec.ScopeShared) {
				ignore(at.Child("snapshotProvider"), "ignored: a pool with scope shared makes no snapshots")
			}
		default:
			ignore(at.Child("snapshotProvider"), "%q is not known and ignored; the only one is %s", provider, Reflink)
		}
		if pool.OverlayClassName != "" && !SharesClaim(pool) {
			ignore(at.Child("overlayClassName"), "%q is ignored, and no class of this name is made: "+
				"it needs a pvcTemplate with ReadWriteMany", pool.OverlayClassName)
		}
	}
	for i, gate := range spec.FeatureGates {
		at := root.Child("featureGates").Index(i)
		if gate != Snapshotting {
			ignore(at, "%q is not known and ignored; the only one is %s", gate, Snapshotting)
		}
	}
	return all
}

// AsksForSnapshots is the field by which a spec turns snapshots on, "" if none does: the gate, or the provider of one
// pool that makes some. They are on for all pools then.
func AsksForSnapshots(spec v1beta1.HostPathProvisionerSpec) string {
	if i := slices.Index(spec.FeatureGates, Snapshotting); i >= 0 {
		return field.NewPath("spec", "featureGates").Index(i).String()
	}
	for i, pool := range spec.StoragePools {
		if pool.SnapshotProvider == Reflink && Scope(pool) != string(poolspec.ScopeShared) {
			return FieldOf(spec, i).Child("snapshotProvider").String()
		}
	}
	return ""
}
