package operator

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/names"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/v1beta1"
	"github.com/hostpath-provisioner/hostpath-provisioner/tests/api/harness"
)

const (
	// longNode is a node whose name fits into no label, and longClaim what kubevirt's operator calls its claim:
	// hpp-pool- and the FNV-1a hash of hpp-pool-local-<node>.
	longNode  = "worker-0.a-cluster-with-a-long-name.example.com.and.a.domain"
	longClaim = "hpp-pool-2daad4f3"
	onNode1   = "hpp-pool-local-node-1"
	onNode2   = "hpp-pool-local-node-2"
	// kubevirts is the namespace of kubevirt's operator.
	kubevirts = "kubevirt-pools"
)

// claimSeed is the third resource of the seed, word for word, from its claims to its end.
func claimSeed(t *testing.T, w *world) {
	t.Cleanup(func() { w.clear(t); w.noClaims(t) })
	for _, node := range []string{patientNode, "node-2"} {
		w.nodes.Pool(node, "local", names.PoolAbsent, "nothing is mounted there")
	}
	w.apply(t, "pvctemplate-cr.yaml")
	w.condition(t, v1beta1.Available, metav1.ConditionTrue)
	w.claims(t, onNode1, onNode2)
	made := harness.Get(t, w.Server, claimNamed(onNode1))
	if size := made.Spec.Resources.Requests[corev1.ResourceStorage]; size.String() != "5Gi" ||
		!slices.Equal(made.Spec.AccessModes, []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}) ||
		len(made.OwnerReferences) > 0 || made.Labels[names.PoolClaimLabel] != "local-hpp" {
		t.Errorf("claim %+v", made)
	}
	w.poolSays(t, v1beta1.PoolPreparing, 0, 2, "node node-1: its claim "+onNode1+" (without a class", "Pending since",
		"kubectl describe pvc --namespace "+harness.Namespace+" "+onNode2)
	// A claim that never binds is no rollout, and nothing is wrong with the driver.
	w.condition(t, v1beta1.Progressing, metav1.ConditionFalse)
	w.condition(t, v1beta1.Degraded, metav1.ConditionFalse)

	w.sameAsHelm(t, "always.yaml", map[string]string{
		"storagePools": `[{"name":"local","path":"/var/hpvolumes","pvcTemplate":{"accessModes":["ReadWriteOnce"],` +
			`"resources":{}}}]`,
		"storageClasses":      `[{"name":"hostpath-csi","storagePool":"local"}]`,
		"driver.nodeSelector": `{"kubernetes.io/os":"linux"}`,
		"mounter.managed":     "true",
		"mounter.mounts": `[{"pool":"local","path":"/var/hpvolumes","node":"node-1","claim":"` + onNode1 +
			`","block":false},` +
			`{"pool":"local","path":"/var/hpvolumes","node":"node-2","claim":"` + onNode2 + `","block":false}]`,
	})

	w.bind(t, onNode1)
	w.poolSays(t, v1beta1.PoolDegraded, 0, 2, "node node-1: nothing is mounted there",
		"node node-2: its claim "+onNode2)
	w.nodes.Pool(patientNode, "local", names.PoolPresent, "")
	w.poolSays(t, v1beta1.PoolPreparing, 1, 2, "node node-2: its claim "+onNode2)
	w.bind(t, onNode2)
	w.nodes.Pool("node-2", "local", names.PoolPresent, "")
	status := w.poolSays(t, v1beta1.PoolReady, 2, 2)
	if len(status.ClaimStatuses) != 2 || status.ClaimStatuses[0].Name != onNode1 ||
		status.ClaimStatuses[0].Node != patientNode || status.ClaimStatuses[0].Status.Phase != corev1.ClaimBound {
		t.Errorf("claims %+v", status.ClaimStatuses)
	}

	w.mountersGoLast(t)
	w.sameClaims(t, made.UID)
	w.events(t, "ClaimsStay")
}

// mountersGoLast: nothing is taken away from below a driver that still runs.
func (w *world) mountersGoLast(t *testing.T) {
	t.Helper()
	before := len(w.mounters(t.Context(), t))
	w.nodes.Die(t, "node-2")
	defer w.nodes.Return(t, "node-2")
	w.Delete(t, named())
	w.deleting(t, "WaitingForNodes", "on node-2")
	if got := len(w.mounters(t.Context(), t)); got != before || before != 2 {
		t.Errorf("%d mounters while a pod of the driver is left, before there were %d", got, before)
	}
	w.nodes.Return(t, "node-2")
	w.Gone(t, named())
	w.nothingLeft(t.Context(), t)
}

// existingClaims are those that kubevirt's operator made.
func existingClaims(t *testing.T, w *world) {
	t.Cleanup(func() { w.clear(t); w.noClaims(t) })
	t.Run("in our namespace", func(t *testing.T) {
		old := kubevirtClaim(harness.Namespace, onNode1)
		w.Create(t, old)
		w.bind(t, onNode1)
		w.apply(t, "pvctemplate-cr.yaml")
		w.claims(t, onNode1, onNode2)
		w.mounterOf(t, patientNode, onNode1)
		now := harness.Get(t, w.Server, claimNamed(onNode1))
		if size := now.Spec.Resources.Requests[corev1.ResourceStorage]; now.UID != old.UID || size.String() != "7Gi" ||
			len(now.OwnerReferences) > 0 || now.Annotations[names.NodeAnnotation] != "" {
			t.Errorf("the claim was changed: %+v", now)
		}
		w.clear(t)
		w.noClaims(t)
	})
	t.Run("in another", func(t *testing.T) {
		w.Create(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: kubevirts}})
		old := kubevirtClaim(kubevirts, onNode1)
		w.Create(t, old)
		w.apply(t, "pvctemplate-cr.yaml")
		w.poolSays(t, v1beta1.PoolDegraded, 0, 2, "its claim "+onNode1+" is in the namespace "+kubevirts,
			"install this operator in the namespace "+kubevirts)
		w.condition(t, v1beta1.Degraded, metav1.ConditionTrue, "install this operator in the namespace "+kubevirts)
		w.claims(t)
		if found := w.mounters(t.Context(), t); len(found) > 0 {
			t.Errorf("%d mounters without claims", len(found))
		}
		w.clear(t)
		w.noClaims(t)
	})
	t.Run("with somebody's of the same name", func(t *testing.T) {
		strange := kubevirtClaim(harness.Namespace, onNode1)
		strange.Labels = nil
		w.Create(t, strange)
		w.apply(t, "pvctemplate-cr.yaml")
		w.poolSays(t, v1beta1.PoolDegraded, 0, 2,
			"the claim "+harness.Namespace+"/"+onNode1+" is there and is not the pool's")
		w.mounterOf(t, "node-2", onNode2)
		if found := w.mounters(t.Context(), t); len(found) != 1 {
			t.Errorf("%d mounters, want none for the claim that is not the pool's", len(found))
		}
	})
}

// claimsOfNodes that join, have taints, leave and return.
func claimsOfNodes(t *testing.T, w *world) {
	t.Cleanup(func() { w.clear(t); w.noClaims(t) })
	pool := withTemplate(func(*corev1.PersistentVolumeClaimSpec) {})
	pool.Spec.Workload.Tolerations = []corev1.Toleration{
		{Key: "storage", Operator: corev1.TolerationOpExists},
		// Which every Node object is made with, and nobody here takes off.
		{Key: corev1.TaintNodeNotReady, Operator: corev1.TolerationOpExists},
	}
	w.Create(t, pool)
	w.claims(t, onNode1, onNode2)

	gpu := corev1.Taint{Key: "gpu", Value: "yes", Effect: corev1.TaintEffectNoSchedule}
	storage := corev1.Taint{Key: "storage", Value: "yes", Effect: corev1.TaintEffectNoExecute}
	w.nodes.Join(t, "tainted", gpu)
	w.nodes.Join(t, longNode, storage)
	w.claims(t, longClaim, onNode1, onNode2)
	claim := harness.Get(t, w.Server, claimNamed(longClaim)).UID
	mounter := w.mounterOf(t, longNode, longClaim)

	// The taint goes: the driver runs there now, and its pool comes with it.
	harness.Change(t, w.Server, nodeNamed("tainted"), func(n *corev1.Node) { n.Spec.Taints = nil })
	w.claims(t, longClaim, onNode1, onNode2, "hpp-pool-local-tainted")
	// It comes again: what runs stays.
	harness.Change(t, w.Server, nodeNamed("tainted"), func(n *corev1.Node) { n.Spec.Taints = []corev1.Taint{gpu} })
	w.nodes.Leave(t, longNode)
	w.Gone(t, mounter)
	w.mounterOf(t, "tainted", "hpp-pool-local-tainted")
	w.sameClaims(t, claim)

	w.nodes.Join(t, longNode, storage)
	w.mounterOf(t, longNode, longClaim)
	w.sameClaims(t, claim)
	for _, node := range []string{longNode, "tainted"} {
		w.nodes.Leave(t, node)
	}
	// The pool goes, and what is on its claims stays.
	harness.Change(t, w.Server, named(), func(r *v1beta1.HostPathProvisioner) {
		r.Spec.StoragePools = []v1beta1.StoragePool{{Name: "plain", Path: "/srv/plain"}}
	})
	harness.Eventually(t, "the mounters are gone", func(ctx context.Context) error {
		if found := w.mounters(ctx, t); len(found) > 0 {
			return fmt.Errorf("there are %d", len(found))
		}
		return nil
	})
	w.sameClaims(t, claim)
}

func templates(t *testing.T, w *world) {
	t.Cleanup(func() { w.clear(t); w.noClaims(t) })
	for name, test := range map[string]struct {
		change func(*corev1.PersistentVolumeClaimSpec)
		want   string
	}{
		"without size": {
			func(c *corev1.PersistentVolumeClaimSpec) { c.Resources = corev1.VolumeResourceRequirements{} },
			"pvcTemplate.resources.requests.storage: Required value: want the size of a node's filesystem",
		},
		"without access": {
			func(c *corev1.PersistentVolumeClaimSpec) { c.AccessModes = nil },
			"pvcTemplate.accessModes: Required value",
		},
		"one volume": {
			func(c *corev1.PersistentVolumeClaimSpec) { c.VolumeName = "pv" },
			"pvcTemplate.volumeName: Forbidden",
		},
		"from a snapshot": {func(c *corev1.PersistentVolumeClaimSpec) {
			c.DataSource = &corev1.TypedLocalObjectReference{Kind: "PersistentVolumeClaim", Name: "other"}
		}, "pvcTemplate.dataSource: Forbidden"},
		"one device for all nodes": {func(c *corev1.PersistentVolumeClaimSpec) {
			forAll(c)
			c.VolumeMode = new(corev1.PersistentVolumeBlock)
		}, "pvcTemplate.volumeMode: Invalid value: \"Block\": with ReadWriteMany all nodes would mount"},
	} {
		err := w.Client.Create(t.Context(), withTemplate(test.change))
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want %q", name, err, test.want)
		}
	}
	w.Create(t, withTemplate(func(c *corev1.PersistentVolumeClaimSpec) {
		c.VolumeMode = new(corev1.PersistentVolumeBlock)
	}))
	w.claims(t, onNode1, onNode2)
	pod := w.mounterOf(t, patientNode, onNode1).Spec.Template.Spec
	if devices := pod.Containers[0].VolumeDevices; len(devices) != 1 || devices[0].DevicePath != "/dev/source" ||
		!slices.Contains(pod.Containers[0].Args, "--device=/dev/source") {
		t.Errorf("mounter of a device: %+v", pod.Containers[0])
	}
	// Claims that exist are devices whatever the template says now.
	harness.Change(t, w.Server, named(), func(r *v1beta1.HostPathProvisioner) {
		r.Spec.StoragePools[0].PVCTemplate.VolumeMode = nil
	})
	w.condition(t, v1beta1.Available, metav1.ConditionTrue)
	if now := w.mounterOf(t, patientNode, onNode1); len(now.Spec.Template.Spec.Containers[0].VolumeDevices) != 1 {
		t.Error("the mounter of a device mounts a filesystem")
	}
	w.keepsMounters(t)
}

// keepsMounters: a pool that is valid no longer, as after an upgrade, keeps them: volumes of it are in use.
func (w *world) keepsMounters(t *testing.T) {
	t.Helper()
	before := w.mounterOf(t, patientNode, onNode1)
	w.withoutWebhook(t, func() {
		harness.Change(t, w.Server, named(), func(r *v1beta1.HostPathProvisioner) {
			r.Spec.StoragePools[0].PVCTemplate.VolumeName = "pv"
		})
	})
	w.poolSays(t, v1beta1.PoolDegraded, 0, 0, "left out", "pvcTemplate.volumeName")
	if now := harness.Get(t, w.Server, before); now.DeletionTimestamp != nil {
		t.Error("the mounter of a pool that is left out is being removed")
	}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{
		Namespace: harness.Namespace, Name: before.Spec.Template.Spec.ServiceAccountName,
	}}
	if now := harness.Get(t, w.Server, account); now.DeletionTimestamp != nil {
		t.Error("its ServiceAccount is being removed")
	}
}

func withTemplate(change func(*corev1.PersistentVolumeClaimSpec)) *v1beta1.HostPathProvisioner {
	made := withPools("local", "/var/hpvolumes")
	made.Spec.StoragePools[0].PVCTemplate = ofSize("5Gi")
	change(made.Spec.StoragePools[0].PVCTemplate)
	return made
}

func ofSize(size string) *corev1.PersistentVolumeClaimSpec {
	return &corev1.PersistentVolumeClaimSpec{
		AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		Resources: corev1.VolumeResourceRequirements{
			Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(size)},
		},
	}
}

// kubevirtClaim is a claim as kubevirt's operator makes it, of a template that was another.
func kubevirtClaim(namespace, name string) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{
			"k8s-app": "hostpath-provisioner", "app.kubernetes.io/managed-by": "hostpath-provisioner-operator",
			"app.kubernetes.io/component": "storage", names.PoolClaimLabel: "local-hpp",
		}},
		Spec: *ofSize("7Gi"),
	}
}

func claimNamed(name string) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: harness.Namespace, Name: name}}
}

func nodeNamed(name string) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
}

// claims waits until there are exactly these in the operator's namespace.
func (w *world) claims(t *testing.T, wanted ...string) {
	t.Helper()
	harness.Eventually(t, "claims", func(ctx context.Context) error {
		var list corev1.PersistentVolumeClaimList
		if err := w.Client.List(ctx, &list, client.InNamespace(harness.Namespace)); err != nil {
			return err
		}
		var got []string
		for _, claim := range list.Items {
			got = append(got, claim.Name)
		}
		if slices.Sort(got); !slices.Equal(got, wanted) {
			return fmt.Errorf("there are %v, want %v", got, wanted)
		}
		return nil
	})
}

// sameClaims wants that no claim is being deleted, and one of them to be the one that it was.
func (w *world) sameClaims(t *testing.T, uid types.UID) {
	t.Helper()
	var list corev1.PersistentVolumeClaimList
	if err := w.Client.List(t.Context(), &list, client.InNamespace(harness.Namespace)); err != nil {
		t.Fatal(err)
	}
	found := false
	for _, claim := range list.Items {
		found = found || claim.UID == uid
		if claim.DeletionTimestamp != nil {
			t.Errorf("claim %s is being deleted", claim.Name)
		}
	}
	if !found {
		t.Error("the claim is not the one that it was")
	}
}

// bind gives a claim a volume, and waits until it has it.
func (w *world) bind(t *testing.T, name string) {
	t.Helper()
	volume := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: "of-" + name},
		Spec: corev1.PersistentVolumeSpec{
			Capacity:    corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("10Gi")},
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce, corev1.ReadWriteMany},
			ClaimRef:    &corev1.ObjectReference{Namespace: harness.Namespace, Name: name},
			PersistentVolumeSource: corev1.PersistentVolumeSource{
				HostPath: &corev1.HostPathVolumeSource{Path: "/of/" + name},
			},
		},
	}
	w.Create(t, volume)
	harness.Until(t, w.Server, "the claim is bound", claimNamed(name), func(c *corev1.PersistentVolumeClaim) error {
		if c.Status.Phase != corev1.ClaimBound {
			return fmt.Errorf("it is %s", c.Status.Phase)
		}
		return nil
	})
}

// noClaims removes all claims and their volumes, also in a clean-up.
func (w *world) noClaims(t *testing.T) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	for _, kind := range []client.Object{&corev1.PersistentVolumeClaim{}, &corev1.PersistentVolume{}} {
		for _, namespace := range []string{harness.Namespace, kubevirts} {
			if err := w.Client.DeleteAllOf(ctx, kind, client.InNamespace(namespace)); err != nil {
				t.Error(err)
			}
		}
	}
	harness.EventuallyWith(ctx, t, "no claims and volumes", func(ctx context.Context) error {
		var claims corev1.PersistentVolumeClaimList
		var volumes corev1.PersistentVolumeList
		if err := errors.Join(w.Client.List(ctx, &claims), w.Client.List(ctx, &volumes)); err != nil {
			return err
		}
		if left := len(claims.Items) + len(volumes.Items); left > 0 {
			return fmt.Errorf("%d are left", left)
		}
		return nil
	})
}

func (w *world) mounters(ctx context.Context, t *testing.T) []appsv1.Deployment {
	t.Helper()
	var list appsv1.DeploymentList
	if err := w.Client.List(ctx, &list, client.InNamespace(harness.Namespace), client.MatchingLabels{
		"app.kubernetes.io/component": "mounter",
	}); err != nil {
		t.Fatal(err)
	}
	return list.Items
}

// mounterOf waits for the mounter of a node, with its claim.
func (w *world) mounterOf(t *testing.T, node, claim string) *appsv1.Deployment {
	t.Helper()
	var found *appsv1.Deployment
	harness.Eventually(t, "mounter of node "+node, func(ctx context.Context) error {
		all := w.mounters(ctx, t)
		for i := range all {
			pod := all[i].Spec.Template.Spec
			for _, volume := range pod.Volumes {
				if volume.PersistentVolumeClaim != nil && volume.PersistentVolumeClaim.ClaimName == claim &&
					all[i].Annotations[names.NodeAnnotation] == node && all[i].DeletionTimestamp == nil {
					found = &all[i]
					return nil
				}
			}
		}
		return fmt.Errorf("there is none with the claim %s among %d mounters", claim, len(all))
	})
	return found
}

// poolSays waits until the status says this of the only pool.
func (w *world) poolSays(
	t *testing.T, phase v1beta1.StoragePoolPhase, current, desired int32, words ...string,
) v1beta1.StoragePoolStatus {
	t.Helper()
	return harness.Until(t, w.Server, "the status of the pool", named(), func(r *v1beta1.HostPathProvisioner) error {
		if len(r.Status.StoragePoolStatuses) != 1 {
			return fmt.Errorf("it is %+v", r.Status.StoragePoolStatuses)
		}
		status := r.Status.StoragePoolStatuses[0]
		wrong := status.Phase != phase || status.CurrentReady != current || status.DesiredReady != desired
		for _, word := range words {
			wrong = wrong || !strings.Contains(status.Message, word)
		}
		if wrong {
			return fmt.Errorf("it is %s %d/%d %q, want %s %d/%d %q", status.Phase, status.CurrentReady,
				status.DesiredReady, status.Message, phase, current, desired, words)
		}
		return nil
	}).Status.StoragePoolStatuses[0]
}
