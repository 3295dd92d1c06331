package legacy

import (
	"context"
	"errors"
	"path/filepath"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/names"
	"github.com/hostpath-provisioner/hostpath-provisioner/tests/api/harness"
)

const account = harness.Release + "-hostpath-provisioner-legacy"

// kubeconfigOn writes a kubeconfig with the token of the provisioner's pod on a node.
func (w *world) kubeconfigOn(t *testing.T, node string) string {
	t.Helper()
	request := &authenticationv1.TokenRequest{}
	harness.Eventually(t, "the provisioner's pod on "+node, func(ctx context.Context) error {
		pods, err := w.Pods(ctx, "legacy-provisioner")
		if err != nil {
			return err
		}
		for _, pod := range pods {
			if pod.Spec.NodeName == node {
				request.Spec.BoundObjectRef = &authenticationv1.BoundObjectReference{
					APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID,
				}
				return nil
			}
		}
		return errors.New("it is not there")
	})
	who := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: harness.Namespace, Name: account}}
	if err := w.Client.SubResource("token").Create(t.Context(), who, request); err != nil {
		t.Fatalf("token of the pod on %s: %v", node, err)
	}
	config := clientcmdapi.NewConfig()
	config.Clusters["server"] = &clientcmdapi.Cluster{
		Server: w.Config.Host, CertificateAuthorityData: w.Config.CAData,
	}
	config.AuthInfos[account] = &clientcmdapi.AuthInfo{Token: request.Status.Token}
	config.Contexts["test"] = &clientcmdapi.Context{Cluster: "server", AuthInfo: account}
	config.CurrentContext = "test"
	path := filepath.Join(t.TempDir(), node+".kubeconfig")
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		t.Fatal(err)
	}
	return path
}

// forged is a PersistentVolume as the provisioner on a node makes it, which a test then changes.
func (w *world) forged(node string, change func(*corev1.PersistentVolume)) *corev1.PersistentVolume {
	const name = "pvc-00000000-1111-2222-3333-444455556666"
	pv := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{
			names.ProvisionedBy: names.LegacyProvisioner, names.LegacyIdentity: names.LegacyProvisioner,
			names.ProvisionOnNode: node,
		}},
		Spec: corev1.PersistentVolumeSpec{
			AccessModes:                   []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Capacity:                      corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Mi")},
			PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain,
			PersistentVolumeSource: corev1.PersistentVolumeSource{
				HostPath: &corev1.HostPathVolumeSource{Path: filepath.Join(w.dir, name)},
			},
		},
	}
	if change != nil {
		change(pv)
	}
	return pv
}

// tokens: what one node may do to the cluster with the account that all nodes have.
func tokens(t *testing.T, w *world) {
	const foreignNode = "the PersistentVolume is not of node node-1, which the token is of"
	noPath := "the PersistentVolume is no directory of its own name, directly in " + w.dir
	first := w.ClientOf(t, w.kubeconfigOn(t, "node-1"))
	podless := w.ClientOf(t, w.KubeconfigOf(t, account))
	harness.Eventually(t, "the API server knows the policy", func(ctx context.Context) error {
		if podless.Create(ctx, w.forged("node-1", nil), client.DryRunAll) == nil {
			return errors.New("it takes anything")
		}
		return nil
	})
	harness.Denied(t, "a token of no pod", podless.Create(t.Context(), w.forged("node-1", nil)),
		"the token is bound to no pod on a node, so no PersistentVolume is its own")
	harness.Denied(t, "another node's", first.Create(t.Context(), w.forged("node-2", nil)), foreignNode)
	harness.Denied(t, "nobody's", first.Create(t.Context(), w.forged("", nil)), foreignNode)
	foreign := w.forged("node-1", func(pv *corev1.PersistentVolume) {
		pv.Annotations[names.ProvisionedBy] = names.Driver
	})
	harness.Denied(t, "another provisioner's", first.Create(t.Context(), foreign), "the PersistentVolume is not the legacy provisioner's, annotation pv.kubernetes.io/provisioned-by says")
	plain := w.forged("node-1", func(pv *corev1.PersistentVolume) { pv.Annotations = nil })
	harness.Denied(t, "without annotations", first.Create(t.Context(), plain), "the PersistentVolume is not the legacy provisioner's, annotation pv.kubernetes.io/provisioned-by says")
	const victim = "pvc-145c785e-ab83-11e7-9432-4201ac1fd019"
	for _, path := range []string{
		"/", "/etc", w.dir, w.dir + "/csi", w.dir + "/csi/" + victim,
		w.dir + "2/pvc-00000000-1111-2222-3333-444455556666",
		w.dir + "/" + victim, w.dir + "/xpvc-00000000-1111-2222-3333-444455556666",
	} {
		harness.Denied(t, path, first.Create(t.Context(), w.forged("node-1", func(pv *corev1.PersistentVolume) {
			pv.Spec.HostPath.Path = path
		})), noPath)
	}
	harness.Denied(t, "the end of another's name", first.Create(t.Context(), w.forged("node-1",
		func(pv *corev1.PersistentVolume) { pv.Name, pv.Spec.HostPath.Path = "4201ac1fd019", w.dir+"/"+victim })),
		noPath)
	harness.Denied(t, "a server", first.Create(t.Context(), w.forged("node-1", func(pv *corev1.PersistentVolume) {
		pv.Spec.PersistentVolumeSource = corev1.PersistentVolumeSource{
			NFS: &corev1.NFSVolumeSource{Server: "evil.example.com", Path: "/"},
		}
	})), noPath)

	claim := w.claim(t, waits, selectedNode, "node-2")
	volume := w.bound(t, claim, "node-2")
	harness.Denied(t, "to delete another node's", first.Delete(t.Context(), volume.DeepCopy()), foreignNode)
	pending := w.claim(t, waits)
	taken := pending.DeepCopy()
	taken.Spec.VolumeName = "mine"
	harness.Denied(t, "to take a claim", first.Update(t.Context(), taken),
		"the legacy provisioner changes only the metadata of claims")
	chosen := pending.DeepCopy()
	chosen.Annotations = map[string]string{"example.com/note": "yes"}
	own := w.forged("node-1", func(pv *corev1.PersistentVolume) {
		pv.Spec.HostPath.Path = filepath.Join(w.dir, "a-pvc-b-"+pv.Name)
	})
	if err := errors.Join(first.Update(t.Context(), chosen), first.Create(t.Context(), own),
		first.Delete(t.Context(), own)); err != nil {
		t.Errorf("what the provisioner does itself: %v", err)
	}
	w.Gone(t, own)
	w.Delete(t, pending)
	w.deleted(t, claim, volume)
}
