package operator

import (
	"context"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/names"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/v1beta1"
	"github.com/hostpath-provisioner/hostpath-provisioner/tests/api/harness"
)

const onAll = "hpp-pool-local-shared"

// forAll makes a template one for all nodes.
func forAll(c *corev1.PersistentVolumeClaimSpec) {
	c.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}
}

// overlay is a class as kubevirt's operator makes it for a pool whose nodes share a claim: without labels.
func overlay(pool string) *storagev1.StorageClass {
	return &storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{Name: "hpp-overlay"}, Provisioner: names.Driver,
		ReclaimPolicy:     new(corev1.PersistentVolumeReclaimDelete),
		VolumeBindingMode: new(storagev1.VolumeBindingImmediate),
		Parameters:        map[string]string{names.StoragePoolParameter: pool, "overlayCSI": "true"},
	}
}

// class waits for a class of the operator's with the parameters of a pool, and gives its UID.
func (w *world) class(t *testing.T, name, pool string) types.UID {
	t.Helper()
	found := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: name}}
	harness.Until(t, w.Server, "the class of pool "+pool, found, func(c *storagev1.StorageClass) error {
		if c.Labels[names.OwnedBy] == "" || len(c.OwnerReferences) != 1 || c.Parameters["overlayCSI"] != "true" ||
			c.Parameters[names.StoragePoolParameter] != pool ||
			*c.VolumeBindingMode != storagev1.VolumeBindingImmediate {
			return fmt.Errorf("it is %+v", c)
		}
		return nil
	})
	return harness.Get(t, w.Server, found).UID
}

// oneClaim is made once and mounted on every node, and it stays when the resource goes.
func oneClaim(t *testing.T, w *world) {
	t.Cleanup(func() { w.clear(t); w.noClaims(t) })
	for _, node := range []string{patientNode, "node-2"} {
		w.nodes.Pool(node, "local", names.PoolAbsent, "nothing is mounted there")
	}
	kubevirts := overlay("local")
	w.Create(t, kubevirts)
	w.Create(t, withTemplate(forAll))
	w.claims(t, onAll)
	for _, node := range []string{patientNode, "node-2"} {
		w.mounterOf(t, node, onAll)
	}
	made := harness.Get(t, w.Server, claimNamed(onAll))
	if made.Annotations[names.NodeAnnotation] != "" || made.Labels[names.PoolClaimLabel] != "local-hpp" ||
		len(made.OwnerReferences) > 0 || made.Spec.AccessModes[0] != corev1.ReadWriteMany {
		t.Errorf("claim %+v", made)
	}
	w.poolSays(t, v1beta1.PoolPreparing, 0, 2, "nodes node-1, node-2: its claim "+onAll+" (without a class",
		"Pending since")
	if uid := w.class(t, "hpp-overlay", "local"); uid != kubevirts.UID {
		t.Error("kubevirt's class was made anew")
	}
	w.sameAsHelm(t, "", map[string]string{
		"storagePools": `[{"name":"local","path":"/var/hpvolumes","scope":"shared","pvcTemplate":` +
			`{"accessModes":["ReadWriteMany"],"resources":{}}}]`,
		"storageClasses": `[{"name":"hostpath-csi","storagePool":"local"},` +
			`{"name":"hpp-overlay","storagePool":"local","reclaimPolicy":"Delete","volumeBindingMode":"Immediate",` +
			`"parameters":{"overlayCSI":"true"}}]`,
		"mounter.managed": "true",
		"mounter.mounts": `[{"pool":"local","path":"/var/hpvolumes","node":"node-1","claim":"` + onAll +
			`","block":false},` +
			`{"pool":"local","path":"/var/hpvolumes","node":"node-2","claim":"` + onAll + `","block":false}]`,
	})

	w.bind(t, onAll)
	w.nodes.Pool(patientNode, "local", names.PoolPresent, "")
	w.nodes.Pool("node-2", "local", names.PoolPresent, "")
	status := w.poolSays(t, v1beta1.PoolReady, 2, 2)
	if len(status.ClaimStatuses) != 1 || status.ClaimStatuses[0].Name != onAll || status.ClaimStatuses[0].Node != "" ||
		status.ClaimStatuses[0].Status.Phase != corev1.ClaimBound {
		t.Errorf("claims %+v", status.ClaimStatuses)
	}
	w.condition(t, v1beta1.Available, metav1.ConditionTrue)
	w.condition(t, v1beta1.Degraded, metav1.ConditionFalse)

	mounter := w.mounterOf(t, "node-2", onAll)
	w.nodes.Leave(t, "node-2")
	w.Gone(t, mounter)
	w.nodes.Join(t, "node-2")
	w.mounterOf(t, "node-2", onAll)

	w.mountersGoLast(t)
	w.claims(t, onAll)
	w.sameClaims(t, made.UID)
	w.Gone(t, kubevirts)
}

// inTheWayOfOneClaim is a class of another pool, a claim that is a device, and a second pool.
func inTheWayOfOneClaim(t *testing.T, w *world) {
	t.Cleanup(func() { w.clear(t); w.noClaims(t) })
	t.Run("a class of another pool", func(t *testing.T) {
		foreign := overlay("former")
		w.Create(t, foreign)
		w.Create(t, withTemplate(forAll))
		w.condition(t, v1beta1.Degraded, metav1.ConditionTrue,
			"StorageClass hpp-overlay: it exists and is not the operator's")
		w.mounterOf(t, patientNode, onAll)
		if now := harness.Get(t, w.Server, foreign); now.UID != foreign.UID ||
			len(now.Labels)+len(now.OwnerReferences) > 0 {
			t.Errorf("the class was changed: %+v", now)
		}
		w.Delete(t, foreign)
		harness.Change(t, w.Server, named(), func(r *v1beta1.HostPathProvisioner) {
			r.Spec.StoragePools[0].OverlayClassName = "vm-state"
		})
		w.class(t, "vm-state", "local")
		w.condition(t, v1beta1.Degraded, metav1.ConditionFalse)
		w.second(t)
		w.clear(t)
		w.noClaims(t)
	})
	t.Run("a class of this pool with another policy", func(t *testing.T) {
		theirs := overlay("local")
		theirs.ReclaimPolicy = new(corev1.PersistentVolumeReclaimRetain)
		w.Create(t, theirs)
		w.Create(t, withTemplate(forAll))
		w.condition(t, v1beta1.Degraded, metav1.ConditionTrue, "StorageClass hpp-overlay: ",
			"claims may count on it as it is")
		if now := harness.Get(t, w.Server, theirs); now.UID != theirs.UID || len(now.OwnerReferences) > 0 {
			t.Errorf("the class was changed: %+v", now)
		}
		w.Delete(t, theirs)
		w.clear(t)
		w.noClaims(t)
	})
	t.Run("a claim that is a device", func(t *testing.T) {
		device := kubevirtClaim(harness.Namespace, onAll)
		forAll(&device.Spec)
		device.Spec.VolumeMode = new(corev1.PersistentVolumeBlock)
		w.Create(t, device)
		w.Create(t, withTemplate(forAll))
		harness.Eventually(t, "the pool says why it is mounted nowhere", func(context.Context) error {
			resource := harness.Get(t, w.Server, named())
			for _, pool := range resource.Status.StoragePoolStatuses {
				if pool.Phase == v1beta1.PoolDegraded &&
					strings.Contains(pool.Message, "its claim "+onAll+" is a device") {
					return nil
				}
			}
			return fmt.Errorf("it says %+v", resource.Status.StoragePoolStatuses)
		})
		if found := w.mounters(t.Context(), t); len(found) > 0 {
			t.Errorf("%d mounters of one device", len(found))
		}
		w.claims(t, onAll)
	})
}

// second is a pool that would have the class of the first.
func (w *world) second(t *testing.T) {
	t.Helper()
	resource := harness.Get(t, w.Server, named())
	before := resource.DeepCopy()
	another := *resource.Spec.StoragePools[0].DeepCopy()
	another.Name, another.Path = "more", "/var/more"
	resource.Spec.StoragePools = append(resource.Spec.StoragePools, another)
	err := w.Client.Patch(t.Context(), resource, client.MergeFrom(before))
	if err == nil || !strings.Contains(err.Error(), `spec.storagePools[1].overlayClassName: Invalid value: `+
		`"vm-state": the StorageClass of the pool "local" is called vm-state already: want a name of its own, such `+
		`as hpp-overlay-more`) {
		t.Errorf("a second pool with the class of the first: %v", err)
	}
}
