package operator

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/names"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/v1beta1"
	"github.com/hostpath-provisioner/hostpath-provisioner/tests/api/harness"
)

// fromClaims is a resource with a pool in a directory and one from claims.
func fromClaims() *v1beta1.HostPathProvisioner {
	resource := kubevirtsResource("local", "/var/hpvolumes", "claims", "/var/claims")
	resource.Spec.StoragePools[1].PVCTemplate = &corev1.PersistentVolumeClaimSpec{
		AccessModes:      []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		StorageClassName: new("manual"), Resources: corev1.VolumeResourceRequirements{Requests: storage("5Gi")},
	}
	return resource
}

func mounterOfKubevirts(t *testing.T, namespace, pool, node string) client.Object {
	t.Helper()
	return fixture(t, "mounter.yaml", "NAMESPACE", namespace, "POOL", pool, "NODE", node)[0]
}

// mounters: one of kubevirt's goes when ours mounts the same claim on the same node, or when nobody needs it.
func mounters(t *testing.T, w *world) {
	w.kubevirt(t, harness.Namespace, "workloads.yaml")
	needed := mounterOfKubevirts(t, harness.Namespace, "claims", patientNode)
	other := mounterOfKubevirts(t, harness.Namespace, "claims", "node-2")
	ofNode := mounterOfKubevirts(t, harness.Namespace, "claims", "node-9")
	ofPool := mounterOfKubevirts(t, harness.Namespace, "former", patientNode)
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{
		Namespace: harness.Namespace, Name: "hostpath-provisioner-admin-csi",
		Labels: map[string]string{"k8s-app": "hostpath-provisioner"},
	}}
	w.Create(t, needed, other, ofNode, ofPool, account)
	w.Create(t, fromClaims())
	w.served(t)
	w.allGone(t, []client.Object{ofNode, ofPool})

	ours := ourMounter("claims", patientNode)
	w.Create(t, ours)
	defer w.remove(t, ours)
	ours.Status = appsv1.DeploymentStatus{
		ObservedGeneration: ours.Generation, Replicas: 1, UpdatedReplicas: 1, ReadyReplicas: 1, AvailableReplicas: 1,
	}
	harness.Get(t, w.Server, needed)
	if err := w.Client.Status().Update(t.Context(), ours); err != nil {
		t.Fatal(err)
	}
	w.Gone(t, needed)
	harness.Get(t, w.Server, other)
	harness.Get(t, w.Server, account) // its pods use it
	w.remove(t, other)
	harness.Change(
		t, w.Server, named(), func(r *v1beta1.HostPathProvisioner) { r.Spec.StoragePools = r.Spec.StoragePools[:1] },
	)
	w.Gone(t, account)
}

// ourMounter is a Deployment as this operator applies it for a pool and a node; its claim is never bound, so that the
// nodes played here do not call it complete.
func ourMounter(pool, node string) *appsv1.Deployment {
	labels := map[string]string{
		names.OwnedBy: names.CustomResource, names.PoolLabel: pool, "app.kubernetes.io/component": "mounter",
	}
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: harness.Namespace, Name: "ours", Labels: labels,
			Annotations: map[string]string{names.NodeAnnotation: node},
		},
		Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: corev1.PodSpec{
					Containers: []corev1.Container{{Name: "mounter", Image: "example.com/mounter"}},
					Volumes: []corev1.Volume{{Name: "claim", VolumeSource: corev1.VolumeSource{
						PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{
							ClaimName: "hpp-pool-" + pool + "-" + node,
						},
					}}},
				},
			},
		},
	}
}

// mountersElsewhere: a claim cannot be mounted from another namespace, so that nothing is begun.
func mountersElsewhere(t *testing.T, w *world) {
	there := mounterOfKubevirts(t, elsewhere, "claims", patientNode)
	w.Create(t, there)
	w.kubevirt(t, elsewhere, "workloads.yaml")
	w.Create(t, fromClaims())
	w.waits(t, "KubevirtRuns", "Deployment hpp-pool-claims-"+patientNode,
		"install it in namespace "+elsewhere,
		"`kubectl delete deployment --namespace="+elsewhere+" --selector=k8s-app=hostpath-provisioner,hpp-pool`")
	harness.Get(t, w.Server, kubevirtsDriver(elsewhere))
	w.remove(t, there)
	w.served(t)
	w.Gone(t, kubevirtsDriver(elsewhere))
}
