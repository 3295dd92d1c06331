package kube

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/names"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/volume"
)

// tokenReview is authentication.k8s.io/v1's, as far as it is used here.
type tokenReview struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Spec       struct {
		Token     string   `json:"token"`
		Audiences []string `json:"audiences"`
	} `json:"spec"`
	Status struct {
		Authenticated bool     `json:"authenticated"`
		Error         string   `json:"error"`
		Audiences     []string `json:"audiences"`
		User          struct {
			Username string              `json:"username"`
			Extra    map[string][]string `json:"extra"`
		} `json:"user"`
	} `json:"status"`
}

// Review asks the API whose token this is and gives the node of the pod that it was made for. An error that does not
// wrap volume.ErrClusterUnknown says what is wrong with the token, and nothing of what is in it.
func (c *Controller) Review(ctx context.Context, token string) (node string, err error) {
	if token == "" {
		return "", errors.New("there is no token")
	}
	review := tokenReview{APIVersion: "authentication.k8s.io/v1", Kind: "TokenReview"}
	review.Spec.Token, review.Spec.Audiences = token, []string{names.ControllerAudience}
	body, err := json.Marshal(review)
	if err != nil {
		return "", err
	}
	var answer tokenReview
	if err := c.read(ctx, c.API.core.Post().AbsPath("/apis/authentication.k8s.io/v1/tokenreviews").Body(body),
		&answer); err != nil {
		return "", fmt.Errorf("%w: review a node's token: %w", volume.ErrClusterUnknown, err)
	}
	if answer.Status.Error = strings.ReplaceAll(answer.Status.Error, token, "…"); !answer.Status.Authenticated {
		return "", fmt.Errorf("the API does not accept the token: %s", cmp.Or(answer.Status.Error, "it gives no reason"))
	}
	return answer.node("system:serviceaccount:" + c.PodNamespace + ":" + c.NodeServiceAccount)
}

// node is where the pod is that the token of a ServiceAccount was made for.
func (r *tokenReview) node(account string) (string, error) {
	extra := func(key string) string {
		return strings.Join(r.Status.User.Extra["authentication.kubernetes.io/"+key], ",")
	}
	node := extra("node-name")
	switch {
	case !slices.Contains(r.Status.Audiences, names.ControllerAudience):
		return "", fmt.Errorf("the token is not for the audience %s", names.ControllerAudience)
	case r.Status.User.Username != account:
		return "", fmt.Errorf("the token is that of %s, not of %s", r.Status.User.Username, account)
	case extra("pod-name") == "":
		return "", errors.New("the token was made for no pod: it has to be the one that the kubelet gives the driver's pod")
	case node == "":
		return "", errors.New("the token names no node: Kubernetes 1.30 or later is needed")
	}
	return node, nil
}
