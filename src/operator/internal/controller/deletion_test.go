package controller

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/names"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/v1beta1"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/operator/internal/gates"
)

// mounterPod is that of a pool on the node n.
func mounterPod(pool string) corev1.Pod {
	return corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Labels: map[string]string{
			"app.kubernetes.io/component": "mounter", names.PoolLabel: pool, names.MountLabel: "hash-" + pool,
		},
		Annotations: map[string]string{names.NodeAnnotation: "n"},
	}}
}

func TestDivide(t *testing.T) {
	t.Parallel()
	ours := gates.Volume{Claim: "hpp/hpp-pool-a-n", OfPool: true}
	for name, test := range map[string]struct {
		change func(*gates.Volume)
		want   int
	}{
		"a volume of ours":     {func(*gates.Volume) {}, 1},
		"one for all nodes":    {func(v *gates.Volume) { v.Claim = "hpp/hpp-pool-a-shared" }, 1},
		"one of another pool":  {func(v *gates.Volume) { v.Claim = "hpp/hpp-pool-b-shared" }, 0},
		"of another pool":      {func(v *gates.Volume) { v.Claim = "hpp/hpp-pool-b-n" }, 0},
		"of another node":      {func(v *gates.Volume) { v.Claim = "hpp/hpp-pool-a-m" }, 0},
		"of a user":            {func(v *gates.Volume) { v.Claim, v.OfPool = "shop/hpp-pool-a-n", false }, 0},
		"no mount of a driver": {func(v *gates.Volume) { v.Legacy = true }, 0},
	} {
		volume := ours
		test.change(&volume)
		of, others := divide([]corev1.Pod{mounterPod("a")}, []gates.Volume{volume}, "hpp")
		if len(of) != test.want || len(others) != 1-test.want {
			t.Errorf("%s: nested %d, others %d", name, len(of), len(others))
		}
	}
}

// TestEndOfWhatHasGone: the cache still shows a resource that is no more. Nothing is removed: any call but Get panics.
func TestEndOfWhatHasGone(t *testing.T) {
	t.Parallel()
	resource, next := served("hostpath-provisioner"), served("hostpath-provisioner")
	resource.UID, next.UID = "gone", "next"
	for name, there := range map[string]*v1beta1.HostPathProvisioner{"no resource": nil, "the next one": next} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			live := &cluster{resource: there}
			if err := live.reconciler(&recorded{}).finishDeletion(t.Context(), resource, nil); err != nil ||
				live.asked > 0 {
				t.Errorf("error %v, %d lists", err, live.asked)
			}
		})
	}
}

// TestSpared: which workloads stay when a gate is open.
func TestSpared(t *testing.T) {
	t.Parallel()
	driver := map[string]string{"app.kubernetes.io/component": "csi-driver"}
	nested, other := mounterPod("a"), mounterPod("b")
	for name, test := range map[string]struct {
		gate                  string
		nested                []corev1.Pod
		driver, nestedMounter bool
		otherMounter          bool
	}{
		"no volumes":                       {gates.VolumesGone, nil, false, true, true},
		"no volumes, and nested mounters":  {gates.VolumesGone, []corev1.Pod{nested}, true, false, true},
		"the nested have ended":            {gates.NestedEnded, []corev1.Pod{nested}, false, true, true},
		"the driver's pods have ended":     {gates.PodsEnded, nil, false, false, false},
		"the other mounters' have as well": {gates.MountersEnded, nil, false, false, false},
	} {
		spare := spared(test.gate, test.nested)
		is := func(labels map[string]string) bool { return spare != nil && spare(labels) }
		if is(driver) != test.driver || is(nested.Labels) != test.nestedMounter ||
			is(other.Labels) != test.otherMounter {
			t.Errorf("%s: driver %t, nested %t, other %t", name, is(driver), is(nested.Labels), is(other.Labels))
		}
	}
}
