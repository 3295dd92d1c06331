package kube_test

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/controller/internal/kube"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
)

const (
	claimPath   = "/api/v1/namespaces/shop/persistentvolumeclaims/data"
	secretsPath = "/api/v1/namespaces/storage/secrets"
	mapPath     = "/api/v1/namespaces/storage/configmaps/hpp-controller-ca"
)

func claim() nodeapi.Claim { return nodeapi.Claim{Namespace: "shop", Name: "data", UID: "77"} }

// claims is a claim of the API; others change it before each of the first patches.
func claims(t *testing.T, a *api, others ...string) *metav1.ObjectMeta {
	t.Helper()
	object := &metav1.ObjectMeta{Namespace: "shop", Name: "data", UID: "77", ResourceVersion: "1"}
	change := func(node string) {
		version, _ := strconv.Atoi(object.ResourceVersion)
		object.ResourceVersion = strconv.Itoa(version + 1)
		if node != "" {
			object.Annotations = map[string]string{"volume.kubernetes.io/selected-node": node}
		}
	}
	a.on("GET "+claimPath, func(w http.ResponseWriter, r *http.Request) {
		give(corev1.PersistentVolumeClaim{ObjectMeta: *object})(w, r)
	})
	a.on("PATCH "+claimPath, func(w http.ResponseWriter, r *http.Request) {
		if len(others) > 0 {
			change(others[0])
			others = others[1:]
		}
		var patch struct{ Metadata metav1.ObjectMeta }
		if err := json.NewDecoder(r.Body).Decode(&patch); err != nil ||
			r.Header.Get("Content-Type") != "application/merge-patch+json" {
			t.Errorf("patch: %v, %v", err, r.Header)
		}
		if patch.Metadata.UID != object.UID || patch.Metadata.ResourceVersion != object.ResourceVersion {
			fail(http.StatusConflict, metav1.StatusReasonConflict)(w, r)
			return
		}
		change(patch.Metadata.Annotations["volume.kubernetes.io/selected-node"])
		give(corev1.PersistentVolumeClaim{ObjectMeta: *object})(w, r)
	})
	return object
}

func TestSelectNode(t *testing.T) {
	for name, test := range map[string]struct {
		others []string
		want   string
	}{
		"alone":                         {nil, "worker-1"},
		"others change something else":  {[]string{"", ""}, "worker-1"},
		"the scheduler was first":       {[]string{"worker-2"}, "worker-2"},
		"another change, then selected": {[]string{"", "worker-2"}, "worker-2"},
	} {
		a := serveAPI(t)
		object := claims(t, a, test.others...)
		c := controllerOf(t, a)
		if node, found, err := c.SelectedNode(t.Context(), claim()); node != "" || !found || err != nil {
			t.Errorf("%s: at first %q, %v, %v", name, node, found, err)
		}
		for range 2 { // the second time it is selected
			node, err := c.SelectNode(t.Context(), claim(), "worker-1")
			noted := object.Annotations["volume.kubernetes.io/selected-node"]
			if err != nil || node != test.want || noted != test.want {
				t.Errorf("%s: %q, %v; want %q", name, node, err, test.want)
			}
		}
		if node, found, err := c.SelectedNode(t.Context(), claim()); node != test.want || !found || err != nil {
			t.Errorf("%s: at last %q, %v, %v", name, node, found, err)
		}
	}
}

func TestSelectNodeFails(t *testing.T) {
	for name, test := range map[string]struct {
		prepare func(a *api)
		want    error
	}{
		"no claim": {func(*api) {}, nil},
		"another claim": {func(a *api) {
			a.on("GET "+claimPath, give(corev1.PersistentVolumeClaim{
				ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "data", UID: "78"},
			}))
		}, nil},
		"deleted meanwhile": {func(a *api) {
			claims(t, a)
			a.on("PATCH "+claimPath, func(w http.ResponseWriter, r *http.Request) {
				a.on("GET "+claimPath, nil)
				fail(http.StatusNotFound, metav1.StatusReasonNotFound)(w, r)
			})
		}, nil},
		"the API is silent": {func(a *api) { a.on("GET "+claimPath, silent()) }, nodeapi.ErrClusterUnknown},
		"no patch": {func(a *api) {
			claims(t, a)
			a.on("PATCH "+claimPath, silent())
		}, nodeapi.ErrClusterUnknown},
		"others always": {func(a *api) { claims(t, a, make([]string, 99)...) }, nodeapi.ErrClusterUnknown},
	} {
		a := serveAPI(t)
		test.prepare(a)
		node, err := controllerOf(t, a).SelectNode(t.Context(), claim(), "worker-1")
		if node != "" || !errors.Is(err, test.want) || err != nil && !strings.Contains(err.Error(), "shop/data") {
			t.Errorf("%s: %q, %v; want %v", name, node, err, test.want)
		}
	}
}

func TestReview(t *testing.T) {
	const account = "system:serviceaccount:storage:hpp"
	bound := func(keys ...string) map[string]authenticationv1.ExtraValue {
		extra := map[string]authenticationv1.ExtraValue{}
		for i := 0; i < len(keys); i += 2 {
			extra["authentication.kubernetes.io/"+keys[i]] = authenticationv1.ExtraValue{keys[i+1]}
		}
		return extra
	}
	good := func() authenticationv1.TokenReviewStatus {
		return authenticationv1.TokenReviewStatus{
			Authenticated: true, Audiences: []string{nodeapi.ControllerAudience},
			User: authenticationv1.UserInfo{
				Username: account,
				Extra:    bound("pod-name", "hpp-x", "node-name", "worker-1"),
			},
		}
	}
	for name, test := range map[string]struct {
		change func(*authenticationv1.TokenReviewStatus)
		says   string
	}{
		"good": {func(*authenticationv1.TokenReviewStatus) {}, ""},
		"expired": {func(s *authenticationv1.TokenReviewStatus) {
			s.Authenticated, s.Error = false, "service account token has expired: s3cret"
		}, "service account token has expired: …"},
		"no reason": {func(s *authenticationv1.TokenReviewStatus) { s.Authenticated = false }, "no reason"},
		"audiences are unknown to the API": {
			func(s *authenticationv1.TokenReviewStatus) { s.Audiences = nil },
			"not for the audience " + nodeapi.ControllerAudience,
		},
		"another account": {
			func(s *authenticationv1.TokenReviewStatus) { s.User.Username = "system:serviceaccount:shop:hpp" },
			"that of system:serviceaccount:shop:hpp, not of " + account,
		},
		"no pod": {
			func(s *authenticationv1.TokenReviewStatus) { s.User.Extra = bound("node-name", "worker-1") },
			"no pod",
		},
		"no node": {func(s *authenticationv1.TokenReviewStatus) { s.User.Extra = bound("pod-name", "x") }, "1.30"},
	} {
		a := serveAPI(t)
		a.on("POST /apis/authentication.k8s.io/v1/tokenreviews", func(w http.ResponseWriter, r *http.Request) {
			var review authenticationv1.TokenReview
			decoder := json.NewDecoder(r.Body)
			if err := decoder.Decode(&review); err != nil || review.Spec.Token != "s3cret" ||
				!slices.Equal(review.Spec.Audiences, []string{nodeapi.ControllerAudience}) {
				t.Errorf("asked %+v, %v", review.Spec, err)
			}
			review.Status = good()
			test.change(&review.Status)
			w.WriteHeader(http.StatusCreated)
			give(review)(w, r)
		})
		node, err := controllerOf(t, a).Review(t.Context(), "s3cret")
		if test.says == "" {
			if node != "worker-1" || err != nil {
				t.Errorf("%s: %q, %v", name, node, err)
			}
			continue
		}
		if node != "" || err == nil || !strings.Contains(err.Error(), test.says) ||
			strings.Contains(err.Error(), "s3cret") ||
			errors.Is(err, nodeapi.ErrClusterUnknown) {
			t.Errorf("%s: %q, %v; want %q", name, node, err, test.says)
		}
	}
}

// TestClaimed: what a token says of itself decides whether the API is asked about it.
func TestClaimed(t *testing.T) {
	const account = "system:serviceaccount:storage:hpp"
	for name, test := range map[string]struct{ claims, says string }{
		"good": {
			`{"aud":["AUD"],"sub":"SUB","kubernetes.io":{"pod":{"name":"x"},"node":{"name":"worker-1"}}}`, "",
		},
		"audience a text": {
			`{"aud":"AUD","sub":"SUB","kubernetes.io":{"pod":{"name":"x"},"node":{"name":"worker-1"}}}`,
			"",
		},
		"no pod": {
			`{"aud":"AUD","sub":"SUB","kubernetes.io":{"node":{"name":"worker-1"}}}`,
			"made for no pod",
		},
		"no node":        {`{"aud":"AUD","sub":"SUB","kubernetes.io":{"pod":{"name":"x"}}}`, "1.30"},
		"no audience":    {`{"sub":"SUB"}`, "for no audience"},
		"other audience": {`{"aud":["api"],"sub":"SUB"}`, "not for the audience " + nodeapi.ControllerAudience},
		"other account": {
			`{"aud":["AUD"],"sub":"system:serviceaccount:shop:hpp"}`, "that of system:serviceaccount:shop:hpp",
		},
		"no object": {`[]`, "no JSON web token"},
	} {
		claims := strings.NewReplacer("AUD", nodeapi.ControllerAudience, "SUB", account).Replace(test.claims)
		token := "e30." + base64.RawURLEncoding.EncodeToString([]byte(claims)) + ".x"
		node, err := controllerOf(t, serveAPI(t)).Claimed(token)
		if test.says == "" && (node != "worker-1" || err != nil) ||
			test.says != "" && (err == nil || !strings.Contains(err.Error(), test.says)) {
			t.Errorf("%s: %q, %v; want %q", name, node, err, test.says)
		}
	}
	for _, token := range []string{"", "x", "a.b.c"} {
		if _, err := controllerOf(t, serveAPI(t)).Claimed(token); err == nil {
			t.Errorf("%q may be a token", token)
		}
	}
}

func TestReviewWithoutAnswer(t *testing.T) {
	a := serveAPI(t)
	a.on("POST /apis/authentication.k8s.io/v1/tokenreviews", silent())
	_, err := controllerOf(t, a).Review(t.Context(), "s3cret")
	if !errors.Is(err, nodeapi.ErrClusterUnknown) || strings.Contains(err.Error(), "s3cret") {
		t.Errorf("the API is silent: %v", err)
	}
	if _, err := controllerOf(t, a).Review(t.Context(), ""); err == nil || errors.Is(err, nodeapi.ErrClusterUnknown) {
		t.Errorf("no token: %v", err)
	}
}

// filled is an object that the chart has made, without data.
type filled struct {
	Metadata struct {
		ResourceVersion string `json:"resourceVersion"`
	} `json:"metadata"`
	Data map[string]any `json:"data"`
}

// patches takes merge patches of an object: only data, and of the version that was read.
func patches(t *testing.T, a *api, path string) {
	t.Helper()
	object := filled{}
	object.Metadata.ResourceVersion = "v"
	a.on("GET "+path, func(w http.ResponseWriter, r *http.Request) { give(object)(w, r) })
	a.on("PATCH "+path, func(w http.ResponseWriter, r *http.Request) {
		var patch filled
		decoder := json.NewDecoder(r.Body)
		decoder.DisallowUnknownFields()
		if err := decoder.Decode(&patch); err != nil ||
			r.Header.Get("Content-Type") != "application/merge-patch+json" ||
			r.URL.Query().Get("fieldManager") == "" {
			t.Errorf("patch: %v, %v, %v", err, r.Header, r.URL)
		}
		if patch.Metadata != object.Metadata {
			fail(http.StatusConflict, metav1.StatusReasonConflict)(w, r)
			return
		}
		object.Data = patch.Data
		object.Metadata.ResourceVersion += "v"
		give(object)(w, r)
	})
}

func TestSecret(t *testing.T) {
	a := serveAPI(t)
	c := controllerOf(t, a)
	if data, version, err := c.Secret(t.Context(), "cert"); data != nil || version != "" || err != nil {
		t.Errorf("none: %v, %q, %v", data, version, err)
	}
	err := c.WriteSecret(t.Context(), "cert", "v", nil)
	if err == nil || !strings.Contains(err.Error(), "upgrade the release") {
		t.Errorf("none: %v", err)
	}
	patches(t, a, secretsPath+"/cert")
	a.on("GET "+secretsPath+"/other", silent())
	data, version, err := c.Secret(t.Context(), "cert")
	if data != nil || version != "v" || err != nil {
		t.Errorf("empty: %v, %q, %v", data, version, err)
	}
	if err := c.WriteSecret(t.Context(), "cert", version, map[string][]byte{"tls.key": []byte("one")}); err != nil {
		t.Error(err)
	}
	if err := c.WriteSecret(t.Context(), "cert", version, nil); !apierrors.IsConflict(err) {
		t.Errorf("another replica was first: %v", err)
	}
	data, version, err = c.Secret(t.Context(), "cert")
	if string(data["tls.key"]) != "one" || version != "vv" || err != nil {
		t.Errorf("read %q, %q, %v", data, version, err)
	}
	if _, _, err := c.Secret(t.Context(), "other"); err == nil {
		t.Error("the API is silent")
	}
}

func TestIdentities(t *testing.T) {
	a := serveAPI(t)
	ids := kube.Identities{Cluster: controllerOf(t, a), Name: "ids"}
	if _, _, err := ids.Load(t.Context()); err == nil || !strings.Contains(err.Error(), "upgrade the release") {
		t.Errorf("none: %v", err)
	}
	patches(t, a, "/api/v1/namespaces/storage/configmaps/ids")
	known, version, err := ids.Load(t.Context())
	if diff := cmp.Diff(map[string]string{}, known); diff != "" || err != nil {
		t.Errorf("empty: %v (-want +got):\n%s", err, diff)
	}
	if err := ids.Store(t.Context(), version, map[string]string{"local": "one"}); err != nil {
		t.Error(err)
	}
	if err := ids.Store(t.Context(), version, nil); !apierrors.IsConflict(err) {
		t.Errorf("another controller was first: %v", err)
	}
	known, _, err = ids.Load(t.Context())
	if diff := cmp.Diff(map[string]string{"local": "one"}, known); diff != "" || err != nil {
		t.Errorf("stored: %v (-want +got):\n%s", err, diff)
	}
}

func TestConfigMap(t *testing.T) {
	a := serveAPI(t)
	c := controllerOf(t, a)
	if data, err := c.ConfigMap(t.Context(), "hpp-controller-ca"); data != nil || err != nil {
		t.Errorf("none: %v, %v", data, err)
	}
	a.on("PATCH "+mapPath, func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil || r.Header.Get("Content-Type") != "application/merge-patch+json" {
			t.Errorf("patch: %v, %v", err, r.Header)
		}
		var object corev1.ConfigMap
		if err := json.Unmarshal(body, &object); err != nil || strings.Contains(string(body), "resourceVersion") {
			t.Errorf("patch %s: %v", body, err)
		}
		a.on("GET "+mapPath, give(object))
		give(object)(w, r)
	})
	for _, authority := range []string{"one", "two"} {
		if err := c.WriteConfigMap(t.Context(), "hpp-controller-ca",
			map[string]string{"ca.crt": authority}); err != nil {
			t.Error(err)
		}
		data, err := c.ConfigMap(t.Context(), "hpp-controller-ca")
		if data["ca.crt"] != authority || err != nil {
			t.Errorf("%s: %v, %v", authority, data, err)
		}
	}
	a.on("GET "+mapPath, silent())
	a.on("PATCH "+mapPath, silent())
	_, err := c.ConfigMap(t.Context(), "hpp-controller-ca")
	if writeErr := c.WriteConfigMap(t.Context(), "hpp-controller-ca", nil); err == nil || writeErr == nil {
		t.Errorf("the API is silent: %v, %v", err, writeErr)
	}
}
