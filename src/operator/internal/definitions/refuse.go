package definitions

import (
	"fmt"

	"k8s.io/apimachinery/pkg/util/version"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/names"
)

// refuse says why an operator of this version must leave a definition with these annotations alone, "" if it need not.
// One without the annotation is kubevirt's, or of before there was one.
func refuse(annotations map[string]string, own *version.Version) string {
	by, found := annotations[names.AppliedBy]
	if !found {
		return ""
	}
	const command = "kubectl annotate customresourcedefinition " + Name + " " + names.AppliedBy + "-"
	applied, err := version.ParseSemantic(by)
	switch {
	case err != nil:
		return fmt.Sprintf("nothing is deployed or changed: CustomResourceDefinition %s has the annotation %s: %q, "+
			"which is no version, so that it may be newer than this operator's (%s). To let this operator "+
			"apply its own: %s",
			Name, names.AppliedBy, by, own, command)
	case own.LessThan(applied):
		return fmt.Sprintf("nothing is deployed or changed: the operator of version %s applied "+
			"CustomResourceDefinition %s, and this one is %s, which does not know the newer version's fields. "+
			"Upgrade the operator to %s or later; or let this version remove them: %s", applied, Name, own, applied,
			command)
	default:
		return ""
	}
}
