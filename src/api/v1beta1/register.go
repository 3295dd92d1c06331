// Package v1beta1 is the custom resource HostPathProvisioner: what kubevirt's operator accepted under the same name,
// with this project's pool options beside it.
//
// +kubebuilder:object:generate=true
// +groupName=hostpathprovisioner.kubevirt.io
package v1beta1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/names"
)

// GroupVersion is the group and the only version of this package.
func GroupVersion() schema.GroupVersion {
	return schema.GroupVersion{Group: names.Group, Version: "v1beta1"}
}

// AddToScheme makes a scheme know the types of this package. The error is always nil; it is there for
// runtime.SchemeBuilder.
func AddToScheme(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(GroupVersion(), &HostPathProvisioner{}, &HostPathProvisionerList{})
	metav1.AddToGroupVersion(scheme, GroupVersion())
	return nil
}
