package pools

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/v1beta1"
)

// ValidateTemplate finds what keeps a pool's pvcTemplate, if it has one, from becoming a claim for each node. What the
// API server checks itself is left to it.
func ValidateTemplate(pool v1beta1.StoragePool, at *field.Path) field.ErrorList {
	template := pool.PVCTemplate
	if template == nil {
		return nil
	}
	at = at.Child("pvcTemplate")
	var found field.ErrorList
	writable := func(mode corev1.PersistentVolumeAccessMode) bool { return mode != corev1.ReadOnlyMany }
	switch {
	case len(template.AccessModes) == 0:
		found = append(found, field.Required(at.Child("accessModes"), "want [ReadWriteOnce]: a claim for each node"))
	case !slices.ContainsFunc(template.AccessModes, writable):
		found = append(found, field.Invalid(at.Child("accessModes"), template.AccessModes,
			"nothing can be written to such a claim: want [ReadWriteOnce]"))
	}
	size, sized := template.Resources.Requests[corev1.ResourceStorage]
	switch path := at.Child("resources", "requests", "storage"); {
	case !sized:
		found = append(found, field.Required(path, "want the size of a node's filesystem, such as 50Gi"))
	case size.Sign() <= 0:
		found = append(found, field.Invalid(path, size.String(), "want a size above 0, such as 50Gi"))
	}
	if mode := template.VolumeMode; mode != nil && *mode != corev1.PersistentVolumeFilesystem &&
		*mode != corev1.PersistentVolumeBlock {
		found = append(found, field.NotSupported(at.Child("volumeMode"), *mode, []corev1.PersistentVolumeMode{
			corev1.PersistentVolumeFilesystem, corev1.PersistentVolumeBlock,
		}))
	}
	if template.VolumeName != "" {
		found = append(found, field.Forbidden(at.Child("volumeName"), "every node has a claim of its own, and they cannot "+
			"have one volume: leave it out"))
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

// shared reports whether a template is for one claim that all nodes use.
func shared(template *corev1.PersistentVolumeClaimSpec) bool {
	return template != nil && slices.Contains(template.AccessModes, corev1.ReadWriteMany)
}
