package platform

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	configv1 "github.com/openshift/api/config/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/discovery"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// server is what an API server would answer.
type server struct {
	lists  []*metav1.APIResourceList
	silent []schema.GroupVersion
	err    error
}

func (s *server) ServerVersion() (*version.Info, error) {
	return &version.Info{GitVersion: "v1.37.1"}, s.err
}

func (s *server) ServerGroupsAndResources() ([]*metav1.APIGroup, []*metav1.APIResourceList, error) {
	if len(s.silent) == 0 {
		return nil, s.lists, nil
	}
	failed := &discovery.ErrGroupDiscoveryFailed{Groups: map[schema.GroupVersion]error{}}
	for _, group := range s.silent {
		failed.Groups[group] = errors.New("away")
	}
	return nil, s.lists, failed
}

func list(groupVersion string, resources ...string) *metav1.APIResourceList {
	l := &metav1.APIResourceList{GroupVersion: groupVersion}
	for _, resource := range resources {
		name, kind, _ := strings.Cut(resource, " ")
		l.APIResources = append(l.APIResources, metav1.APIResource{Name: name, Kind: kind})
	}
	return l
}

func openshift() *metav1.APIResourceList {
	return list("security.openshift.io/v1", "securitycontextconstraints SecurityContextConstraints")
}

func core() *metav1.APIResourceList {
	return list("v1", "pods Pod", "pods/status Pod", "configmaps ConfigMap")
}

func TestFacts(t *testing.T) {
	t.Parallel()
	p, err := New(t.Context(), Options{Discovery: &server{lists: []*metav1.APIResourceList{openshift(), core()}}})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"security.openshift.io/v1",
		"security.openshift.io/v1/SecurityContextConstraints",
		"v1",
		"v1/ConfigMap",
		"v1/Pod",
	}
	if diff := cmp.Diff(want, p.Facts().APIVersions); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if p.Facts().KubeVersion != "v1.37.1" {
		t.Errorf("version %s", p.Facts().KubeVersion)
	}
	scc := schema.GroupVersionKind{Group: "security.openshift.io", Version: "v1", Kind: "SecurityContextConstraints"}
	if !p.Facts().Serves(scc) || p.Facts().Serves(scc.GroupVersion().WithKind("Other")) ||
		p.Facts().Serves(apiServerKind()) {
		t.Errorf("serves the wrong kinds: %v", p.Facts())
	}
}

// A group that does not answer for a while must not make what is rendered another; at the start it must not be guessed.
func TestSilentGroups(t *testing.T) {
	t.Parallel()
	matter, other := schema.GroupVersion{
		Group:   "security.openshift.io",
		Version: "v1",
	}, schema.GroupVersion{
		Group:   "metrics.k8s.io",
		Version: "v1beta1",
	}
	if _, err := New(t.Context(), Options{Discovery: &server{silent: []schema.GroupVersion{matter}}}); err == nil {
		t.Error("it started without knowing whether this is OpenShift")
	}
	s := &server{silent: []schema.GroupVersion{other}, lists: []*metav1.APIResourceList{openshift(), core()}}
	p, err := New(t.Context(), Options{Discovery: s})
	if err != nil {
		t.Fatalf("a group of no interest kept it from starting: %v", err)
	}
	before := p.Facts().APIVersions
	s.silent, s.lists = []schema.GroupVersion{matter, other}, []*metav1.APIResourceList{core()}
	after, err := p.discover()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(before, after.APIVersions); diff != "" {
		t.Errorf("(-before +after):\n%s", diff)
	}
	s.silent = nil
	if gone, err := p.discover(); err != nil || len(gone.APIVersions) != 3 {
		t.Errorf("what is gone for good is still there: %v, %v", gone, err)
	}
	s.err = errors.New("down")
	if _, err := p.discover(); err == nil {
		t.Error("no error although the API server is down")
	}
}

// profiles is a TLS policy that remembers what it was given.
type profiles struct {
	given []*configv1.TLSSecurityProfile
}

func (p *profiles) SetProfile(profile *configv1.TLSSecurityProfile) {
	p.given = append(p.given, profile)
}

func (p *profiles) Notes() []string { return nil }

// one is a reader that has the APIServer cluster.
type one struct {
	client.Reader
	profile *configv1.TLSSecurityProfile
}

func (o one) Get(_ context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	if key.Name != "cluster" {
		panic(key)
	}
	into.(*configv1.APIServer).Spec.TLSSecurityProfile = o.profile
	return nil
}

// The profile is known before anything is rendered.
func TestProfileAtTheStart(t *testing.T) {
	t.Parallel()
	modern := &configv1.TLSSecurityProfile{Type: configv1.TLSProfileModernType}
	policy := &profiles{}
	_, err := New(t.Context(), Options{
		Discovery: &server{lists: []*metav1.APIResourceList{list("config.openshift.io/v1", "apiservers APIServer")}},
		Reader:    one{profile: modern}, Policy: policy, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil || len(policy.given) != 1 || policy.given[0] != modern {
		t.Errorf("given %v (%v)", policy.given, err)
	}
}

// Only the APIServer that counts changes the policy, and its deletion ends it.
func TestProfileChanges(t *testing.T) {
	t.Parallel()
	policy, told := &profiles{}, 0
	p := &Platform{Options: Options{Policy: policy, Changed: func() { told++ }, Log: slog.New(slog.DiscardHandler)}}
	old := &configv1.APIServer{ObjectMeta: metav1.ObjectMeta{Name: "cluster"}}
	old.Spec.TLSSecurityProfile = &configv1.TLSSecurityProfile{Type: configv1.TLSProfileOldType}
	p.setProfile(&configv1.APIServer{ObjectMeta: metav1.ObjectMeta{Name: "other"}}, false)
	p.setProfile(old, false)
	p.setProfile(old, true)
	if told != 2 || len(policy.given) != 2 || policy.given[0] == nil || policy.given[1] != nil {
		t.Errorf("given %v, told %d times", policy.given, told)
	}
}

func TestWhatMatters(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]bool{
		"servicemonitors.monitoring.coreos.com": true, "securitycontextconstraints.security.openshift.io": true,
		"certificates.cert-manager.io": true, "volumesnapshotclasses.snapshot.storage.k8s.io": true,
		"volumegroupsnapshots.groupsnapshot.storage.k8s.io": false, "routes.route.openshift.io": false, "pods": false,
		"hostpathprovisioners.hostpathprovisioner.kubevirt.io": false,
	} {
		if got := matters(name); got != want {
			t.Errorf("%s: %t", name, got)
		}
	}
}
