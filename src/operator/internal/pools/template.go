package pools

import (
	"cmp"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/v1beta1"
)

// ValidateTemplate finds what keeps a pool's pvcTemplate, if it has one, from becoming claims. What the API server
// checks itself is left to it.
func ValidateTemplate(pool v1beta1.StoragePool, at *field.Path) field.ErrorList {
	template := pool.PVCTemplate
	if template == nil {
		return nil
	}
	at = at.Child("pvcTemplate")
	found := validateAccess(template, at)
	size, sized := template.Resources.Requests[corev1.ResourceStorage]
	switch path := at.Child("resources", "requests", "storage"); {
	case !sized:
		found = append(found, field.Required(path, "want the size of a node's filesystem, such as 50Gi"))
	case size.Sign() <= 0:
		found = append(found, field.Invalid(path, size.String(), "want a size above 0, such as 50Gi"))
	}
	const empty = "a pool begins empty: leave it out"
	if template.DataSource != nil {
		found = append(found, field.Forbidden(at.Child("dataSource"), empty))
	}
	if template.DataSourceRef != nil {
		found = append(found, field.Forbidden(at.Child("dataSourceRef"), empty))
	}
	return found
}

// validateAccess finds what is wrong with how nodes are to use the claims.
func validateAccess(template *corev1.PersistentVolumeClaimSpec, at *field.Path) (found field.ErrorList) {
	writable := func(mode corev1.PersistentVolumeAccessMode) bool { return mode != corev1.ReadOnlyMany }
	switch {
	case len(template.AccessModes) == 0:
		found = append(found, field.Required(at.Child("accessModes"),
			"want [ReadWriteOnce], a claim for each node, or [ReadWriteMany], one claim for all"))
	case !slices.ContainsFunc(template.AccessModes, writable):
		found = append(found, field.Invalid(at.Child("accessModes"), template.AccessModes,
			"nothing can be written to such a claim: want [ReadWriteOnce] or [ReadWriteMany]"))
	}
	mode := corev1.PersistentVolumeFilesystem
	if template.VolumeMode != nil {
		mode = *template.VolumeMode
	}
	switch {
	case mode != corev1.PersistentVolumeFilesystem && mode != corev1.PersistentVolumeBlock:
		found = append(found, field.NotSupported(at.Child("volumeMode"), mode, []corev1.PersistentVolumeMode{
			corev1.PersistentVolumeFilesystem, corev1.PersistentVolumeBlock,
		}))
	case mode == corev1.PersistentVolumeBlock && shared(template):
		found = append(found, field.Invalid(at.Child("volumeMode"), mode, "with ReadWriteMany all nodes would mount "+
			"the filesystem of one device at once, and destroy it: want Filesystem, or ReadWriteOnce for a "+
			"device on each node"))
	}
	if template.VolumeName != "" && !shared(template) {
		found = append(found, field.Forbidden(at.Child("volumeName"), "every node has a claim of its own, and they "+
			"cannot have one volume: leave it out"))
	}
	return found
}

// SharesClaim reports whether all nodes of a pool share one claim.
func SharesClaim(pool v1beta1.StoragePool) bool { return shared(pool.PVCTemplate) }

// ClassName is the StorageClass that a pool gets because its nodes share a claim, "" for other pools. It is the one
// that kubevirt's operator makes.
func ClassName(pool v1beta1.StoragePool) string {
	if !SharesClaim(pool) {
		return ""
	}
	return cmp.Or(pool.OverlayClassName, OverlayClass)
}

// validateClass finds what is wrong with the class of pool i. A name that two pools have is an error of the second: its
// claims would go to the first.
func validateClass(all []v1beta1.StoragePool, i int, at *field.Path) (found field.ErrorList) {
	pool, name := all[i], ClassName(all[i])
	if name == "" {
		return nil
	}
	at = at.Child("overlayClassName")
	for _, why := range validation.IsDNS1123Subdomain(name) {
		found = append(found, field.Invalid(at, name, "want the name of a StorageClass: "+why))
	}
	for _, other := range all[:i] {
		if ClassName(other) == name {
			found = append(found, field.Invalid(at, pool.OverlayClassName, fmt.Sprintf("the StorageClass of the pool "+
				"%q is called %s already: want a name of its own, such as %s-%s", other.Name, name, OverlayClass,
				pool.Name)))
		}
	}
	return found
}

// shared reports whether a template is for one claim that all nodes use.
func shared(template *corev1.PersistentVolumeClaimSpec) bool {
	return template != nil && slices.Contains(template.AccessModes, corev1.ReadWriteMany)
}
