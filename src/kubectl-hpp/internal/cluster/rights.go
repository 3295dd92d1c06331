package cluster

import (
	"context"
	"fmt"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// Right is what the user has to be allowed for something.
type Right struct {
	Namespace string // "" for what has none
	Group     string // "" for the core
	Resource  string // such as pods/eviction
	Verbs     []string
}

// May names the rights that the user lacks, so that nothing is begun that ends in the middle. Where the API server does
// not tell, it is nil: whatever is not allowed is refused then.
func May(ctx context.Context, api kubernetes.Interface, rights ...Right) error {
	var lacking []string
	for _, r := range rights {
		resource, sub, _ := strings.Cut(r.Resource, "/")
		for _, verb := range r.Verbs {
			asked := &authorizationv1.SelfSubjectAccessReview{}
			asked.Spec.ResourceAttributes = &authorizationv1.ResourceAttributes{
				Namespace: r.Namespace, Verb: verb, Group: r.Group, Resource: resource, Subresource: sub,
			}
			what := verb + " " + r.Resource + in(r.Namespace)
			is, err := api.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, asked, metav1.CreateOptions{})
			switch {
			case apierrors.IsForbidden(err):
				return nil
			case err != nil:
				return fmt.Errorf("ask whether you may %s: %w", what, err)
			case !is.Status.Allowed:
				lacking = append(lacking, what)
			}
		}
	}
	if len(lacking) == 0 {
		return nil
	}
	return fmt.Errorf("you may not %s; docs/how-to/install-kubectl-hpp.md#who-may-use-it says which role may",
		strings.Join(lacking, ", nor "))
}
