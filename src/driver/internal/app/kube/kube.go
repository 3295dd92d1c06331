// Package kube is the driver's view of Kubernetes: the node's own labels, the PersistentVolumes of this driver, events
// on the Node object, and conditions on the driver's own pod.
package kube

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/logging"
)

// Config is what a client is made of; every field is required but for the pod's.
type Config struct {
	// API is what Connect gives.
	API                               *API
	DriverName, NodeName, TopologyKey string
	// PodName and PodNamespace are the driver's own pod, for Report.
	PodName, PodNamespace string
	Log                   *slog.Logger
	// Timeout bounds one request; a driver that waits for the API serves nobody.
	Timeout time.Duration
}

// Client speaks to the Kubernetes API.
type Client struct {
	Config
	events chan *event

	mu     sync.Mutex
	labels map[string]string
	uid    types.UID // of the Node object, the node's name until that is known
}

// New returns a client; events go out once it runs.
func New(c Config) (*Client, error) {
	if c.API == nil || c.DriverName == "" || c.NodeName == "" || c.TopologyKey == "" || c.Log == nil || c.Timeout <= 0 {
		return nil, errors.New("client of Kubernetes: a field of its Config is missing")
	}
	return &Client{Config: c, events: make(chan *event, eventQueue), uid: types.UID(c.NodeName)}, nil
}

// Run watches the node until ctx ends and gives its labels to learned whenever they are new.
func (c *Client) Run(ctx context.Context, learned func(labels map[string]string)) error {
	var sending sync.WaitGroup
	sending.Go(func() { c.sendEvents(ctx) })
	defer sending.Wait()
	see := func(object any) {
		if node, ok := object.(*metav1.PartialObjectMetadata); ok && node.Name == c.NodeName && c.learn(node) {
			c.Log.InfoContext(ctx, "learned the labels of the node", logging.KeyNode, node.Name)
			learned(maps.Clone(node.Labels))
		}
	}
	_, informer := cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: c.ownNode(),
		ObjectType:    &metav1.PartialObjectMetadata{},
		Handler:       cache.ResourceEventHandlerFuncs{AddFunc: see, UpdateFunc: func(_, now any) { see(now) }},
	})
	informer.RunWithContext(ctx)
	return nil
}

// ownNode lists and watches the metadata of this node alone.
func (c *Client) ownNode() *cache.ListWatch {
	nodes := c.API.meta.Resource(schema.GroupVersionResource{Version: "v1", Resource: "nodes"})
	only := fields.OneTermEqualSelector(metav1.ObjectNameField, c.NodeName).String()
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			o.FieldSelector = only
			return nodes.List(ctx, o)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.FieldSelector = only
			return nodes.Watch(ctx, o)
		},
	}
}

// learn remembers a node; fresh reports whether its labels are others than before.
func (c *Client) learn(node *metav1.PartialObjectMetadata) (fresh bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	fresh = c.labels == nil || !maps.Equal(c.labels, node.Labels)
	c.uid = node.UID
	c.labels = maps.Clone(node.Labels)
	if c.labels == nil {
		c.labels = map[string]string{}
	}
	return fresh
}
