// Package clustertest is for tests of what has a cluster in memory.
package clustertest

import (
	"slices"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
)

// Allow gives the user of a cluster all rights but some, each such as "create pods/eviction".
func Allow(api *fake.Clientset, but ...string) *fake.Clientset {
	answer := func(a clienttesting.Action) (bool, runtime.Object, error) {
		asked, ok := a.(clienttesting.CreateAction)
		if !ok {
			return false, nil, nil
		}
		is, ok := asked.GetObject().DeepCopyObject().(*authorizationv1.SelfSubjectAccessReview)
		if ok {
			of := is.Spec.ResourceAttributes
			what := strings.TrimSuffix(of.Verb+" "+of.Resource+"/"+of.Subresource, "/")
			is.Status.Allowed = !slices.Contains(but, what)
		}
		return ok, is, nil
	}
	api.PrependReactor("create", "selfsubjectaccessreviews", answer)
	return api
}
