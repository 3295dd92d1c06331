package controller_test

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/names"
	"github.com/hostpath-provisioner/hostpath-provisioner/tests/api/harness"
)

// moved: a volume goes to another node with the rights that the chart gives, and its claim is the same, and Bound.
func moved(t *testing.T, w *world) {
	claim, q := w.request(t, 16*mib, "node-1")
	w.create(t, w.controller, q, "node-1")
	sum := w.nodes["node-1"].write(t, q.GetName(), 4)
	pv := w.claimedVolume(claim, q.GetName(), "node-1")
	w.Create(t, pv)
	w.isBound(t, claim, "node-1")
	if out, err := w.move(t, "start", pv.Name, "--to", "node-1"); err == nil || !strings.Contains(out, "already") {
		t.Errorf("to where it is: %v: %s", err, out)
	}
	if out, err := w.move(t, "start", pv.Name, "--to", "node-2"); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	now := w.isBound(t, claim, "node-2")
	harness.Eventually(t, "the move has ended", func(context.Context) error {
		out, err := w.move(t, "list")
		if err == nil && strings.Contains(out, pv.Name) {
			err = fmt.Errorf("it is %s", out)
		}
		return err
	})
	now = harness.Get(t, w.Server, now)
	if now.UID == pv.UID || now.Spec.PersistentVolumeReclaimPolicy != corev1.PersistentVolumeReclaimDelete ||
		now.Spec.ClaimRef.UID != claim.UID || now.Annotations[names.ProvisionedBy] != names.Driver {
		t.Errorf("the PersistentVolume is %+v", now)
	}
	w.nodes["node-2"].hasCopy(t, q.GetName(), sum)
	if w.nodes["node-1"].has(q.GetName()) {
		t.Error("node-1 has it still")
	}
	w.event(t, claim.Name, "VolumeMoved", "the volume is on node node-2 now; what was on node node-1 stays in the "+
		"trash there for a day at least")
	w.Delete(t, claim)
	w.deleted(t, q.GetName())
	w.Delete(t, now)
}

// claimedVolume is the PersistentVolume of a claim, as csi-provisioner makes it.
func (w *world) claimedVolume(claim *corev1.PersistentVolumeClaim, id, node string) *corev1.PersistentVolume {
	return &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{
			Name: id, Annotations: map[string]string{names.ProvisionedBy: names.Driver},
		},
		Spec: corev1.PersistentVolumeSpec{
			Capacity: claim.Spec.Resources.Requests, AccessModes: claim.Spec.AccessModes,
			PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimDelete, StorageClassName: immediate,
			ClaimRef: &corev1.ObjectReference{
				APIVersion: "v1", Kind: "PersistentVolumeClaim", Namespace: claim.Namespace, Name: claim.Name,
				UID: claim.UID,
			},
			PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{
				Driver: names.Driver, VolumeHandle: id,
				VolumeAttributes: map[string]string{names.StoragePoolParameter: poolName},
			}},
			NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{
				NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{
					{Key: topologyKey, Operator: corev1.NodeSelectorOpIn, Values: []string{node}},
				}}},
			}},
		},
	}
}

// isBound waits until a claim is Bound, to a PersistentVolume on a node.
func (w *world) isBound(t *testing.T, claim *corev1.PersistentVolumeClaim, node string) (pv *corev1.PersistentVolume) {
	t.Helper()
	harness.Eventually(t, "the claim is Bound on "+node, func(ctx context.Context) error {
		now := harness.Get(t, w.Server, claim.DeepCopy())
		pv = &corev1.PersistentVolume{}
		err := w.Client.Get(ctx, client.ObjectKey{Name: now.Spec.VolumeName}, pv)
		if err == nil && (now.UID != claim.UID || now.Status.Phase != corev1.ClaimBound ||
			pv.Status.Phase != corev1.VolumeBound ||
			pv.Spec.NodeAffinity.Required.NodeSelectorTerms[0].MatchExpressions[0].Values[0] != node) {
			err = fmt.Errorf("it is %s, and the PersistentVolume %s: %v", now.Status.Phase, pv.Status.Phase,
				pv.Spec.NodeAffinity)
		}
		return err
	})
	return pv
}

// move runs a command about moves in the controller.
func (w *world) move(t *testing.T, args ...string) (string, error) {
	t.Helper()
	args = append([]string{"move"}, args...)
	args = append(args, "--output", "json", "--state-dir", filepath.Join(w.controller.dir, "state"))
	out, err := exec.CommandContext(t.Context(), w.binaries["controller"], args...).CombinedOutput()
	return string(out), err
}
