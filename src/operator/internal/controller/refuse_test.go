package controller

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/names"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/v1beta1"
)

// silent is nobody's events.
type silent struct{}

func (silent) Eventf(_, _ runtime.Object, _, _, _, _ string, _ ...any) {}

func moment() time.Time { return time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC) }

// reconcilerOf has resources in its cluster.
func reconcilerOf(t *testing.T, resources ...client.Object) *Reconciler {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := v1beta1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(resources...).WithStatusSubresource(&hpp{}).Build()
	r := New(Options{Client: c, Live: c, Ready: &gauge{}, Recorder: silent{}, Namespace: "hpp"})
	r.now = moment
	return r
}

func named(name string) *v1beta1.HostPathProvisioner {
	return &v1beta1.HostPathProvisioner{
		ObjectMeta: metav1.ObjectMeta{Name: name, Finalizers: []string{names.KubevirtFinalizer}},
	}
}

func TestRefuse(t *testing.T) {
	t.Parallel()
	const beside = "not served: the HostPathProvisioner of this cluster is hostpath-provisioner; move the spec there " +
		"and delete this one, which removes nothing from the nodes"
	const several = "not served: there are 2 HostPathProvisioners, none is named hostpath-provisioner, and only one " +
		"can be served; delete the others, which removes nothing from the nodes"
	for name, test := range map[string]struct {
		all  []string
		want map[string]string
	}{
		"the right name":     {[]string{names.CustomResource}, nil},
		"another, alone":     {[]string{"a"}, nil},
		"another beside it":  {[]string{"a", names.CustomResource}, map[string]string{"a": beside}},
		"two others":         {[]string{"a", "b"}, map[string]string{"a": several, "b": several}},
		"two others and it":  {[]string{"a", "b", names.CustomResource}, map[string]string{"a": beside, "b": beside}},
		"none left to serve": {nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var objects []client.Object
			for _, one := range test.all {
				objects = append(objects, named(one))
			}
			r := reconcilerOf(t, objects...)
			got := map[string]string{}
			for _, one := range test.all {
				resource := &hpp{}
				if err := r.Client.Get(t.Context(), client.ObjectKey{Name: one}, resource); err != nil {
					t.Fatal(err)
				}
				refused, err := r.refuse(t.Context(), resource)
				if err != nil {
					t.Fatal(err)
				}
				if err := r.Client.Get(t.Context(), client.ObjectKey{Name: one}, resource); err != nil {
					t.Fatal(err)
				}
				// One that is not served can be deleted at any time.
				if kept := len(resource.Finalizers) > 0; kept == refused {
					t.Errorf("%s: refused %v, finalizers %v", one, refused, resource.Finalizers)
				}
				condition := meta.FindStatusCondition(resource.Status.Conditions, v1beta1.Degraded)
				if (condition != nil) != refused {
					t.Errorf("%s: refused %v, condition %v", one, refused, condition)
				}
				if condition != nil {
					got[one] = condition.Message
				}
			}
			if diff := cmp.Diff(test.want, got); diff != "" && len(test.want)+len(got) > 0 {
				t.Error(diff)
			}
		})
	}
}

// Whichever resource changed, another one may be served now; a volume concerns only those that are being deleted.
func TestRequests(t *testing.T) {
	t.Parallel()
	leaving := named("b")
	leaving.DeletionTimestamp = new(metav1.NewTime(moment()))
	r := reconcilerOf(t, named("a"), leaving)
	all, err := r.resources(t.Context())
	got := requests(all, err)
	if len(got) != 2 || got[0].Name != "a" || got[1].Name != "b" {
		t.Errorf("an event wakes %v", got)
	}
	if got := r.whileDeleting(t.Context(), nil); len(got) != 1 || got[0].Name != "b" {
		t.Errorf("a volume wakes %v", got)
	}
}
