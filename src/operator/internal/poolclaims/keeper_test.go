package poolclaims

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/names"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/operator/internal/gates"
)

// api is an API server with claims. A claim that is changed or removed fails the test.
func api(t *testing.T, claims ...client.Object) client.WithWatch {
	t.Helper()
	never := func(what string) error { t.Errorf("a claim is %s", what); return errors.New("no") }
	return fake.NewClientBuilder().WithScheme(clientgoscheme.Scheme).WithObjects(claims...).WithInterceptorFuncs(
		interceptor.Funcs{
			Update: func(context.Context, client.WithWatch, client.Object, ...client.UpdateOption) error {
				return never("changed")
			},
			Patch: func(context.Context, client.WithWatch, client.Object, client.Patch, ...client.PatchOption) error {
				return never("patched")
			},
			Delete: func(context.Context, client.WithWatch, client.Object, ...client.DeleteOption) error {
				return never("deleted")
			},
		}).Build()
}

func keep(t *testing.T, c client.Client, of Plan, nodes ...corev1.Node) State {
	t.Helper()
	return keepWith(t, c, of, nil, nodes...)
}

// keepWith keeps claims where there are mounters on some nodes already.
func keepWith(
	t *testing.T, c client.Client, of Plan, mounters []appsv1.Deployment, nodes ...corev1.Node,
) State {
	t.Helper()
	state, err := New(c, c, c, "hpp").Keep(t.Context(), of, Cluster{
		Nodes: nodes, Deployments: mounters, Configured: []string{"local"},
		Volumes: func(context.Context) ([]gates.Volume, error) {
			return []gates.Volume{{PV: "pv", Pool: "local", Nodes: []string{"full"}}}, nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return state
}

// onNodes are the nodes of mounts.
func onNodes(state State) string {
	var nodes []string
	for _, mount := range state.Mounts {
		nodes = append(nodes, mount.Node)
	}
	return strings.Join(nodes, " ")
}

func TestClaimsAreMadeOnce(t *testing.T) {
	t.Parallel()
	c := api(t)
	if got := onNodes(keep(t, c, plan(), node("b"), node("a"))); got != "a b" {
		t.Errorf("mounts on %q", got)
	}
	other := plan()
	other.Pools[0].PVCTemplate.StorageClassName = new("slow")
	state := keep(t, c, other, node("a"), node("b"))
	if got := onNodes(state); got != "a b" || len(state.Claims) != 2 || state.Claims[0].Node != "a" {
		t.Errorf("mounts on %q, claims %v", got, state.Claims)
	}
	claim := state.Claims[0].PersistentVolumeClaim
	want := map[string]string{
		"kubevirt.io.hostpath-provisioner/storagePool": "local-hpp", "k8s-app": "hostpath-provisioner",
		"app.kubernetes.io/managed-by": "hostpath-provisioner-operator", "app.kubernetes.io/component": "storage",
	}
	if diff := cmp.Diff(want, claim.Labels); diff != "" || len(claim.OwnerReferences) > 0 ||
		*claim.Spec.StorageClassName != "fast" || claim.Annotations[names.NodeAnnotation] != "a" {
		t.Errorf("%+v\nlabels (-want +got):\n%s", claim, diff)
	}
	// Without nodes there is nobody who has the pool; the claims stay.
	if state := keep(t, c, plan()); len(state.Mounts) > 0 || len(state.Claims) != 2 || state.Claims[0].Node != "" {
		t.Errorf("without nodes: %+v", state)
	}
}

// TestVolumesKeepTheirMounter on a node that is not selected any more.
func TestVolumesKeepTheirMounter(t *testing.T) {
	t.Parallel()
	selecting := plan(onNVMe)
	c := api(t, claimFor("full"), claimFor("empty"))
	if got := onNodes(keep(t, c, selecting, node("full"), node("empty"), node("never"))); got != "full" {
		t.Errorf("mounts on %q, want only where volumes are", got)
	}
}

// TestClaimThatLostItsLabel is a problem, and goes on being mounted: nobody can tell what is on it.
func TestClaimThatLostItsLabel(t *testing.T) {
	t.Parallel()
	stripped := func(node string) *corev1.PersistentVolumeClaim {
		return claimFor(node, func(c *corev1.PersistentVolumeClaim) { c.Labels = nil })
	}
	away := claimFor("full", func(c *corev1.PersistentVolumeClaim) { c.Namespace = "tenant" })
	for name, test := range map[string]struct {
		plan   Plan
		there  []client.Object
		nodes  []corev1.Node
		mounts string
	}{
		"selected": {
			plan(), []client.Object{stripped("a"), claimFor("b")}, []corev1.Node{node("a"), node("b")}, "a b",
		},
		"its only claim":       {plan(), []client.Object{stripped("full"), away}, []corev1.Node{node("full")}, "full"},
		"not selected, in use": {plan(onNVMe), []client.Object{stripped("full")}, []corev1.Node{node("full")}, "full"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			mounters := []appsv1.Deployment{mounterOn("a"), mounterOn("full")}
			state := keepWith(t, api(t, test.there...), test.plan, mounters, test.nodes...)
			if onNodes(state) != test.mounts || len(state.Problems) != 1 ||
				!strings.Contains(state.Problems[0].Text, "is not the pool's") {
				t.Errorf("mounts on %q, problems %v", onNodes(state), state.Problems)
			}
		})
	}
}

func TestWhatIsInTheWay(t *testing.T) {
	t.Parallel()
	in := func(namespace string) func(*corev1.PersistentVolumeClaim) {
		return func(c *corev1.PersistentVolumeClaim) { c.Namespace = namespace }
	}
	other := func(c *corev1.PersistentVolumeClaim) {
		c.Name, c.Labels[names.PoolClaimLabel] = "hpp-pool-other-a", "other-hpp"
	}
	strange := func(c *corev1.PersistentVolumeClaim) { c.Labels = nil }
	const long = "a-name-of-a-node-that-does-not-fit-into-a-claim.example.com"
	for name, test := range map[string]struct {
		there  []client.Object
		nodes  []corev1.Node
		mounts string
		want   []Problem // the text's beginning
	}{
		"kubevirt's, here": {
			there: []client.Object{claimFor("a"), claimFor(long)}, nodes: []corev1.Node{node("a"), node(long)},
			mounts: "a " + long,
		},
		"kubevirt's, elsewhere": {
			there: []client.Object{claimFor("b", in("kubevirt"))}, nodes: []corev1.Node{node("a"), node("b")},
			want: []Problem{{"local", "", "its claim hpp-pool-local-b is in the namespace kubevirt"}},
		},
		"here and elsewhere": {
			there: []client.Object{claimFor("b", in("old")), claimFor("b")}, nodes: []corev1.Node{node("b")},
			mounts: "b",
		},
		// A tenant can make those, and the pool has begun here.
		"here, and another elsewhere": {
			there: []client.Object{claimFor("a"), claimFor("b", in("old"))}, nodes: []corev1.Node{node("a"), node("b")},
			mounts: "a b",
		},
		"another pool's here, its own elsewhere": {
			there: []client.Object{claimFor("a", other), claimFor("b", in("old"))}, nodes: []corev1.Node{node("b")},
			want: []Problem{{"local", "", "its claim hpp-pool-local-b is in the namespace old"}},
		},
		"somebody's": {
			there: []client.Object{claimFor("a", strange)}, nodes: []corev1.Node{node("a"), node("b")},
			mounts: "b",
			want:   []Problem{{"local", "a", "the claim hpp/hpp-pool-local-a is there and is not the pool's"}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := api(t, test.there...)
			state := keep(t, c, plan(), test.nodes...)
			if got := onNodes(state); got != test.mounts {
				t.Errorf("mounts on %q, want %q", got, test.mounts)
			}
			if len(state.Problems) != len(test.want) {
				t.Fatalf("problems %v", state.Problems)
			}
			for i, got := range state.Problems {
				if want := test.want[i]; got.Pool != want.Pool || got.Node != want.Node ||
					!strings.HasPrefix(got.Text, want.Text) {
					t.Errorf("problem %v, want %v", got, want)
				}
			}
			var after corev1.PersistentVolumeClaimList
			if err := c.List(t.Context(), &after, client.InNamespace("hpp")); err != nil {
				t.Fatal(err)
			}
			of := slices.DeleteFunc(after.Items,
				func(c corev1.PersistentVolumeClaim) bool { return !belongs(&c, "local") })
			if len(of) != len(strings.Fields(test.mounts)) {
				t.Errorf("%d claims here of the pool", len(of))
			}
		})
	}
}

// TestClaimThatCannotBeMade is tried again, and keeps the others from nothing.
func TestClaimThatCannotBeMade(t *testing.T) {
	t.Parallel()
	full := errors.New("exceeded quota")
	c := interceptor.NewClient(api(t), interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, options ...client.CreateOption) error {
			if o.GetName() == "hpp-pool-local-a" {
				return full
			}
			return c.Create(ctx, o, options...)
		},
	})
	state := keep(t, c, plan(), node("a"), node("b"))
	want := []Problem{{"local", "a", "make the claim hpp/hpp-pool-local-a: exceeded quota"}}
	if diff := cmp.Diff(want, state.Problems); diff != "" || !errors.Is(state.Failed, full) || onNodes(state) != "b" {
		t.Errorf("mounts on %q, failed %v, problems (-want +got):\n%s", onNodes(state), state.Failed, diff)
	}
}

// TestNothingIsKnown: what could not be looked up must not look as if there were no claims.
func TestNothingIsKnown(t *testing.T) {
	t.Parallel()
	away := errors.New("the API server is away")
	c := interceptor.NewClient(api(t), interceptor.Funcs{
		List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error { return away },
	})
	_, err := New(c, c, c, "hpp").Keep(t.Context(), plan(), Cluster{Nodes: []corev1.Node{node("a")}})
	if !errors.Is(err, away) {
		t.Errorf("error %v", err)
	}
}

// TestNamesThatCollide: two nodes whose shortened names are the same do not get one claim.
func TestNamesThatCollide(t *testing.T) {
	t.Parallel()
	c := api(t)
	keeper := New(c, c, c, "hpp")
	var state State
	keeper.provide(t.Context(), &state, provision{template: template(), mounter: Cluster{}.mounter, mounts: []Mount{
		{Pool: "local", Node: "a", Claim: "hpp-pool-1"}, {Pool: "local", Node: "b", Claim: "hpp-pool-1"},
	}})
	if onNodes(state) != "a" || len(state.Problems) != 1 || state.Problems[0].Node != "b" {
		t.Errorf("mounts on %q, problems %v", onNodes(state), state.Problems)
	}
}

func TestLeft(t *testing.T) {
	t.Parallel()
	var all []client.Object
	for name := range strings.FieldsSeq("a b c d e f g h i j k l") {
		all = append(all, claimFor(name))
	}
	foreign := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "hpp", Name: "another"}}
	c := api(t, append(all, foreign)...)
	left, err := New(c, c, c, "hpp").DescribeLeft(t.Context())
	if err != nil || !strings.Contains(left, "hpp-pool-local-a, ") || !strings.Contains(left, "j and 2 more") ||
		strings.Contains(left, "another") {
		t.Errorf("%v: %s", err, left)
	}
	if left, err := New(c, c, c, "empty").DescribeLeft(t.Context()); left != "" || err != nil {
		t.Errorf("%v: %s", err, left)
	}
}
