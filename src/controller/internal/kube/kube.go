// Package kube is the controller's view of Kubernetes: PersistentVolumes, nodes, claims, the driver's pods, and what
// the controller writes about them. Of what it watches it keeps little, for there may be 100,000 volumes.
package kube

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	authenticationclient "k8s.io/client-go/kubernetes/typed/authentication/v1"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/leaderelection"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/buildinfo"
)

// manager is what the API knows this controller by: as the writer of fields, and the component that events come from.
const manager = "hostpath-provisioner"

// Config is what a cluster is made of; every field is required.
type Config struct {
	// API is what Connect gives.
	API                     *rest.Config
	DriverName, TopologyKey string
	// PodName and PodNamespace are the controller's own pod, Lease is the object by which replicas agree which of them
	// reports.
	PodName, PodNamespace, Lease string
	// NodeServiceAccount and NodePods are what the driver's pods on the nodes are known by; the latter is a label
	// selector.
	NodeServiceAccount, NodePods string
	// NodeLabels are the keys of the labels that nodes are asked for; there may be none.
	NodeLabels []string
	Log        *slog.Logger
	// Timeout bounds one request.
	Timeout time.Duration
}

// Cluster is Kubernetes. Errors wrap nodeapi.ErrClusterUnknown where the API does not answer.
type Cluster struct {
	Config
	api      kubernetes.Interface                      // whose requests end after Timeout
	reviews  authenticationclient.TokenReviewInterface // as many as the fleet lets through
	elector  *leaderelection.LeaderElector
	leads    atomic.Bool // until it can renew its Lease no more
	events   chan *corev1.Event
	nodeGone func(name string)

	volumes, csiNodes, pods, claims, classes cache.Indexer
	needed, others                           []cache.Controller // nothing waits for the others

	mu sync.Mutex
	// synced is when the informers had all objects. It moves on when a deletion is forgotten.
	synced time.Time
	nodes  map[string]node
}

// Connect finds the API of the cluster of a kubeconfig file, or with an empty path of the cluster that this process
// runs in. A request that waits for its turn, one of so many per second, counts as unanswered after its timeout.
func Connect(kubeconfig string, requestsPerSecond int) (*rest.Config, error) {
	read := rest.InClusterConfig
	if kubeconfig != "" {
		read = func() (*rest.Config, error) { return clientcmd.BuildConfigFromFlags("", kubeconfig) }
	}
	config, err := read()
	if err != nil {
		return nil, fmt.Errorf("find the Kubernetes API (--kubeconfig, or a service account in the cluster): %w", err)
	}
	config.UserAgent = manager + "/" + buildinfo.Version()
	config.QPS, config.Burst = float32(requestsPerSecond), 2*requestsPerSecond
	return config, nil
}

// New returns a view that is empty until it runs.
func New(c Config) (*Cluster, error) {
	if c.API == nil || c.Log == nil || c.Timeout <= 0 || slices.Contains([]string{
		c.DriverName, c.TopologyKey, c.PodName, c.PodNamespace, c.Lease, c.NodeServiceAccount, c.NodePods,
	}, "") {
		return nil, errors.New("view of Kubernetes: a field of its Config is missing")
	}
	brief := rest.CopyConfig(c.API)
	brief.Timeout = c.Timeout
	api, apiErr := kubernetes.NewForConfig(brief)
	unlimited := rest.CopyConfig(brief)
	unlimited.QPS = -1
	reviews, reviewsErr := authenticationclient.NewForConfig(unlimited)
	watched, watchedErr := kubernetes.NewForConfig(c.API)
	meta, metaErr := metadata.NewForConfig(metadata.ConfigFor(c.API))
	if err := errors.Join(apiErr, reviewsErr, watchedErr, metaErr); err != nil {
		return nil, fmt.Errorf("make a client of the Kubernetes API: %w", err)
	}
	k := &Cluster{
		Config: c, api: api, reviews: reviews.TokenReviews(), nodes: map[string]node{},
		events: make(chan *corev1.Event, eventQueue),
	}
	k.addInformers(watched, meta)
	return k, k.addElector()
}

// addInformers says what is watched, and what is kept of it.
func (c *Cluster) addInformers(api kubernetes.Interface, meta metadata.Interface) {
	core, storage, ignore := api.CoreV1().RESTClient(), api.StorageV1().RESTClient(), cache.ResourceEventHandlerFuncs{}
	list := func(from cache.Getter, resource string) *cache.ListWatch {
		return cache.NewListWatchFromClient(from, resource, metav1.NamespaceAll, fields.Everything())
	}
	c.volumes = c.inform(list(core, "persistentvolumes"), &corev1.PersistentVolume{}, ignore)
	c.csiNodes = c.inform(list(storage, "csinodes"), &storagev1.CSINode{}, ignore)
	c.inform(listNodes(meta), &metav1.PartialObjectMetadata{}, cache.ResourceEventHandlerFuncs{
		AddFunc: c.seeNode, UpdateFunc: func(_, now any) { c.seeNode(now) }, DeleteFunc: c.missNode,
	})
	watched := len(c.needed)
	c.claims = c.inform(list(core, "persistentvolumeclaims"), &corev1.PersistentVolumeClaim{}, ignore)
	c.classes = c.inform(list(storage, "storageclasses"), &storagev1.StorageClass{}, ignore)
	c.pods = c.inform(cache.NewFilteredListWatchFromClient(core, "pods", c.PodNamespace, func(o *metav1.ListOptions) {
		o.LabelSelector = c.NodePods
	}), &corev1.Pod{}, ignore)
	c.needed, c.others = c.needed[:watched], c.needed[watched:]
}

// inform adds an informer of a kind of objects.
func (c *Cluster) inform(
	objects *cache.ListWatch, kind runtime.Object, handler cache.ResourceEventHandler,
) (known cache.Indexer) {
	store, informer := cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: objects, ObjectType: kind, Handler: handler, Transform: c.strip,
		Indexers: cache.Indexers{byHandle: handles, byNode: podNodes},
	})
	c.needed = append(c.needed, informer)
	known, _ = store.(cache.Indexer) // it is one wherever there are Indexers
	return known
}

// Run watches the cluster, sends events and seeks the lead until ctx ends. It gives nodeGone the name of each Node
// object that is deleted; that must return soon.
func (c *Cluster) Run(ctx context.Context, nodeGone func(name string)) error {
	c.nodeGone = nodeGone
	var running sync.WaitGroup
	defer running.Wait()
	running.Go(func() { c.sendEvents(ctx) })
	running.Go(func() {
		for ctx.Err() == nil {
			c.elector.Run(ctx) // leads whenever no other replica does
		}
	})
	var synced []cache.InformerSynced
	for _, informer := range c.needed {
		running.Go(func() { informer.RunWithContext(ctx) })
		synced = append(synced, informer.HasSynced)
	}
	for _, informer := range c.others {
		running.Go(func() { informer.RunWithContext(ctx) })
	}
	if cache.WaitForCacheSync(ctx.Done(), synced...) {
		c.mu.Lock()
		c.synced = time.Now()
		c.mu.Unlock()
		c.Log.InfoContext(ctx, "the cluster's nodes and volumes are known")
	}
	<-ctx.Done()
	return nil
}

// Synced reports whether all PersistentVolumes, Nodes and CSINodes are known.
func (c *Cluster) Synced() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.synced.IsZero()
}
