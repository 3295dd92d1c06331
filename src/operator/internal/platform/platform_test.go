package platform

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	configv1 "github.com/openshift/api/config/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/discovery"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
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

// watched is a cache that knows what one has, and tells its handler of it.
type watched struct {
	cache.Cache
	cache.Informer
	objects client.Reader
	handler toolscache.ResourceEventHandler
}

func (w *watched) Get(
	ctx context.Context, key client.ObjectKey, into client.Object, options ...client.GetOption,
) error {
	return w.objects.Get(ctx, key, into, options...)
}

func (w *watched) GetInformer(context.Context, client.Object, ...cache.InformerGetOption) (cache.Informer, error) {
	return w, nil
}

func (w *watched) AddEventHandler(
	handler toolscache.ResourceEventHandler,
) (toolscache.ResourceEventHandlerRegistration, error) {
	w.handler = handler
	return nil, nil
}

// none is a reader that has nothing.
type none struct{ client.Reader }

func (none) Get(context.Context, client.ObjectKey, client.Object, ...client.GetOption) error {
	return apierrors.NewNotFound(schema.GroupResource{}, "cluster")
}

// The policy is what the cache has: also of an APIServer that was deleted before it was watched.
func TestProfileChanges(t *testing.T) {
	t.Parallel()
	modern := &configv1.TLSSecurityProfile{Type: configv1.TLSProfileModernType}
	old := &configv1.TLSSecurityProfile{Type: configv1.TLSProfileOldType}
	policy, told, known := &profiles{}, 0, &watched{objects: none{}}
	p, err := New(t.Context(), Options{
		Discovery: &server{lists: []*metav1.APIResourceList{list("config.openshift.io/v1", "apiservers APIServer")}},
		Reader:    one{profile: modern}, Cache: known, Policy: policy,
		Changed: func() { told++ }, Log: slog.New(slog.DiscardHandler),
	})
	if err == nil {
		err = p.followTLSProfile(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	known.objects = one{profile: old}
	known.handler.OnAdd(&configv1.APIServer{}, false)
	known.objects = one{profile: modern}
	known.handler.OnUpdate(&configv1.APIServer{}, &configv1.APIServer{})
	known.objects = none{}
	known.handler.OnDelete(toolscache.DeletedFinalStateUnknown{})
	want := []*configv1.TLSSecurityProfile{modern, nil, old, modern, nil}
	if told != 4 || !slices.Equal(policy.given, want) {
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
