// Package platform knows what the cluster is: its version, the APIs that it serves, and OpenShift's TLS profile. It
// keeps that knowledge fresh, and reports when it changes.
package platform

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"

	configv1 "github.com/openshift/api/config/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/discovery"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/logging"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/operator/internal/definitions"
)

// Facts are what a rendering has to know of the cluster.
type Facts struct {
	// KubeVersion is the API server's (v1.37.2).
	KubeVersion string
	// APIVersions are what it serves, sorted, as Helm names them: "apps/v1" and "apps/v1/DaemonSet".
	APIVersions []string
	// resources are the names of what it serves (daemonsets.apps).
	resources []string
}

// Serves reports whether the cluster has a kind.
func (f Facts) Serves(kind schema.GroupVersionKind) bool {
	_, found := slices.BinarySearch(f.APIVersions, kind.GroupVersion().String()+"/"+kind.Kind)
	return found
}

// Discovery asks the API server what it is.
type Discovery interface {
	ServerVersion() (*version.Info, error)
	ServerGroupsAndResources() ([]*metav1.APIGroup, []*metav1.APIResourceList, error)
}

// TLSPolicy takes OpenShift's TLS profile; nil is none. Notes say what of it cannot be followed.
type TLSPolicy interface {
	SetProfile(profile *configv1.TLSSecurityProfile)
	Notes() []string
}

// Options are what a Platform works with.
type Options struct {
	Discovery Discovery
	// Cache and Reader know the APIServer objects and the metadata of CustomResourceDefinitions; Reader works before
	// the cache runs.
	Cache  cache.Cache
	Reader client.Reader
	Policy TLSPolicy
	// Changed is called after the facts or the TLS policy have changed.
	Changed func()
	Log     *slog.Logger
}

// Platform has the facts. Every replica has one, for every replica serves TLS.
type Platform struct {
	Options
	queue workqueue.TypedRateLimitingInterface[string]

	mu    sync.Mutex
	facts Facts
	// follows says that APIServers are watched.
	follows bool
	looking sync.Mutex // the older of two looks at the TLS policy must not win
}

// New looks at the cluster for the first time.
func New(ctx context.Context, o Options) (*Platform, error) {
	limiter := workqueue.NewTypedItemExponentialFailureRateLimiter[string](retryFirst, retryMost)
	p := &Platform{Options: o, queue: workqueue.NewTypedRateLimitingQueue(limiter)}
	facts, err := p.discover()
	if err != nil {
		return nil, err
	}
	p.facts = facts
	if !facts.Serves(apiServerKind()) {
		return p, nil
	}
	// Without it the first rendering would have another policy than the second, and restart the driver for it.
	if err := p.readTLSProfile(ctx, o.Reader); err != nil {
		return nil, err
	}
	return p, nil
}

// Facts are what is known now.
func (p *Platform) Facts() Facts {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.facts
}

// NeedLeaderElection says that every replica runs this.
func (p *Platform) NeedLeaderElection() bool { return false }

// Start keeps the facts fresh until ctx ends.
func (p *Platform) Start(ctx context.Context) error {
	defer p.queue.ShutDown()
	if err := p.followDefinitions(ctx); err != nil {
		return err
	}
	if err := p.followTLSProfile(ctx); err != nil {
		return err
	}
	context.AfterFunc(ctx, p.queue.ShutDown)
	for p.workOnNext(ctx) {
	}
	return nil
}

// workOnNext looks again because of one definition. It reports false when there is nothing more to come.
func (p *Platform) workOnNext(ctx context.Context) bool {
	definition, shutdown := p.queue.Get()
	if shutdown {
		return false
	}
	defer p.queue.Done(definition)
	settled, err := p.refresh(ctx, definition)
	switch {
	case err != nil:
		p.Log.WarnContext(ctx, "cannot learn what the cluster serves; will try again", logging.KeyError, err.Error())
		p.queue.AddRateLimited(definition)
	case !settled && p.queue.NumRequeues(definition) < retries:
		p.queue.AddRateLimited(definition)
	default:
		p.queue.Forget(definition)
	}
	return true
}

// refresh looks again, and reports whether what the API server serves agrees with its definition: it takes a moment to.
func (p *Platform) refresh(ctx context.Context, definition string) (settled bool, err error) {
	facts, err := p.discover()
	if err != nil {
		return false, err
	}
	p.mu.Lock()
	changed := facts.KubeVersion != p.facts.KubeVersion || !slices.Equal(facts.APIVersions, p.facts.APIVersions)
	p.facts = facts
	p.mu.Unlock()
	if changed {
		p.Log.InfoContext(ctx, "the cluster serves other APIs than before", logging.KeyDefinition, definition)
		if err := p.followTLSProfile(ctx); err != nil {
			return false, err
		}
		p.Changed()
	}
	err = p.Cache.Get(ctx, client.ObjectKey{Name: definition}, definitions.Metadata())
	if client.IgnoreNotFound(err) != nil {
		return false, err
	}
	return slices.Contains(facts.resources, definition) != apierrors.IsNotFound(err), nil
}

// discover asks for everything. Groups that do not answer keep what they had: an API that is away for a minute must not
// change what is rendered.
func (p *Platform) discover() (Facts, error) {
	server, err := p.Discovery.ServerVersion()
	if err != nil {
		return Facts{}, fmt.Errorf("ask the API server for its version: %w", err)
	}
	_, lists, err := p.Discovery.ServerGroupsAndResources()
	failed, _ := discovery.GroupDiscoveryFailedErrorGroups(err)
	silent := slices.Collect(maps.Keys(failed))
	if err != nil && len(silent) == 0 {
		return Facts{}, fmt.Errorf("ask the API server for its resources: %w", err)
	}
	old := p.Facts()
	for _, group := range silent {
		if old.KubeVersion == "" && slices.Contains(groups(), group.Group) {
			return Facts{}, fmt.Errorf("ask the API server for its resources: %w", err)
		}
	}
	facts := readFacts(lists)
	facts.KubeVersion = server.GitVersion
	for _, known := range old.APIVersions {
		if slices.ContainsFunc(silent, func(group schema.GroupVersion) bool { return within(known, group) }) {
			facts.APIVersions = append(facts.APIVersions, known)
		}
	}
	slices.Sort(facts.APIVersions)
	facts.APIVersions = slices.Compact(facts.APIVersions)
	return facts, nil
}

// followDefinitions looks again whenever the definition of an API that matters comes, changes or goes.
func (p *Platform) followDefinitions(ctx context.Context) error {
	informer, err := p.Cache.GetInformer(ctx, definitions.Metadata())
	if err != nil {
		return fmt.Errorf("watch CustomResourceDefinitions: %w", err)
	}
	_, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc:    p.enqueue,
		UpdateFunc: func(_, changed any) { p.enqueue(changed) },
		DeleteFunc: p.enqueue,
	})
	return err
}

// enqueue waits a moment, for a definition changes several times until it is served.
func (p *Platform) enqueue(object any) {
	if tombstone, ok := object.(toolscache.DeletedFinalStateUnknown); ok {
		object = tombstone.Obj
	}
	definition, ok := object.(*metav1.PartialObjectMetadata)
	if ok && matters(definition.Name) {
		p.queue.AddAfter(definition.Name, settling)
	}
}
