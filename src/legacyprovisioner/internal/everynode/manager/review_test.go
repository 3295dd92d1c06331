package manager

import (
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// TestStrangers: whoever is not the provisioner has nothing made or removed, whatever he asks for, and learns nothing.
func TestStrangers(t *testing.T) {
	const notThe = ", not of system:serviceaccount:storage:provisioner"
	const unknown = "the API does not accept the token for the audience hostpath-multihost-manager"
	for token, want := range map[string]struct {
		status int
		text   string
	}{
		"":                     {http.StatusUnauthorized, "show the provisioner's token"},
		"made up":              {http.StatusUnauthorized, unknown},
		"for another audience": {http.StatusUnauthorized, unknown},
		"another account's": {
			http.StatusForbidden, "the token is that of system:serviceaccount:shop:default" + notThe,
		},
		"another namespace's": {
			http.StatusForbidden, "the token is that of system:serviceaccount:shop:provisioner" + notThe,
		},
		"a person's": {
			http.StatusForbidden, "the token is that of admin" + notThe,
		},
		"of no pod": {http.StatusForbidden, "the token was made for no pod"},
	} {
		n := start(t)
		n.create(t, n.persistentVolume(corev1.VolumeReleased))
		fillDirectory(t, filepath.Join(n.Base, dir))
		for _, method := range []string{http.MethodPost, http.MethodDelete, http.MethodGet, http.MethodPut} {
			status, text := n.send(t, method, token, n.fields())
			n.expect(t, fmt.Sprintf("%s with the token %q", method, token), want.status, want.text, dir)(status, text)
			if token != "" && strings.Contains(text, token) {
				t.Errorf("the answer has the token %q: %s", token, text)
			}
		}
		if got := listDirectory(t, filepath.Join(n.Base, dir)); len(got) != 1 {
			t.Errorf("token %q: the data is %q", token, got)
		}
	}
}

// TestReviewsAreRare: one for many requests of the provisioner, and strangers cannot make many.
func TestReviewsAreRare(t *testing.T) {
	n := start(t)
	for range 5 {
		if status, text := n.send(t, http.MethodPost, good, n.fields()); status != http.StatusOK {
			t.Fatalf("%d %s", status, text)
		}
	}
	if n.reviews != 1 {
		t.Errorf("%d reviews of one token", n.reviews)
	}
	refused := 0
	for i := range 50 {
		status, _ := n.send(t, http.MethodPost, fmt.Sprintf("made up %d", i), n.fields())
		if status == http.StatusTooManyRequests {
			refused++
		}
	}
	if refused == 0 {
		t.Error("50 tokens that were made up were all reviewed")
	}
	if status, text := n.send(t, http.MethodPost, good, n.fields()); status != http.StatusOK {
		t.Errorf("the provisioner among strangers: %d %s", status, text)
	}
}

// TestOtherRequests of the provisioner: there are only two.
func TestOtherRequests(t *testing.T) {
	n := start(t)
	status, text := n.send(t, http.MethodGet, good, n.fields())
	n.expect(t, "GET", http.StatusMethodNotAllowed, "Method Not Allowed")(status, text)
}
