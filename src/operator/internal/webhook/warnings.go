package webhook

import (
	"fmt"
	"slices"

	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/v1beta1"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/operator/internal/pools"
)

// moved are warnings about pools that are elsewhere now, or gone. They had no volumes, or the change was forced; but
// each node remembers where a pool was, and takes a new place for a missing disk until it is told to forget the pool.
func moved(old, changed v1beta1.HostPathProvisionerSpec) admission.Warnings {
	var texts admission.Warnings
	for _, lost := range poolLosses(old, changed) {
		texts = append(texts, fmt.Sprintf("%s: every node that had %s remembers it, and takes it for absent, "+
			"until you run `/driver pool forget` in the driver's pod there", lost.at, lost.what))
	}
	return texts
}

// warnings say at once what the condition NotServed will say, and what is there for old installations only.
func warnings(spec v1beta1.HostPathProvisionerSpec) admission.Warnings {
	var texts admission.Warnings
	if spec.PathConfig != nil {
		texts = append(texts, "spec.pathConfig is for existing installations: it also runs the legacy provisioner; "+
			"new ones use storagePools")
	}
	for i, pool := range spec.StoragePools {
		at := pools.At(spec, i)
		if name, why := pools.NotServed(pool); why != "" {
			texts = append(texts, at.Child(name).String()+": "+why)
		}
		if pool.SnapshotProvider != "" {
			texts = append(texts, at.String()+".snapshotProvider is accepted, but this version makes no snapshots")
		}
	}
	if slices.Contains(spec.FeatureGates, pools.Snapshotting) {
		texts = append(texts, "spec.featureGates: "+pools.Snapshotting+" is accepted, but this version makes no snapshots")
	}
	return texts
}
