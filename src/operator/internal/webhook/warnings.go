package webhook

import (
	"context"
	"encoding/json"
	"fmt"

	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/v1beta1"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/operator/internal/pools"
)

// warnMoved are warnings about pools that are elsewhere now, or gone. They had no volumes, or the change was forced;
// but each node remembers where a pool was: it takes a new place for a missing disk, and serves a pool that is not
// configured any more, until it is told to forget the pool.
func warnMoved(old, changed v1beta1.HostPathProvisionerSpec) admission.Warnings {
	var texts admission.Warnings
	for _, lost := range poolLosses(old, changed) {
		texts = append(texts, fmt.Sprintf("%s: every node that had %s remembers it where it was, "+
			"until you run `kubectl hpp pool forget` for it", lost.at, lost.what))
	}
	return texts
}

// warnings say at once what the condition NotServed will say, what is read in another way than it is written, and what
// is there for old installations only.
func warnings(ctx context.Context, spec v1beta1.HostPathProvisionerSpec) admission.Warnings {
	var texts admission.Warnings
	if spec.PathConfig != nil {
		texts = append(texts, "spec.pathConfig is for existing installations: it also runs the legacy provisioner; "+
			"new ones use storagePools")
		texts = append(texts, slashes(field.NewPath("spec", "pathConfig", "path"), spec.PathConfig.Path)...)
	}
	for i, pool := range spec.StoragePools {
		at := pools.FieldOf(spec, i)
		texts = append(texts, slashes(at.Child("path"), pool.Path)...)
	}
	if emptyPullPolicy(ctx) {
		texts = append(texts,
			"spec.imagePullPolicy: \"\" is as if it were not there: the operator's base values decide")
	}
	return append(texts, pools.Ignored(spec)...)
}

func slashes(at *field.Path, written string) admission.Warnings {
	if read := pools.Slashes(written); read != written {
		return admission.Warnings{fmt.Sprintf("%s: %q is read as %q, the same directory", at, written, read)}
	}
	return nil
}

// emptyPullPolicy reports whether the request has an imagePullPolicy with nothing in it, which the type does not tell
// from none.
func emptyPullPolicy(ctx context.Context) bool {
	request, err := admission.RequestFromContext(ctx)
	if err != nil {
		return false
	}
	var resource struct {
		Spec struct{ ImagePullPolicy *string }
	}
	err = json.Unmarshal(request.Object.Raw, &resource)
	return err == nil && resource.Spec.ImagePullPolicy != nil && *resource.Spec.ImagePullPolicy == ""
}
