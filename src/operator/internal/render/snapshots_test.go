package render_test

import (
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/v1beta1"
)

// TestSnapshots: the resource turns them on, within what base and cluster allow, and each reason why not is a note.
func TestSnapshots(t *testing.T) {
	t.Parallel()
	const lacks = "no snapshots are made: this cluster does not have the API snapshot.storage.k8s.io/v1; install its " +
		"definitions and the snapshot-controller"
	gate := v1beta1.HostPathProvisionerSpec{
		StoragePools: []v1beta1.StoragePool{{Name: "a", Path: "/a"}}, FeatureGates: []string{"Cloning", "Snapshotting"},
	}
	provider := v1beta1.HostPathProvisionerSpec{StoragePools: []v1beta1.StoragePool{
		{Name: "a", Path: "/a", Scope: "shared", SnapshotProvider: "reflink"},
		{Name: "b", Path: "/b", SnapshotProvider: "reflink"},
	}}
	shared := v1beta1.HostPathProvisionerSpec{StoragePools: provider.StoragePools[:1]}
	neither := v1beta1.HostPathProvisionerSpec{
		StoragePools: []v1beta1.StoragePool{{Name: "a", Path: "/a", SnapshotProvider: "zfs"}},
	}
	for name, test := range map[string]struct {
		spec v1beta1.HostPathProvisionerSpec
		base string
		bare bool // a cluster without the API
		on   bool
		note string
	}{
		"nobody asks": {spec: neither, base: "{}"},
		"the gate":    {spec: gate, base: "{}", on: true},
		"a pool":      {spec: provider, base: "{}", on: true},
		"a shared pool alone": {
			spec: shared, base: "{}",
			note: "spec.storagePools[0].snapshotProvider: ignored: a pool with scope shared makes no snapshots",
		},
		"the base":          {spec: neither, base: "snapshots: true", on: true},
		"the base, as text": {spec: neither, base: `snapshots: "true"`, on: true},
		"the gate, against the base": {
			spec: gate, base: "snapshots: false",
			note: "spec.featureGates[1]: no snapshots are made: the base values say snapshots: false",
		},
		"the gate, without the API": {spec: gate, base: "{}", bare: true, note: "spec.featureGates[1]: " + lacks},
		"a pool, without the API": {
			spec: provider, base: "{}", bare: true, note: "spec.storagePools[1].snapshotProvider: " + lacks,
		},
		"the base, without the API": {
			spec: neither, base: "snapshots: true", bare: true, note: "snapshots: true of the base values: " + lacks,
		},
		"nobody asks, without the API": {spec: neither, base: "{}", bare: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in := input(test.base, test.spec)
			if test.bare {
				in = without(in, "snapshot.storage.k8s.io")
			}
			result := mustRender(t, in)
			pod := object[appsv1.Deployment](t, result, "Deployment", "hpp-hostpath-provisioner-controller")
			sidecar := slices.ContainsFunc(pod.Spec.Template.Spec.Containers, func(c corev1.Container) bool {
				return c.Name == "csi-snapshotter"
			})
			class := slices.Contains(listed(result), "VolumeSnapshotClass/hostpath-point-in-time")
			if sidecar != test.on || class != test.on {
				t.Errorf("csi-snapshotter is there: %v, its class: %v; want %v", sidecar, class, test.on)
			}
			notes := strings.Join(result.NotServed, "\n")
			if !strings.Contains(notes, test.note) || strings.Contains(notes, "no snapshots are made") !=
				strings.Contains(test.note, "no snapshots are made") {
				t.Errorf("not served: %q, want %q", notes, test.note)
			}
		})
	}
}
