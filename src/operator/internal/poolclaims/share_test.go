package poolclaims

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/names"
)

const sharedClaim = "hpp-pool-local-shared"

// sharing lets all nodes of the pool have one claim.
func sharing(p *Plan) {
	p.Pools[0].PVCTemplate.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}
}

// oneClaim is the claim that they have.
func oneClaim(change ...func(*corev1.PersistentVolumeClaim)) *corev1.PersistentVolumeClaim {
	return claimFor("shared", change...)
}

// TestOneClaimForAll is made once, for nobody in particular.
func TestOneClaimForAll(t *testing.T) {
	t.Parallel()
	made := 0
	c := interceptor.NewClient(api(t), interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, options ...client.CreateOption) error {
			made++
			return c.Create(ctx, o, options...)
		},
	})
	for pass := range 2 { // the first makes it
		state := keep(t, c, plan(sharing), node("b"), node("a"), node("c"))
		if onNodes(state) != "a b c" || len(state.Problems) > 0 || made != 1 || len(state.Claims) != pass {
			t.Errorf("mounts on %q, problems %v, %d claims were made", onNodes(state), state.Problems, made)
		}
		for _, mount := range state.Mounts {
			if mount.Claim != sharedClaim || !mount.Shared || mount.Block {
				t.Errorf("mount %+v", mount)
			}
		}
		if pass == 0 {
			continue
		}
		claim := state.Claims[0]
		if claim.Node != "" || !claim.Shared || claim.Name != sharedClaim ||
			claim.Labels[names.PoolClaimLabel] != "local-hpp" || len(claim.Annotations) > 0 ||
			len(claim.OwnerReferences) > 0 || claim.Spec.AccessModes[0] != corev1.ReadWriteMany {
			t.Errorf("claim %+v", claim)
		}
	}
	if state := keep(t, c, plan(sharing)); len(state.Mounts) > 0 || len(state.Claims) != 1 {
		t.Errorf("without nodes: %+v", state)
	}
	// A node of that name has the claim of its own no more than another.
	if state := keep(t, c, plan(sharing), node("shared")); len(state.Mounts) != 1 || state.Claims[0].Node != "" {
		t.Errorf("on a node named shared: %+v", state)
	}
}

// TestOneClaimOfManyNodes: which nodes have a mounter, and what keeps them from one.
func TestOneClaimOfManyNodes(t *testing.T) {
	t.Parallel()
	elsewhere := func(c *corev1.PersistentVolumeClaim) { c.Namespace = "kubevirt" }
	strange := func(c *corev1.PersistentVolumeClaim) { c.Labels = nil }
	device := func(c *corev1.PersistentVolumeClaim) { c.Spec.VolumeMode = new(corev1.PersistentVolumeBlock) }
	ofNode := claimFor("a") // of an earlier template
	for name, test := range map[string]struct {
		plan     Plan
		there    []client.Object
		mounters []appsv1.Deployment
		nodes    []corev1.Node
		mounts   string
		problem  string // its beginning
		claims   int
	}{
		"kubevirt's, here": {
			plan: plan(sharing), there: []client.Object{oneClaim()}, nodes: []corev1.Node{node("a"), node("b")},
			mounts: "a b", claims: 1,
		},
		"kubevirt's, elsewhere": {
			plan: plan(sharing), there: []client.Object{oneClaim(elsewhere)},
			nodes:   []corev1.Node{node("a"), node("b")},
			problem: "its claim " + sharedClaim + " is in the namespace kubevirt",
		},
		"of each node before": {
			plan: plan(sharing), there: []client.Object{ofNode}, nodes: []corev1.Node{node("a"), node("b")},
			mounts: "a b", claims: 1,
		},
		"a device, as kubevirt's operator lets it be": {
			plan: plan(sharing), there: []client.Object{oneClaim(device)}, nodes: []corev1.Node{node("a"), node("b")},
			mounters: []appsv1.Deployment{mounterOn("a")}, problem: "its claim " + sharedClaim + " is a device",
			claims: 1,
		},
		"somebody's": {
			plan: plan(sharing), there: []client.Object{oneClaim(strange)}, nodes: []corev1.Node{node("a"), node("b")},
			problem: "the claim hpp/" + sharedClaim + " is there and is not the pool's",
		},
		"has lost its label, and is mounted": {
			plan: plan(sharing), there: []client.Object{oneClaim(strange)}, nodes: []corev1.Node{node("a"), node("b")},
			mounters: []appsv1.Deployment{mounterOn("a")}, mounts: "a",
			problem: "the claim hpp/" + sharedClaim + " is there and is not the pool's",
		},
		// Of the nodes that are not selected, those with a mounter keep it: a pod may use a volume there. The driver is
		// what decides about volumes, whose PersistentVolumes name no node.
		"not selected": {
			plan: plan(sharing, onNVMe), there: []client.Object{oneClaim()},
			nodes:    []corev1.Node{node("a"), node("b"), node("c", labelled("disk", "nvme"))},
			mounters: []appsv1.Deployment{mounterOn("b"), mounterOn("c")}, mounts: "c b", claims: 1,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			state := keepWith(t, api(t, test.there...), test.plan, test.mounters, test.nodes...)
			if onNodes(state) != test.mounts || len(state.Claims) != test.claims {
				t.Errorf("mounts on %q, want %q; %d claims", onNodes(state), test.mounts, len(state.Claims))
			}
			if kept := strings.HasPrefix(name, "not selected"); state.Kept != kept {
				t.Errorf("kept: %v", state.Kept)
			}
			if test.problem == "" && len(state.Problems) == 0 {
				return
			}
			if len(state.Problems) != 1 || state.Problems[0].Node != "" ||
				!strings.HasPrefix(state.Problems[0].Text, test.problem) {
				t.Errorf("problems %v, want %q", state.Problems, test.problem)
			}
		})
	}
}

// TestOneClaimThatCannotBeMade is one problem, and tried again.
func TestOneClaimThatCannotBeMade(t *testing.T) {
	t.Parallel()
	full := errors.New("exceeded quota")
	c := interceptor.NewClient(api(t), interceptor.Funcs{
		Create: func(context.Context, client.WithWatch, client.Object, ...client.CreateOption) error { return full },
	})
	state := keep(t, c, plan(sharing), node("a"), node("b"))
	want := []Problem{{"local", "", "make the claim hpp/" + sharedClaim + ": exceeded quota"}}
	if diff := cmp.Diff(want, state.Problems); diff != "" || !errors.Is(state.Failed, full) || len(state.Mounts) > 0 {
		t.Errorf("mounts %v, failed %v, problems (-want +got):\n%s", state.Mounts, state.Failed, diff)
	}
}
