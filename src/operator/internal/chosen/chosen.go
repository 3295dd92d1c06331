// Package chosen decides which HostPathProvisioner of a cluster is served. kubevirt's operator allowed any name, and
// several. It is pure.
package chosen

import (
	"slices"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/names"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/v1beta1"
)

// Name is the name of the resource that is served: names.CustomResource if there is one, else that of the only one
// there is. Of several others none is served, and the name is "".
func Name(all []v1beta1.HostPathProvisioner) string {
	switch {
	case slices.ContainsFunc(all,
		func(one v1beta1.HostPathProvisioner) bool { return one.Name == names.CustomResource }):
		return names.CustomResource
	case len(all) == 1:
		return all[0].Name
	default:
		return ""
	}
}
