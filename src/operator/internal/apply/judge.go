package apply

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/names"
)

// Labels by which kubevirt's operator marked what it applied.
const (
	managedByLabel = "app.kubernetes.io/managed-by"
	appLabel       = "k8s-app"
)

const storageClass = "StorageClass"

// verdict says whose an object is.
type verdict int

const (
	absent verdict = iota
	ours
	predecessors
	foreign
	leaving
)

// judge decides whose an object in the cluster is: that of the owner's by its label or, should somebody have taken
// that off, by the reference to the owner. Unless a Helm release has it, a CSIDriver is the predecessor's whatever its
// labels, and so is a StorageClass for the pool that the wanted one is for.
func judge(existing, wanted *Object, owner types.UID) verdict {
	if existing == nil {
		return absent
	}
	labels := existing.GetLabels()
	inherited := labels[managedByLabel] == FieldManager || labels[appLabel] == "hostpath-provisioner" ||
		labels[managedByLabel] != "Helm" && (existing.GetKind() == "CSIDriver" || overlay(existing, wanted))
	own := labels[names.OwnedBy] == names.CustomResource || slices.ContainsFunc(existing.GetOwnerReferences(),
		func(reference metav1.OwnerReference) bool { return reference.UID == owner })
	switch {
	case !own && !inherited:
		return foreign
	case existing.GetDeletionTimestamp() != nil:
		return leaving
	case own:
		return ours
	default:
		return predecessors
	}
}

// overlay reports whether a StorageClass is like the one that kubevirt's operator makes, without labels, for a pool
// whose nodes share a claim.
func overlay(existing, wanted *Object) bool {
	parameters, _, err := unstructured.NestedStringMap(wanted.Object, "parameters")
	theirs, _, theirErr := unstructured.NestedStringMap(existing.Object, "parameters")
	_, is := parameters["overlayCSI"]
	return err == nil && theirErr == nil && is && wanted.GetKind() == storageClass && maps.Equal(parameters, theirs) &&
		existing.Object["provisioner"] == wanted.Object["provisioner"]
}

func refusal(existing *Object) error {
	manager := existing.GetLabels()[managedByLabel]
	if manager == "" {
		manager = "nobody that it names"
	}
	return fmt.Errorf(
		"it exists and is not the operator's (it is managed by %s): delete it, or give one of the two another name",
		manager)
}

// replaceable reports whether a kind has fields that cannot be changed, and no data that would be lost with the object.
func replaceable(kind schema.GroupKind) bool {
	return slices.Contains([]schema.GroupKind{
		{Group: "apps", Kind: "DaemonSet"},
		{Group: "apps", Kind: "Deployment"},
		{Group: "storage.k8s.io", Kind: "CSIDriver"},
		{Group: "storage.k8s.io", Kind: storageClass},
		{Group: "rbac.authorization.k8s.io", Kind: "ClusterRoleBinding"},
		{Group: "rbac.authorization.k8s.io", Kind: "RoleBinding"},
		// An action that somebody added to its set may exclude ours.
		{Group: "admissionregistration.k8s.io", Kind: "ValidatingAdmissionPolicyBinding"},
	}, kind)
}

// Workload reports whether a kind has pods.
func Workload(kind schema.GroupKind) bool { return kind.Group == "apps" }

// fingerprintOf is what an object looks like, less what changes by itself.
func fingerprintOf(object *Object) string {
	if object == nil {
		return ""
	}
	rest := map[string]any{}
	for key, value := range object.Object {
		if key != "status" && key != "metadata" {
			rest[key] = value
		}
	}
	rest["name"] = object.GetUID()
	rest["labels"] = object.GetLabels()
	rest["annotations"] = object.GetAnnotations()
	rest["owners"] = object.GetOwnerReferences()
	return digest(rest)
}

// digest is a short text that differs where values do. What cannot be written as JSON equals nothing, not even itself.
func digest(value map[string]any) string {
	data, err := json.Marshal(value)
	if err != nil {
		return err.Error()
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}
