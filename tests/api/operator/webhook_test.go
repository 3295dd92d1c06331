package operator

import (
	"context"
	"fmt"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/names"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/v1beta1"
	"github.com/hostpath-provisioner/hostpath-provisioner/tests/api/harness"
)

// denied is how the API server begins what the webhook says.
const denied = `admission webhook "validate.hostpathprovisioner.kubevirt.io" denied the request: `

// webhook asks through the API server, and compares whole messages.
func webhook(t *testing.T, w *world) {
	t.Run("refusals", func(t *testing.T) { refusals(t, w) })
	w.Create(t, withPools("local", "/var/hpvolumes", "two", "/srv/two"))
	w.condition(t, v1beta1.Available, metav1.ConditionTrue)
	t.Run("volumes keep their pool", func(t *testing.T) { poolWithVolumes(t, w) })
	t.Run("volumes keep the legacy provisioner", func(t *testing.T) { legacyWithVolumes(t, w) })
}

func poolWithVolumes(t *testing.T, w *world) {
	volume := w.volume(t, "two")
	const hint = `delete their claims first, or set the annotation ` +
		`hostpathprovisioner.kubevirt.io/delete-with-volumes to "true" `
	has := "still has 1 volume: default/data (" + volume.Name + "); "
	for name, test := range map[string]struct {
		change func(*v1beta1.HostPathProvisioner)
		want   string
	}{
		"removed": {
			func(r *v1beta1.HostPathProvisioner) { r.Spec.StoragePools = r.Spec.StoragePools[:1] },
			`spec.storagePools: Forbidden: the pool "two", which is removed, ` + has + `keep it, ` + hint +
				`to leave their data on the nodes`,
		},
		"other path": {
			func(r *v1beta1.HostPathProvisioner) { r.Spec.StoragePools[1].Path = "/srv/three" },
			`spec.storagePools[1].path: Forbidden: the pool "two" at "/srv/two" ` + has + `keep the path "/srv/two", ` +
				hint +
				`to leave their data on the nodes`,
		},
		"other scope": {
			func(r *v1beta1.HostPathProvisioner) { r.Spec.StoragePools[1].Scope = "shared" },
			`spec.storagePools[1].scope: Forbidden: the pool "two" of scope node ` + has + `keep the scope node, ` +
				hint +
				`to leave their data on the nodes`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			refused(t, harness.ChangeRefused(t, w.Server, named(), test.change), denied+test.want)
		})
	}
	t.Run("resource", func(t *testing.T) {
		refused(t, w.Client.Delete(t.Context(), named()),
			denied+`the HostPathProvisioner "hostpath-provisioner" `+has+hint+
				`on it to delete it and leave the data on the nodes`)
	})
	t.Run("whatever else is changed", func(t *testing.T) {
		harness.Change(t, w.Server, named(), func(r *v1beta1.HostPathProvisioner) {
			r.Spec.StoragePools[1].MaxVolumes = 7
			r.Spec.StoragePools[0].Path = "/srv/one" // it has no volumes
		})
	})
	t.Run("annotation", func(t *testing.T) {
		harness.Change(t, w.Server, named(), func(r *v1beta1.HostPathProvisioner) {
			r.Annotations = map[string]string{names.ForceDelete: "true"}
			r.Spec.StoragePools = r.Spec.StoragePools[:1]
		})
		harness.Change(t, w.Server, named(), func(r *v1beta1.HostPathProvisioner) {
			r.Annotations = nil
			r.Spec.StoragePools = append(r.Spec.StoragePools, v1beta1.StoragePool{Name: "two", Path: "/srv/two"})
		})
	})
	t.Run("released and retained", func(t *testing.T) {
		w.release(t, volume, corev1.PersistentVolumeReclaimRetain)
		harness.Change(
			t, w.Server, named(),
			func(r *v1beta1.HostPathProvisioner) { r.Spec.StoragePools = r.Spec.StoragePools[:1] },
		)
		w.Delete(t, volume)
		w.Gone(t, volume)
	})
}

func legacyWithVolumes(t *testing.T, w *world) {
	harness.Change(t, w.Server, named(), func(r *v1beta1.HostPathProvisioner) {
		r.Spec.StoragePools, r.Spec.PathConfig = nil, &v1beta1.PathConfig{Path: "/var/hpvolumes"}
	})
	volume := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{
			Name: "pvc-legacy", Annotations: map[string]string{names.ProvisionedBy: names.LegacyProvisioner},
		},
		Spec: corev1.PersistentVolumeSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, Capacity: storage("1Gi"),
			StorageClassName: "manual",
			PersistentVolumeSource: corev1.PersistentVolumeSource{
				HostPath: &corev1.HostPathVolumeSource{Path: "/var/hpvolumes/pvc-legacy"},
			},
		},
	}
	w.Create(t, volume)
	err := harness.ChangeRefused(
		t, w.Server, named(), func(r *v1beta1.HostPathProvisioner) { r.Spec.PathConfig.Path = "/srv/legacy" },
	)
	refused(t, err, denied+`spec.pathConfig.path: Forbidden: the legacy provisioner at "/var/hpvolumes" still has `+
		`1 volume: pvc-legacy; keep the path "/var/hpvolumes", delete their claims first, or set the annotation `+
		`hostpathprovisioner.kubevirt.io/delete-with-volumes to "true" to leave their data on the nodes`)
	w.Delete(t, volume)
	w.Gone(t, volume)
}

// volume is a claim default/data, bound to a volume of the CSI driver in a pool, which is on the nodes.
func (w *world) volume(t *testing.T, pool string, nodes ...string) *corev1.PersistentVolume {
	t.Helper()
	return w.volumeOf(t, client.ObjectKey{Namespace: "default", Name: "data"}, pool, nodes...)
}

// volumeOf is a volume for a claim of any name.
func (w *world) volumeOf(t *testing.T, of client.ObjectKey, pool string, nodes ...string) *corev1.PersistentVolume {
	t.Helper()
	volume := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: "pvc-of-" + pool},
		Spec: corev1.PersistentVolumeSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, Capacity: storage("1Gi"),
			StorageClassName:              "manual",
			PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain,
			PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{
				Driver: names.Driver, VolumeHandle: "pvc-of-" + pool,
				VolumeAttributes: map[string]string{names.StoragePoolParameter: pool},
			}},
			ClaimRef: &corev1.ObjectReference{Namespace: of.Namespace, Name: of.Name},
		},
	}
	if len(nodes) > 0 {
		volume.Spec.NodeAffinity = &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{
			NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{
				{Key: "topology.hostpath.csi/node", Operator: corev1.NodeSelectorOpIn, Values: nodes},
			}}},
		}}
	}
	claim := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: of.Namespace, Name: of.Name},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: volume.Spec.AccessModes, StorageClassName: new("manual"), VolumeName: volume.Name,
			Resources: corev1.VolumeResourceRequirements{Requests: storage("1Gi")},
		},
	}
	w.Create(t, volume, claim)
	return harness.Until(t, w.Server, "the claim is bound", volume, func(volume *corev1.PersistentVolume) error {
		if volume.Status.Phase != corev1.VolumeBound {
			return fmt.Errorf("the volume is %s", volume.Status.Phase)
		}
		return nil
	})
}

// release deletes the claim and waits until its volume is Released, with the policy given.
func (w *world) release(t *testing.T, volume *corev1.PersistentVolume, policy corev1.PersistentVolumeReclaimPolicy) {
	t.Helper()
	harness.Change(
		t, w.Server, volume,
		func(volume *corev1.PersistentVolume) { volume.Spec.PersistentVolumeReclaimPolicy = policy },
	)
	w.Delete(t, &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "data"}})
	harness.Until(t, w.Server, "the volume is released", volume, func(volume *corev1.PersistentVolume) error {
		if volume.Status.Phase != corev1.VolumeReleased {
			return fmt.Errorf("it is %s", volume.Status.Phase)
		}
		return nil
	})
}

func storage(size string) corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(size)}
}

func refused(t *testing.T, err error, want string) {
	t.Helper()
	if err == nil || err.Error() != want {
		t.Errorf("refused with\n%v\nwant\n%s", err, want)
	}
}

// unreachable: while nobody answers for the webhook, what it would judge is refused, and what it would let pass goes
// on. Else a resource that is being deleted could hang on its finalizer for good.
func unreachable(t *testing.T, w *world) {
	w.Create(t, withPools("local", "/var/hpvolumes"))
	w.condition(t, v1beta1.Available, metav1.ConditionTrue)
	volume := w.volume(t, "local")
	w.withoutWebhook(t, func() { w.Delete(t, named()) })
	w.deleting(t, "VolumesLeft", "1 volume left")
	port := func(number int32) {
		configuration := &admissionregistrationv1.ValidatingWebhookConfiguration{
			ObjectMeta: metav1.ObjectMeta{Name: harness.OperatorName},
		}
		harness.Change(t, w.Server, configuration, func(c *admissionregistrationv1.ValidatingWebhookConfiguration) {
			c.Webhooks[0].ClientConfig.Service.Port = &number
		})
	}
	port(444)
	w.webhookReached(t, false)
	defer func() {
		port(443)
		w.webhookReached(t, true)
	}()
	w.goesOnceReleased(t, volume)
}

// webhookReached waits until the API server takes up that the webhook can be reached, or that it cannot.
func (w *world) webhookReached(t *testing.T, want bool) {
	t.Helper()
	probe := withPools("local", "/var/hpvolumes")
	harness.Eventually(t, fmt.Sprintf("the API server reaches the webhook: %v", want), func(ctx context.Context) error {
		err := w.Client.Create(ctx, probe.DeepCopy(), client.DryRunAll)
		if reached := err == nil || !strings.Contains(err.Error(), "failed calling webhook"); reached != want {
			return fmt.Errorf("it says %w", err)
		}
		return nil
	})
}

// withoutWebhook does what was possible before there was a webhook, or while kubevirt's was there.
func (w *world) withoutWebhook(t *testing.T, do func()) {
	t.Helper()
	wrong := withPools("local", "/etc")
	rule := func(resource string, reached func(error) bool) {
		configuration := &admissionregistrationv1.ValidatingWebhookConfiguration{
			ObjectMeta: metav1.ObjectMeta{Name: harness.OperatorName},
		}
		harness.Change(t, w.Server, configuration, func(c *admissionregistrationv1.ValidatingWebhookConfiguration) {
			c.Webhooks[0].Rules[0].Resources = []string{resource}
		})
		harness.Eventually(t, "the API server has taken up the webhook's rule "+resource,
			func(ctx context.Context) error {
				wrong.Name = names.CustomResource
				err := w.Client.Create(ctx, wrong.DeepCopy(), client.DryRunAll)
				if !reached(err) {
					return fmt.Errorf("it says %w", err)
				}
				return nil
			})
	}
	rule("nothing", func(err error) bool { return err == nil || !strings.Contains(err.Error(), "denied the request") })
	do()
	rule("hostpathprovisioners",
		func(err error) bool { return err != nil && strings.Contains(err.Error(), "denied the request") })
}
