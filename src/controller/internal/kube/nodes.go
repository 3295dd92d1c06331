package kube

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/cache"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
)

// forgetDeleted is how long the time of a Node object's deletion is remembered: clusters that grow and shrink have ever
// new names.
const forgetDeleted = 7 * 24 * time.Hour

// node is a Node object that was seen.
type node struct {
	uid     string
	labels  labels.Set // those of NodeLabels
	deleted time.Time  // zero while it is there
}

// listNodes asks for what every object has: a Node also names all images that are there.
func listNodes(meta metadata.Interface) *cache.ListWatch {
	nodes := meta.Resource(corev1.SchemeGroupVersion.WithResource("nodes"))
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			return nodes.List(ctx, o)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return nodes.Watch(ctx, o)
		},
	}
}

func (c *Cluster) seeNode(object any) {
	if seen, ok := object.(*metav1.PartialObjectMetadata); ok {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.nodes[seen.Name] = node{uid: string(seen.UID), labels: seen.Labels}
	}
}

func (c *Cluster) missNode(object any) {
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
func (c *Cluster) NodeGone(ctx context.Context, name string) (since time.Time, gone bool, err error) {
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
	_, err = c.api.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return since, true, nil
	case err != nil:
		return time.Time{}, false, fmt.Errorf("%w: get node %s: %w", nodeapi.ErrClusterUnknown, name, err)
	}
	return time.Time{}, false, nil
}

// NodeNames are those of all Node objects that are there or were lately, and since when there has been no other, the
// zero time while not all are known.
func (c *Cluster) NodeNames() (names []string, since time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Collect(maps.Keys(c.nodes)), c.synced
}

// Cordoned reports whether pods are not to be scheduled on a node.
func (c *Cluster) Cordoned(ctx context.Context, name string) (bool, error) {
	object, err := c.api.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("%w: get node %s: %w", nodeapi.ErrClusterUnknown, name, err)
	}
	return object.Spec.Unschedulable, nil
}

// NodesWithDriver are the nodes on which the kubelet knows the driver, of them those with these labels.
func (c *Cluster) NodesWithDriver(wanted map[string]string) (nodes []string) {
	selector := labels.SelectorFromSet(wanted)
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, object := range c.csiNodes.List() {
		if n, ok := object.(*csiNode); ok && n.ours && selector.Matches(c.nodes[n.Name].labels) {
			nodes = append(nodes, n.Name)
		}
	}
	return nodes
}

// ClusterUID is the UID of this cluster: that of its namespace kube-system, which lives as long as the cluster does.
func (c *Cluster) ClusterUID(ctx context.Context) (uid string, err error) {
	namespace, err := c.api.CoreV1().Namespaces().Get(ctx, metav1.NamespaceSystem, metav1.GetOptions{})
	if err != nil {
		return "", fmt.Errorf("%w: get namespace %s: %w", nodeapi.ErrClusterUnknown, metav1.NamespaceSystem, err)
	}
	return string(namespace.UID), nil
}
