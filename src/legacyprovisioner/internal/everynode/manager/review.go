package manager

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/names"
)

const (
	// trusted is how long an accepted token is not reviewed again.
	trusted = time.Minute
	// maxPassed bounds how many accepted tokens are remembered; there is one provisioner.
	maxPassed = 16
	// podName is what the API says of a token that is bound to a pod that lives.
	podName = "authentication.kubernetes.io/pod-name"
)

// authenticate lets the provisioner pass: 401 to whoever shows no good token, 403 to whoever shows another's.
func (m *Manager) authenticate(r *http.Request) error {
	token, found := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !found || token == "" {
		return refusal{http.StatusUnauthorized, errors.New("show the provisioner's token")}
	}
	hash := sha256.Sum256([]byte(token))
	if m.remembered(hash) {
		return nil
	}
	if !m.reviews.Allow() {
		return refusal{http.StatusTooManyRequests, errors.New("too many tokens were shown; come again later")}
	}
	if err := m.review(r.Context(), token); err != nil {
		return err
	}
	m.remember(hash)
	return nil
}

func (m *Manager) remembered(hash [32]byte) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return time.Now().Before(m.passed[hash])
}

func (m *Manager) remember(hash [32]byte) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.passed) >= maxPassed {
		clear(m.passed)
	}
	m.passed[hash] = time.Now().Add(trusted)
}

// review asks the API whose token this is. What it answers to a stranger says nothing of what is in the token.
func (m *Manager) review(ctx context.Context, token string) error {
	answer, err := m.Client.AuthenticationV1().TokenReviews().Create(ctx, &authenticationv1.TokenReview{
		Spec: authenticationv1.TokenReviewSpec{Token: token, Audiences: []string{names.EveryNodeManager}},
	}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("ask the API whose token it is: %w", err)
	}
	account := "system:serviceaccount:" + m.Namespace + ":" + m.Account
	switch status := answer.Status; {
	case !status.Authenticated || !slices.Contains(status.Audiences, names.EveryNodeManager):
		return refusal{http.StatusUnauthorized, fmt.Errorf(
			"the API does not accept the token for the audience %s", names.EveryNodeManager,
		)}
	case status.User.Username != account:
		return refusal{
			http.StatusForbidden, fmt.Errorf("the token is that of %s, not of %s", status.User.Username, account),
		}
	case strings.Join(status.User.Extra[podName], "") == "":
		return refusal{http.StatusForbidden, errors.New("the token was made for no pod")}
	}
	return nil
}
