package kube

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	expiring "k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/client-go/tools/cache"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
)

// forgetDeleted is how long the time of a Node object's deletion is remembered: clusters that grow and shrink have ever
// new names.
const forgetDeleted = 7 * 24 * time.Hour

// Controller is the controller's view of Kubernetes. Errors wrap nodeapi.ErrClusterUnknown where the API is silent.
type Controller struct {
	requests
	volumes, csiNodes cache.Indexer
	claims, classes   cache.Indexer
	informers         []cache.Controller
	explaining        []cache.Controller // nothing but events waits for them
	nodeGone          func(name string)

	mu sync.Mutex
	// synced is when the informers had all objects. It moves on when a deletion is forgotten.
	synced  time.Time
	nodes   map[string]node
	tunnels *expiring.Expiring // whether a node's driver has one, as a bool by the node's name
}

// node is a Node object that was seen.
type node struct {
	uid     string
	labels  labels.Set // those of NodeLabels
	deleted time.Time  // zero while it is there
}

// NewController returns a controller's view, which is empty until it runs.
func NewController(config Config) (*Controller, error) {
	r, err := newRequests(config, config.PodNamespace, config.PodName, config.NodeServiceAccount, config.NodePods)
	if err != nil {
		return nil, err
	}
	c := &Controller{requests: r, nodes: map[string]node{}, tunnels: expiring.NewExpiring()}
	handler := cache.ResourceEventHandlerFuncs{}
	watch := func(from cache.Getter, resource string) *cache.ListWatch {
		return cache.NewListWatchFromClient(from, resource, metav1.NamespaceAll, fields.Everything())
	}
	core, storage := config.API.core, group{config.API.core, "/apis/storage.k8s.io/v1"}
	c.volumes = c.inform(watch(core, persistentVolumes), &persistentVolume{}, handler)
	c.csiNodes = c.inform(watch(storage, "csinodes"), &csiNode{}, handler)
	handler.AddFunc, handler.DeleteFunc = c.seeNode, c.missNode
	handler.UpdateFunc = func(_, now any) { c.seeNode(now) }
	c.inform(config.API.watchNodes(""), &metav1.PartialObjectMetadata{}, handler)
	needed := len(c.informers)
	c.claims = c.inform(watch(core, claims), &volumeClaim{}, cache.ResourceEventHandlerFuncs{})
	c.classes = c.inform(watch(storage, "storageclasses"), &storageClass{}, cache.ResourceEventHandlerFuncs{})
	c.informers, c.explaining = c.informers[:needed], c.informers[needed:]
	return c, nil
}

// Run watches the cluster and sends events until ctx ends. It gives nodeGone the name of each Node object that is
// deleted; that must return soon.
func (c *Controller) Run(ctx context.Context, nodeGone func(name string)) error {
	c.nodeGone = nodeGone
	var running sync.WaitGroup
	defer running.Wait()
	running.Go(func() { c.sendEvents(ctx) })
	var synced []cache.InformerSynced
	for _, informer := range c.informers {
		running.Go(func() { informer.RunWithContext(ctx) })
		synced = append(synced, informer.HasSynced)
	}
	for _, informer := range c.explaining {
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
func (c *Controller) Synced() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.synced.IsZero()
}

func (c *Controller) seeNode(object any) {
	if seen, ok := object.(*metav1.PartialObjectMetadata); ok {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.nodes[seen.Name] = node{uid: string(seen.UID), labels: seen.Labels}
	}
}

func (c *Controller) missNode(object any) {
	name, err := cache.DeletionHandlingMetaNamespaceKeyFunc(object)
	if err != nil {
		return
	}
	now := time.Now()
	c.mu.Lock()
	maps.DeleteFunc(c.nodes, func(_ string, n node) bool {
		forget := !n.deleted.IsZero() && now.Sub(n.deleted) > forgetDeleted
		if forget && n.deleted.After(c.synced) {
			c.synced = n.deleted
		}
		return forget
	})
	c.nodes[name] = node{uid: c.nodes[name].uid, deleted: now}
	c.mu.Unlock()
	c.nodeGone(name)
}

// NodeGone reports whether there is no such Node object, which the API confirms now, and since when: the deletion was
// seen, or this process knew all nodes.
func (c *Controller) NodeGone(ctx context.Context, name string) (since time.Time, gone bool, err error) {
	c.mu.Lock()
	n, seen := c.nodes[name]
	since = c.synced
	c.mu.Unlock()
	switch {
	case since.IsZero():
		return time.Time{}, false, fmt.Errorf("%w: not all nodes are known yet", nodeapi.ErrClusterUnknown)
	case seen && n.deleted.IsZero():
		return time.Time{}, false, nil
	case n.deleted.After(since):
		since = n.deleted
	}
	_, err = c.metadata(ctx, coreResource("nodes"), "", name)
	switch {
	case apierrors.IsNotFound(err):
		return since, true, nil
	case err != nil:
		return time.Time{}, false, fmt.Errorf("%w: get node %s: %w", nodeapi.ErrClusterUnknown, name, err)
	}
	return time.Time{}, false, nil
}

// Cluster is the UID of this cluster: that of its namespace kube-system, which lives as long as the cluster does.
func (c *Controller) Cluster(ctx context.Context) (uid string, err error) {
	namespace, err := c.metadata(ctx, coreResource("namespaces"), "", metav1.NamespaceSystem)
	if err != nil {
		return "", fmt.Errorf("%w: get namespace %s: %w", nodeapi.ErrClusterUnknown, metav1.NamespaceSystem, err)
	}
	return string(namespace.UID), nil
}

// NodesWithDriver are the nodes on which the kubelet knows the driver, of them those with these labels.
func (c *Controller) NodesWithDriver(wanted map[string]string) (nodes []string) {
	selector := labels.SelectorFromSet(wanted)
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, object := range c.csiNodes.List() {
		if k, ok := object.(*kept); ok && k.ours && selector.Matches(c.nodes[k.Name].labels) {
			nodes = append(nodes, k.Name)
		}
	}
	return nodes
}

// Get finds the PersistentVolume of this driver whose volumeHandle is id: among those known, then in the API by name,
// for one that was just made. It is nodeapi.ErrNamed where several of one handle are on different nodes, which somebody
// has made by hand: a call names the handle alone.
func (c *Controller) Get(ctx context.Context, id string) (pv nodeapi.PersistentVolume, ok bool, err error) {
	objects, err := c.volumes.ByIndex(byHandle, id)
	if err != nil {
		return pv, false, err
	}
	for _, object := range objects {
		k, is := object.(*kept)
		if is && ok && !slices.Equal(k.volume.Nodes, pv.Nodes) {
			return pv, false, fmt.Errorf("%w: PersistentVolumes %s and %s have the volumeHandle %s on different "+
				"nodes; delete one of them, its reclaim policy being Retain", nodeapi.ErrNamed, pv.Name, k.Name, id)
		}
		if is {
			pv, ok = k.volume, true
		}
	}
	if ok {
		return pv, true, nil
	}
	object, err := c.named(ctx, id)
	if err != nil || object == nil {
		if err == nil && !c.Synced() {
			err = fmt.Errorf("%w: not all PersistentVolumes are known yet", nodeapi.ErrClusterUnknown)
		}
		return pv, false, err
	}
	return object.describe(c.DriverName, c.TopologyKey), true, nil
}

// Known gives the PersistentVolumes with a volumeHandle that the informers know, by name.
func (c *Controller) Known(handle string) (all []nodeapi.PersistentVolume) {
	objects, _ := c.volumes.ByIndex(byHandle, handle) // fails only for an index that does not exist
	for _, object := range objects {
		if k, ok := object.(*kept); ok {
			all = append(all, k.volume)
		}
	}
	slices.SortFunc(all, func(a, b nodeapi.PersistentVolume) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// List gives all PersistentVolumes of this driver that are known.
func (c *Controller) List() (all []nodeapi.PersistentVolume) {
	for _, object := range c.volumes.List() {
		if k, ok := object.(*kept); ok && k.ours {
			all = append(all, k.volume)
		}
	}
	return all
}

// TellNode reports something on a Node object; kind is Normal or Warning.
func (c *Controller) TellNode(name, kind, reason, message string) {
	c.mu.Lock()
	uid := c.nodes[name].uid
	c.mu.Unlock()
	c.tell(reference{Kind: "Node", Name: name, UID: uid}, kind, reason, message)
}

// TellVolume reports something on a PersistentVolume that somebody should look at.
func (c *Controller) TellVolume(pv nodeapi.PersistentVolume, reason, message string) {
	c.tell(reference{Kind: "PersistentVolume", Name: pv.Name, UID: pv.UID}, "Warning", reason, message)
}
