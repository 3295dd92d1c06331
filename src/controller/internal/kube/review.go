package kube

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/controller/internal/fleet"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
)

// Claimed gives the node that the token of a node's driver says it is for. Nothing of that is verified: it saves the
// API a question where a token says of itself that it is another's. Its time is left out, for clocks differ.
func (c *Cluster) Claimed(token string) (node string, err error) {
	if token == "" {
		return "", errors.New("there is no token")
	}
	var claims struct {
		Subject    string          `json:"sub"`
		Audience   json.RawMessage `json:"aud"` // a text or a list of them
		Kubernetes struct {
			Pod, Node struct{ Name string }
		} `json:"kubernetes.io"`
	}
	if err := fleet.DecodeToken(token, &claims); err != nil {
		return "", err
	}
	audiences := make([]string, 1)
	if json.Unmarshal(claims.Audience, &audiences[0]) != nil && json.Unmarshal(claims.Audience, &audiences) != nil {
		return "", errors.New("the token is for no audience")
	}
	if err := c.fits(audiences, claims.Subject); err != nil {
		return "", err
	}
	return boundTo(claims.Kubernetes.Pod.Name, claims.Kubernetes.Node.Name)
}

// account is the user that the drivers of nodes are to the API.
func (c *Cluster) account() string {
	return "system:serviceaccount:" + c.PodNamespace + ":" + c.NodeServiceAccount
}

// fits says what is wrong with whom a token is for, and whose it is.
func (c *Cluster) fits(audiences []string, user string) error {
	switch {
	case !slices.Contains(audiences, nodeapi.ControllerAudience):
		return fmt.Errorf("the token is not for the audience %s", nodeapi.ControllerAudience)
	case user != c.account():
		return fmt.Errorf("the token is that of %.256s, not of %s", user, c.account())
	}
	return nil
}

// Review asks the API whose token this is and gives the node of the pod that it was made for. An error that does not
// wrap nodeapi.ErrClusterUnknown says what is wrong with the token, and nothing of what is in it.
func (c *Cluster) Review(ctx context.Context, token string) (node string, err error) {
	if token == "" {
		return "", errors.New("there is no token")
	}
	review := &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{
		Token: token, Audiences: []string{nodeapi.ControllerAudience},
	}}
	answer, err := c.reviews.Create(ctx, review, metav1.CreateOptions{})
	if err != nil {
		return "", fmt.Errorf("%w: review a node's token: %w", nodeapi.ErrClusterUnknown, err)
	}
	if answer.Status.Error = strings.ReplaceAll(answer.Status.Error, token, "…"); !answer.Status.Authenticated {
		return "", fmt.Errorf("the API does not accept the token: %s",
			cmp.Or(answer.Status.Error, "it gives no reason"))
	}
	if err := c.fits(answer.Status.Audiences, answer.Status.User.Username); err != nil {
		return "", err
	}
	extra := func(key string) string {
		return strings.Join(answer.Status.User.Extra["authentication.kubernetes.io/"+key], ",")
	}
	return boundTo(extra("pod-name"), extra("node-name"))
}

// boundTo gives the node of a token that was made for a pod there.
func boundTo(pod, node string) (string, error) {
	switch {
	case pod == "":
		return "", errors.New("the token was made for no pod: want the one that the kubelet gives the driver's pod")
	case node == "":
		return "", errors.New("the token names no node: Kubernetes 1.30 or later is needed")
	}
	return node, nil
}
