// Package legacy tests the legacy provisioner against a real API server and the real claim binder: one instance for
// each of two nodes, with the rights that the chart gives them.
package legacy

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/names"
	"github.com/hostpath-provisioner/hostpath-provisioner/tests/api/harness"
	"github.com/hostpath-provisioner/hostpath-provisioner/tests/chart/helmcli"
)

const (
	selectedNode = "volume.kubernetes.io/selected-node"
	waits        = "waits"
	immediate    = "immediate"
	retains      = "retains"
)

// world is a control plane with two nodes that have a provisioner each.
type world struct {
	*harness.Server
	dir   string // of the volumes
	nodes []string
}

func TestLegacyProvisioner(t *testing.T) {
	s := harness.Start(t)
	s.StartNodes(t, "node-1", "node-2")
	// Each node has a directory of one path; here they have to share it.
	w := &world{Server: s, dir: t.TempDir(), nodes: []string{"node-1", "node-2"}}
	classes := `[{"name":"waits"},{"name":"immediate","volumeBindingMode":"Immediate"},` +
		`{"name":"retains","reclaimPolicy":"Retain"}]`
	out, err := s.Helm(t).Run(t, helmcli.Values{
		Set:  map[string]string{"legacyProvisioner.enabled": "true", "legacyProvisioner.path": w.dir},
		JSON: map[string]string{"legacyProvisioner.storageClasses": classes},
	}, "install", harness.Release, helmcli.ChartDir(t))
	if err != nil {
		t.Fatalf("helm install: %v\n%s", err, out)
	}
	w.startProvisioners(t)
	for name, test := range map[string]func(*testing.T, *world){
		"annotation with an immediate class":              annotated,
		"selected node":                                   selected,
		"annotation without a consumer":                   withoutConsumer,
		"annotation against the scheduler":                conflict,
		"annotation names no node":                        unknownNode,
		"immediate without annotation":                    unannotated,
		"retained":                                        retained,
		"somebody else's class is nobody's business here": foreign,
		"a node's token is good for its own volumes":      tokens,
	} {
		t.Run(name, func(t *testing.T) { test(t, w) })
	}
}

// startProvisioners runs the binary once for each node, as the DaemonSet's pods would.
func (w *world) startProvisioners(t *testing.T) {
	t.Helper()
	binary := w.Build(t, "./src/legacyprovisioner")
	set := harness.Get(t, w.Server, &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{
		Namespace: harness.Namespace, Name: harness.Release + "-hostpath-provisioner-legacy",
	}})
	pod := set.Spec.Template.Spec
	for _, node := range w.nodes {
		var environment []string
		for _, variable := range pod.Containers[0].Env {
			environment = append(environment, variable.Name+"="+variable.Value)
		}
		environment = append(environment, "NODE_NAME="+node)
		w.Run(t, binary, environment,
			append(slices.Clone(pod.Containers[0].Args), "--kubeconfig="+w.kubeconfigOn(t, node),
				"--http-address=127.0.0.1:"+strconv.Itoa(harness.FreePort(t)))...)
	}
}

// claim makes a claim in a class, with annotations: key, value, key, value.
func (w *world) claim(t *testing.T, class string, annotations ...string) *corev1.PersistentVolumeClaim {
	t.Helper()
	claim := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", GenerateName: "data-", Annotations: map[string]string{}},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, StorageClassName: &class,
			Resources: corev1.VolumeResourceRequirements{
				Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("10Mi")},
			},
		},
	}
	for i := 0; i < len(annotations); i += 2 {
		claim.Annotations[annotations[i]] = annotations[i+1]
	}
	w.Create(t, claim)
	return claim
}

// bound waits until a claim has its volume on a node, and checks the volume and its directory.
func (w *world) bound(t *testing.T, claim *corev1.PersistentVolumeClaim, node string) *corev1.PersistentVolume {
	t.Helper()
	harness.Until(t, w.Server, "the claim is bound", claim, func(c *corev1.PersistentVolumeClaim) error {
		if c.Status.Phase != corev1.ClaimBound {
			return fmt.Errorf("it is %s, with the annotations %v", c.Status.Phase, c.Annotations)
		}
		return nil
	})
	volume := harness.Get(t, w.Server, &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: claim.Spec.VolumeName},
	})
	name := "pvc-" + string(claim.UID)
	path := filepath.Join(w.dir, name)
	want := corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{
		{Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: []string{node}},
	}}
	affinity := volume.Spec.NodeAffinity
	switch {
	case volume.Name != name || volume.Spec.HostPath == nil || volume.Spec.HostPath.Path != path:
		t.Errorf("volume %s at %+v, want %s at %s", volume.Name, volume.Spec.HostPath, name, path)
	case affinity == nil || !reflect.DeepEqual(affinity.Required.NodeSelectorTerms, []corev1.NodeSelectorTerm{want}):
		t.Errorf("affinity %+v, want %+v", affinity, want)
	case volume.Spec.Capacity.Storage().String() != "10Mi":
		t.Errorf("capacity %s, want the 10Mi that were asked for", volume.Spec.Capacity.Storage())
	case volume.Annotations[names.ProvisionOnNode] != node ||
		volume.Annotations[names.ProvisionedBy] != names.LegacyProvisioner ||
		volume.Annotations[names.LegacyIdentity] == "":
		t.Errorf("annotations %v", volume.Annotations)
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o777 {
		t.Errorf("directory %s: %v, %v; want mode 0777", path, info, err)
	}
	return volume
}

// deleted deletes a claim and waits until its volume and directory are gone.
func (w *world) deleted(t *testing.T, claim *corev1.PersistentVolumeClaim, volume *corev1.PersistentVolume) {
	t.Helper()
	w.Delete(t, claim)
	w.Gone(t, volume)
	if _, err := os.Stat(volume.Spec.HostPath.Path); !os.IsNotExist(err) {
		t.Errorf("directory %s is left: %v", volume.Spec.HostPath.Path, err)
	}
}

func annotated(t *testing.T, w *world) {
	claim := w.claim(t, immediate, names.ProvisionOnNode, "node-1")
	volume := w.bound(t, claim, "node-1")
	if volume.Spec.PersistentVolumeReclaimPolicy != corev1.PersistentVolumeReclaimDelete {
		t.Errorf("reclaim policy %s", volume.Spec.PersistentVolumeReclaimPolicy)
	}
	w.deleted(t, claim, volume)
}

// selected: the test is the scheduler.
func selected(t *testing.T, w *world) {
	claim := w.claim(t, waits, selectedNode, "node-2")
	w.deleted(t, claim, w.bound(t, claim, "node-2"))
}

func withoutConsumer(t *testing.T, w *world) {
	claim := w.claim(t, waits, names.ProvisionOnNode, "node-2")
	volume := w.bound(t, claim, "node-2")
	if got := claim.Annotations[selectedNode]; got != "node-2" {
		t.Errorf("selected node %q, want node-2: the scheduler has to keep to it", got)
	}
	w.deleted(t, claim, volume)
}

// conflict: a pod whose claims are mixed, with and without the annotation, and a scheduler
// that went by the one without.
func conflict(t *testing.T, w *world) {
	claim := w.claim(t, waits, names.ProvisionOnNode, "node-1", selectedNode, "node-2")
	volume := w.bound(t, claim, "node-1")
	w.event(t, claim, "NodeConflict", "the scheduler chose node node-2, but annotation kubevirt.io/provisionOnNode "+
		"says node-1 and wins: the volume is made on node-1; a pod that has other volumes on node-2 cannot be "+
		"scheduled, so give all claims of a pod the annotation with the same node, or none")
	w.deleted(t, claim, volume)
}

func unknownNode(t *testing.T, w *world) {
	claim := w.claim(t, immediate, names.ProvisionOnNode, "node-9")
	w.event(t, claim, "NodeNotFound",
		`annotation kubevirt.io/provisionOnNode: there is no node "node-9"; the nodes are node-1, node-2; correct it `+
			"with `kubectl annotate --overwrite pvc --namespace=default "+claim.Name+
			" kubevirt.io/provisionOnNode=NODE`")
	// As the event says.
	harness.Change(
		t, w.Server, claim, func(c *corev1.PersistentVolumeClaim) { c.Annotations[names.ProvisionOnNode] = "node-2" },
	)
	w.deleted(t, claim, w.bound(t, claim, "node-2"))
}

func unannotated(t *testing.T, w *world) {
	claim := w.claim(t, immediate)
	w.event(t, claim, "WaitingForAnnotation", "StorageClass immediate binds immediately, so nothing chooses a node "+
		"for this volume: name one with `kubectl annotate pvc --namespace=default "+claim.Name+
		" kubevirt.io/provisionOnNode=NODE`, or use a class with volumeBindingMode WaitForFirstConsumer")
	harness.Change(t, w.Server, claim, func(c *corev1.PersistentVolumeClaim) {
		c.Annotations = map[string]string{names.ProvisionOnNode: "node-1"}
	})
	w.deleted(t, claim, w.bound(t, claim, "node-1"))
}

// retained: the class's policy counts, unlike with kubevirt's provisioner.
func retained(t *testing.T, w *world) {
	claim := w.claim(t, retains, selectedNode, "node-1")
	volume := w.bound(t, claim, "node-1")
	w.Delete(t, claim)
	harness.Until(t, w.Server, "the volume is released", volume, func(v *corev1.PersistentVolume) error {
		if v.Status.Phase != corev1.VolumeReleased {
			return fmt.Errorf("it is %s", v.Status.Phase)
		}
		return nil
	})
	if _, err := os.Stat(volume.Spec.HostPath.Path); err != nil {
		t.Errorf("the data of a retained volume: %v", err)
	}
	w.Delete(t, volume)
}

// foreign: the provisioner with a dot is the CSI driver, and users mix them up. A claim of ours made after it is
// served, so that the instances had seen both.
func foreign(t *testing.T, w *world) {
	class := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "dot"}, Provisioner: names.Driver}
	w.Create(t, class)
	not := w.claim(t, class.Name, names.ProvisionOnNode, "node-1")
	ours := w.claim(t, immediate, names.ProvisionOnNode, "node-1")
	w.deleted(t, ours, w.bound(t, ours, "node-1"))
	if got := harness.Get(t, w.Server, not); got.Status.Phase != corev1.ClaimPending {
		t.Errorf("a claim of the CSI driver's class is %s", got.Status.Phase)
	}
	w.Delete(t, not)
}

// event waits for an event on a claim, and wants it once, whole.
func (w *world) event(t *testing.T, claim *corev1.PersistentVolumeClaim, reason, message string) {
	t.Helper()
	harness.Eventually(t, "event "+reason, func(ctx context.Context) error {
		var list corev1.EventList
		if err := w.Client.List(ctx, &list); err != nil {
			return err
		}
		var found []string
		for _, event := range list.Items {
			if event.InvolvedObject.UID == claim.UID && event.Reason == reason {
				found = append(found, event.Message)
			}
		}
		if !slices.Equal(found, []string{message}) {
			return fmt.Errorf("there are\n%q\nwant\n%q", found, message)
		}
		return nil
	})
}
