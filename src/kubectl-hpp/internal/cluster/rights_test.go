package cluster_test

import (
	"errors"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/kubectl-hpp/internal/cluster"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/kubectl-hpp/internal/cluster/clustertest"
)

// TestMay names all rights that lack, and lets those pass who may not ask.
func TestMay(t *testing.T) {
	rights := []cluster.Right{
		{Resource: "persistentvolumes", Verbs: []string{"create", "delete"}},
		{Namespace: "shop", Resource: "pods/eviction", Verbs: []string{"create"}},
	}
	for want, lacking := range map[string][]string{
		"": nil,
		"you may not delete persistentvolumes, nor create pods/eviction in namespace shop; " +
			"docs/how-to/install-kubectl-hpp.md#who-may-use-it says which role may": {
			"delete persistentvolumes", "create pods/eviction",
		},
	} {
		got := ""
		if err := cluster.May(t.Context(), clustertest.Allow(fake.NewClientset(), lacking...), rights...); err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	cut := errors.New("the connection was cut")
	for answers, want := range map[error]error{
		apierrors.NewForbidden(schema.GroupResource{Resource: "selfsubjectaccessreviews"}, "", nil): nil, cut: cut,
	} {
		api := fake.NewClientset()
		api.PrependReactor("create", "selfsubjectaccessreviews",
			func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, answers })
		if err := cluster.May(t.Context(), api, rights...); !errors.Is(err, want) {
			t.Errorf("got %v, want %v", err, want)
		}
	}
}
