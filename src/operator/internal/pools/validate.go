package pools

import (
	"fmt"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/v1beta1"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/poolspec"
)

const (
	// Snapshotting is the only feature gate that is known. Others are ignored, as kubevirt's operator did.
	Snapshotting = "Snapshotting"
	// Reflink is the only snapshot provider that is known. Others are ignored.
	Reflink = "reflink"
	// OverlayClass is the StorageClass of a pool whose claim all nodes share, unless the pool names
	// another; kubevirt's.
	OverlayClass = "hpp-overlay"
	// maxPools is the most that the resource's schema takes. Reviews may come from elsewhere than the API server.
	maxPools = 64
)

// Validate checks every rule for the spec of a resource.
func Validate(spec v1beta1.HostPathProvisionerSpec) field.ErrorList {
	return validate(spec, func(list *field.Path, i int, _ string) *field.Path { return list.Index(i) })
}

// ValidateChange gives the errors that the old spec does not have: an old error in a field that nobody changed must not
// refuse a change of the rest. It is the same error although its pool has moved in the list.
func ValidateChange(old, changed v1beta1.HostPathProvisionerSpec) field.ErrorList {
	named := func(spec v1beta1.HostPathProvisionerSpec) field.ErrorList {
		return validate(spec, func(list *field.Path, _ int, name string) *field.Path { return list.Key(name) })
	}
	before := sets.New[string]()
	for _, problem := range named(old) {
		before.Insert(problem.Error())
	}
	var found field.ErrorList
	all := Validate(changed)
	for i, problem := range named(changed) {
		if !before.Has(problem.Error()) {
			found = append(found, all[i])
		}
	}
	return found
}

// validate checks every rule; at is the path of the element i, called name, of a list.
func validate(
	spec v1beta1.HostPathProvisionerSpec, at func(list *field.Path, i int, name string) *field.Path,
) field.ErrorList {
	root := field.NewPath("spec")
	if count := len(spec.StoragePools); count > maxPools {
		return field.ErrorList{field.TooMany(root.Child("storagePools"), count, maxPools)}
	}
	found := validateMode(spec, root)
	var config poolspec.Config
	var paths []*field.Path
	for i, pool := range FromSpec(spec) {
		path := FieldOf(spec, i)
		if i < len(spec.StoragePools) {
			path = at(root.Child("storagePools"), i, pool.Name)
		}
		read, problems := Read(pool, path)
		found = append(found, problems...)
		config.StoragePools, paths = append(config.StoragePools, read), append(paths, path)
	}
	config = config.WithDefaults()
	for i, pool := range FromSpec(spec) {
		found = append(found, config.ValidatePool(i, paths[i])...)
		found = append(found, ValidateTemplate(pool, paths[i])...)
		found = append(found, validateClass(FromSpec(spec), i, paths[i])...)
	}
	if config := spec.PathConfig; config != nil {
		if named := poolspec.VolumeIn(config.Path); named != "" {
			found = append(found,
				field.Invalid(root.Child("pathConfig", "path"), config.Path, fmt.Sprintf("it is or lies in a "+
					"directory that is named like a volume's (%s), which that volume's pods can exchange: want a "+
					"directory that is in no volume, such as /var/hpvolumes", named)))
		}
	}
	return found
}

// validateMode refuses both and neither of the ways to say where volumes live.
func validateMode(spec v1beta1.HostPathProvisionerSpec, at *field.Path) field.ErrorList {
	const want = "want one of them; storagePools serves CSI volumes, pathConfig also runs the legacy provisioner"
	pools, path := len(spec.StoragePools) > 0, spec.PathConfig != nil
	switch {
	case pools && path:
		return field.ErrorList{field.Forbidden(at, "both storagePools and pathConfig are set: "+want)}
	case !pools && !path:
		return field.ErrorList{field.Required(at, "neither storagePools nor pathConfig is set: "+want)}
	}
	return nil
}
