package operator

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/v1beta1"
	"github.com/hostpath-provisioner/hostpath-provisioner/tests/api/harness"
)

const (
	hint    = `or set the annotation hostpathprovisioner.kubevirt.io/delete-with-volumes to "true" `
	onData  = hint + "to leave their data on the nodes"
	onWhole = hint + "on it to delete it and leave the data on the nodes"
)

// nodesGone: the webhook lets go what the gate of a deletion lets go, and not before.
func nodesGone(t *testing.T, w *world) {
	w.Create(t, withPools("local", "/var/hpvolumes", "two", "/srv/two"))
	w.condition(t, v1beta1.Available, metav1.ConditionTrue)
	volume := w.volume(t, "two", "node-2")
	withoutTwo := []byte(`{"spec":{"storagePools":[{"name":"local","path":"/var/hpvolumes"}]}}`)
	remove := func(c client.Client) error {
		return c.Patch(t.Context(), named(), client.RawPatch(types.MergePatchType, withoutTwo), client.DryRunAll)
	}
	whole := func(c client.Client) error { return c.Delete(t.Context(), named(), client.DryRunAll) }
	const forget = `spec.storagePools: every node that had the pool "two", which is removed, remembers it where ` +
		"it was, until you run `kubectl hpp pool forget` for it"
	has := `still has 1 volume: default/data (` + volume.Name + `); `
	const pool, resource = `the pool "two", which is removed, `, `the HostPathProvisioner "hostpath-provisioner" `

	refused(t, remove(w.Client), denied+"spec.storagePools: Forbidden: "+pool+has+
		"keep it, delete their claims first, "+onData)
	refused(t, whole(w.Client), denied+resource+has+"delete their claims first, "+onWhole)

	since := time.Now()
	w.nodes.DieSince(t, "node-2", since)
	defer w.nodes.Return(t, "node-2")
	has = `still has 1 volume on nodes that are gone or not ready: default/data (` + volume.Name + `); `
	retry := "bring these nodes back, or try again after " + since.Add(deadNodeTimeout).UTC().Format(time.RFC3339) +
		", "
	refused(t, remove(w.Client), denied+"spec.storagePools: Forbidden: "+pool+has+"keep it, "+retry+onData)
	refused(t, whole(w.Client), denied+resource+has+retry+onWhole)

	w.nodes.DieSince(t, "node-2", time.Now().Add(-deadNodeTimeout-time.Minute))
	has = `still has 1 volume on nodes that are gone, or not ready for 10m0s or more: default/data (` + volume.Name +
		`); `
	w.warned(t, remove, forget, "spec.storagePools: "+pool+has+"their data stays there")
	w.warned(t, whole, resource+has+"it goes without them, unless a node comes back within 10m0s")
	w.forget(t, volume)

	// No Node at all.
	volume = w.volume(t, "two", "node-9")
	w.warned(t, remove, forget, "spec.storagePools: "+pool+has+"their data stays there")
	w.forget(t, volume)
}

// forget removes a volume with its claim.
func (w *world) forget(t *testing.T, volume *corev1.PersistentVolume) {
	t.Helper()
	claim := volume.Spec.ClaimRef
	w.Delete(t, &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: claim.Namespace, Name: claim.Name},
	})
	w.Delete(t, volume)
	w.Gone(t, volume)
}

// narrowing the selection of nodes is allowed, and says which volumes lose their driver.
func narrowing(t *testing.T, w *world) {
	w.Create(t, withPools("local", "/var/hpvolumes"))
	w.condition(t, v1beta1.Available, metav1.ConditionTrue)
	volume := w.volume(t, "local", "node-2")
	here := map[string]string{corev1.LabelHostname: patientNode}
	affine := &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
		RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
			NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{
				{Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpNotIn, Values: []string{"node-2"}},
			}}},
		},
	}}
	const leaves = "spec.workload: the driver leaves nodes that have volumes, node-2 (1 volume): pods keep these " +
		"volumes while they run, but until the driver is back there, none can start or end with them, and they " +
		"are not deleted"
	for name, test := range map[string]struct {
		change func(*v1beta1.HostPathProvisionerSpec)
		want   []string
	}{
		"nodeSelector": {func(s *v1beta1.HostPathProvisionerSpec) { s.Workload.NodeSelector = here }, []string{leaves}},
		"affinity":     {func(s *v1beta1.HostPathProvisionerSpec) { s.Workload.Affinity = affine }, []string{leaves}},
		"a pool's": {func(s *v1beta1.HostPathProvisionerSpec) { s.StoragePools[0].NodeSelector = here }, []string{
			"spec.storagePools[0].nodeSelector: no new volumes are made on nodes that have some, node-2 (1 volume): " +
				"those are still served",
		}},
		"to the nodes that there are": {func(s *v1beta1.HostPathProvisionerSpec) {
			s.Workload.NodeSelector = map[string]string{corev1.LabelOSStable: "linux"}
		}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			resource := harness.Get(t, w.Server, named())
			patch := client.MergeFrom(resource.DeepCopy())
			test.change(&resource.Spec)
			w.warned(t, func(c client.Client) error {
				return c.Patch(t.Context(), resource, patch, client.DryRunAll)
			}, test.want...)
		})
	}
	w.forget(t, volume)
}

// poolBehindPool: a claim of the operator's own keeps the pool that provides for it, and not the resource.
func poolBehindPool(t *testing.T, w *world) {
	w.Create(t, withPools("local", "/var/hpvolumes", "two", "/srv/two"))
	w.condition(t, v1beta1.Available, metav1.ConditionTrue)
	claim := client.ObjectKey{Namespace: harness.Namespace, Name: "hpp-pool-two-node-1"}
	volume := w.volumeOf(t, claim, "local", patientNode)
	err := harness.ChangeRefused(t, w.Server, named(), func(r *v1beta1.HostPathProvisioner) {
		r.Spec.StoragePools = r.Spec.StoragePools[1:]
	})
	refused(t, err, denied+`spec.storagePools: Forbidden: the pool "local", which is removed, still has 1 volume: `+
		harness.Namespace+`/hpp-pool-two-node-1 (`+volume.Name+`); keep it, delete their claims first, `+onData)
	w.warned(t, func(c client.Client) error { return c.Delete(t.Context(), named()) })
	w.Gone(t, named())
	w.nothingLeft(t.Context(), t)
	w.forget(t, volume)
}
