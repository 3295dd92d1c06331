package controller_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/names"
	"github.com/hostpath-provisioner/hostpath-provisioner/tests/api/harness"
)

// reported: the driver's pod on each connected node says how the pool is there, beside what its kubelet says. The
// controller has to have the rights for that, and nodes have none.
func reported(t *testing.T, w *world) {
	const kind = corev1.PodConditionType(names.PoolCondition + poolName)
	for node := range w.nodes {
		pod := w.pods[node].DeepCopy()
		harness.Until(t, w.Server, "the pod on "+node+" says how the pool is", pod, func(pod *corev1.Pod) error {
			at := slices.IndexFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == kind })
			if at < 0 || len(pod.Status.Conditions) < 2 {
				return fmt.Errorf("its conditions are %v", pod.Status.Conditions)
			}
			if c := pod.Status.Conditions[at]; c.Status == corev1.ConditionUnknown || c.Reason == "" {
				return fmt.Errorf("condition %v", c)
			}
			return nil
		})
	}
}

// held: of the driver's pods, the controller's account changes only conditions that begin as its own do.
func held(t *testing.T, w *world) {
	const onlyStatus = "the controller changes only the status of pods"
	const onlyConditions = "of the status of a pod, the controller changes only conditions"
	const onlyOurs = "of the conditions of a pod, the controller changes only those that begin with " +
		names.PoolCondition
	own := w.ClientOf(t, w.controllerRights)
	try := func(ctx context.Context, kind types.PatchType, patch string) error {
		pod := w.pods["node-5"].DeepCopy() // of which no driver says anything
		return own.SubResource("status").Patch(ctx, pod, client.RawPatch(kind, []byte(patch)),
			&client.SubResourcePatchOptions{PatchOptions: client.PatchOptions{DryRun: []string{"All"}}})
	}
	condition := func(kind string) string {
		return `{"status":{"conditions":[{"type":"` + kind + `","status":"True","reason":"PoolPresent"}]}}`
	}
	none := `{"status":{"conditions":[]}}` // and all others go
	harness.Eventually(t, "the API server knows the policy and the pod's kubelet", func(ctx context.Context) error {
		if try(ctx, types.MergePatchType, none) == nil {
			return errors.New("it takes anything")
		}
		return nil
	})
	harness.Denied(t, "no conditions", try(t.Context(), types.MergePatchType, none), onlyOurs)
	for what, test := range map[string]struct{ patch, want string }{
		"the phase":     {`{"status":{"phase":"Failed"}}`, onlyConditions},
		"an address":    {`{"status":{"podIP":"10.0.0.1","podIPs":[{"ip":"10.0.0.1"}]}}`, onlyConditions},
		"containers":    {`{"status":{"containerStatuses":[{"name":"driver","ready":true}]}}`, onlyConditions},
		"readiness":     {condition("Ready"), onlyOurs},
		"a gate":        {condition("example.com/gate"), onlyOurs},
		"a short name":  {condition("pool"), onlyOurs},
		"a label":       {`{"metadata":{"labels":{"app.kubernetes.io/component":"other"}}}`, onlyStatus},
		"an annotation": {`{"metadata":{"annotations":{"example.com/note":"yes"}}}`, onlyStatus},
		"a name":        {`{"metadata":{"generateName":"other-"}}`, onlyStatus},
		"a finalizer":   {`{"metadata":{"finalizers":["example.com/stays"]}}`, onlyStatus},
	} {
		harness.Denied(t, what, try(t.Context(), types.StrategicMergePatchType, test.patch), test.want)
	}
	again := `[{"op":"copy","from":"/status/conditions/0","path":"/status/conditions/-"}]`
	harness.Denied(t, "a second one of a kind", try(t.Context(), types.JSONPatchType, again), onlyOurs)
	ours := condition(names.PoolCondition + "other")
	if err := try(t.Context(), types.StrategicMergePatchType, ours); err != nil {
		t.Errorf("a condition of the controller's: %v", err)
	}
	if own.Patch(t.Context(), w.pods["node-5"].DeepCopy(), client.RawPatch(types.MergePatchType, []byte(ours))) == nil {
		t.Error("the controller may change pods beside their status")
	}
}
