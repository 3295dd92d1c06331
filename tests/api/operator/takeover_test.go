package operator

import (
	"fmt"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/names"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/v1beta1"
	"github.com/hostpath-provisioner/hostpath-provisioner/tests/api/harness"
	"github.com/hostpath-provisioner/hostpath-provisioner/tests/chart/helmcli"
)

// TestTakeover: what kubevirt's operator has is there under its own names and labels when this one comes.
func TestTakeover(t *testing.T) {
	t.Parallel()
	s := harness.Start(t)
	s.Kinds(t, append(helmcli.MonitoringKinds(t), helmcli.OpenShiftKinds(t)[0],
		"testdata/kubevirt/definition.yaml", "testdata/kubevirt/olm-kinds.yaml")...)
	w := &world{Server: s, nodes: s.StartNodes(t, patientNode, "node-2")}
	w.Create(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: elsewhere}})
	there := w.kubevirt(t, harness.Namespace, "leftovers.yaml", "operator.yaml", "workloads.yaml", "job.yaml")
	w.Create(t, kubevirtsResource("local", "/var/hpvolumes"))
	w.operator = s.InstallOperator(t, s.Build(t, "./src/operator"), helmcli.Values{Files: []string{baseValues}})
	w.each(t,
		part{"in its own namespace", func(t *testing.T, w *world) { inOwnNamespace(t, w, there) }},
		part{"in another namespace, by OLM", byOLM},
		part{"a finalizer that comes back", comesBack},
		part{"a deletion that began before", deletionBefore},
		part{"mounters", mounters},
		part{"mounters in another namespace", mountersElsewhere},
	)
}

// inOwnNamespace: one step after the other, each only when the one before is over.
func inOwnNamespace(t *testing.T, w *world, there []client.Object) {
	w.waits(t, "KubevirtOperatorRuns", "Deployment "+harness.Namespace+"/hostpath-provisioner-operator: run `kubectl "+
		"scale deployment --namespace="+harness.Namespace+" hostpath-provisioner-operator --replicas=0`")
	harness.Until(t, w.Server, "kubevirt's driver runs", kubevirtsDriver(harness.Namespace), runsOnTwo)
	webhook := fixture(t, "webhook.yaml", "NAMESPACE", harness.Namespace, "NAME", kubevirtsWebhook)
	w.Create(t, webhook...)
	w.nodes.Die(t, "node-2")
	defer w.nodes.Return(t, "node-2")
	w.stopsKubevirt(t, harness.Namespace)
	w.allGone(t, webhook)
	w.waits(t, "KubevirtRuns", "on node-2")
	w.nodes.Return(t, "node-2")
	w.served(t)
	for _, object := range there {
		if object.GetName() != "hostpath-provisioner-operator" {
			w.Gone(t, object)
		}
	}
	harness.Get(t, w.Server, operatorOfKubevirts(harness.Namespace)) // that is its administrator's
	w.Delete(t, operatorOfKubevirts(harness.Namespace))
}

func kubevirtsDriver(namespace string) *appsv1.DaemonSet {
	return &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "hostpath-provisioner-csi"}}
}

func runsOnTwo(set *appsv1.DaemonSet) error {
	if set.Status.NumberReady != 2 {
		return fmt.Errorf("on %d nodes", set.Status.NumberReady)
	}
	return nil
}

// byOLM: OLM brings back a Deployment that is scaled down, and gives the webhook a name of its own.
func byOLM(t *testing.T, w *world) {
	labels := map[string]string{"k8s-app": "hostpath-provisioner"}
	bystanders := []client.Object{
		// microk8s has a provisioner with that label, and others may have objects of these names.
		&corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "hostpath-provisioner-5f", Labels: labels},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "a", Image: "example.com/a"}}},
		},
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "hostpath-provisioner-admin"}},
		&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "hostpath-provisioner"}},
	}
	w.Create(t, bystanders...)
	defer w.remove(t, bystanders...)
	there := w.kubevirt(t, elsewhere, "operator.yaml", "workloads.yaml", "olm.yaml")
	w.Create(t, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{
		Namespace: elsewhere, Name: "hostpath-provisioner-admin-csi", Labels: labels,
	}})
	webhook := fixture(t, "webhook.yaml", "NAMESPACE", elsewhere, "NAME",
		"validate-hostpath-provisioner.kubevirt.io-x7")
	w.Create(t, kubevirtsResource("local", "/var/hpvolumes"))
	w.waits(t, "KubevirtOperatorRuns", "ClusterServiceVersion "+elsewhere+"/hostpathprovisioneroperator.v0.25.2: run "+
		"`kubectl delete --namespace="+elsewhere+" subscription.operators.coreos.com/hpp "+
		"clusterserviceversion.operators.coreos.com/hostpathprovisioneroperator.v0.25.2`")

	// What the command does, and OLM then: all but the webhook.
	w.Create(t, webhook...)
	w.remove(t, there[len(there)-3:]...)
	w.remove(t, operatorOfKubevirts(elsewhere))
	w.eventSays(t, "KubevirtWebhookRefuses",
		"run `kubectl delete validatingwebhookconfiguration "+webhook[0].GetName()+"`")
	w.remove(t, webhook...)
	w.served(t)
	w.allGone(t, []client.Object{
		kubevirtsDriver(elsewhere),
		&corev1.ServiceAccount{
			ObjectMeta: metav1.ObjectMeta{Namespace: elsewhere, Name: "hostpath-provisioner-admin-csi"},
		},
	})
	for _, object := range bystanders {
		harness.Get(t, w.Server, object)
	}
}

// comesBack: kubevirt's finalizer on a resource of ours means that its operator is there again, or was.
func comesBack(t *testing.T, w *world) {
	w.Create(t, withPools("local", "/var/hpvolumes"))
	w.served(t)
	back := func(r *v1beta1.HostPathProvisioner) { r.Finalizers = append(r.Finalizers, names.KubevirtFinalizer) }
	harness.Change(t, w.Server, named(), back)
	w.served(t)

	w.kubevirt(t, elsewhere, "operator.yaml", "workloads.yaml")
	harness.Change(t, w.Server, named(), back)
	w.waits(t, "KubevirtOperatorRuns", "Deployment "+elsewhere+"/hostpath-provisioner-operator")
	harness.Get(t, w.Server, kubevirtsDriver(elsewhere)) // it would be back at once
	w.stopsKubevirt(t, elsewhere)
	w.served(t)
	w.Gone(t, kubevirtsDriver(elsewhere))
	w.Delete(t, operatorOfKubevirts(elsewhere))
}

// deletionBefore: what kubevirt's operator was asked to delete passes the gates all the same, and its volumes are
// served until then.
func deletionBefore(t *testing.T, w *world) {
	w.kubevirt(t, elsewhere, "operator.yaml", "workloads.yaml")
	defer w.remove(t, operatorOfKubevirts(elsewhere))
	volume := w.volume(t, "local")
	w.Create(t, kubevirtsResource("local", "/var/hpvolumes"))
	w.waits(t, "KubevirtOperatorRuns")
	w.withoutWebhook(t, func() { w.Delete(t, named()) })
	w.stopsKubevirt(t, elsewhere)
	w.deleting(t, "VolumesLeft", "1 volume left: default/data (pvc-of-local)")
	w.Gone(t, kubevirtsDriver(elsewhere))
	harness.Until(t, w.Server, "our driver serves the volume", daemonSet(driverName), runsOnTwo)
	if finalizers := harness.Get(t, w.Server, named()).Finalizers; len(finalizers) != 1 ||
		finalizers[0] != names.KubevirtFinalizer {
		t.Errorf("its finalizers are %v", finalizers)
	}
	w.goesOnceReleased(t, volume)
}
