package render

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/operator/internal/pools"
)

// snapshotGroup is the group of VolumeSnapshots.
const snapshotGroup = "snapshot.storage.k8s.io"

// setSnapshots turns snapshots on where the resource asks for them, or the base values say true, and the cluster has
// their API: without it csi-snapshotter would never be ready.
func (v values) setSnapshots(in Input, result *Result) {
	const api = snapshotGroup + "/v1"
	said, asked := fmt.Sprint(v["snapshots"]), pools.AsksForSnapshots(in.Resource.Spec)
	wanted := said == "true" || said == "auto" && asked != ""
	served := slices.Contains(in.APIVersions, api+"/VolumeSnapshotClass")
	switch {
	case wanted && !served:
		result.leaveOut("%s: no snapshots are made: this cluster does not have the API %s; install its definitions "+
			"and the snapshot-controller of github.com/kubernetes-csi/external-snapshotter",
			cmp.Or(asked, "snapshots: true of the base values"), api)
	case !wanted && asked != "":
		result.leaveOut("%s: no snapshots are made: the base values say snapshots: false", asked)
	}
	v["snapshots"] = wanted && served
}
