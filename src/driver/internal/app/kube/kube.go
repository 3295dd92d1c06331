// Package kube is the driver's view of Kubernetes. A node's (Client) is its own labels, the PersistentVolumes of this
// driver, events on the Node object, and conditions on the driver's own pod; the controller's (Controller) is all nodes
// and volumes.
package kube

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/logging"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
)

// Config is what both views are made of.
type Config struct {
	// API is what Connect gives.
	API                     *API
	DriverName, TopologyKey string
	// NodeName is empty in the controller, which is on no node.
	NodeName string
	// PodName and PodNamespace are the driver's own pod; a node needs them for Report, the controller always.
	PodName, PodNamespace string
	// NodeServiceAccount and NodePods are what the controller knows the pods on the nodes by; the latter is a label
	// selector.
	NodeServiceAccount, NodePods string
	// NodeLabels are the keys of the labels that the controller asks nodes for.
	NodeLabels []string
	Log        *slog.Logger
	// Timeout bounds one request; a driver that waits for the API serves nobody.
	Timeout time.Duration
}

// Client is a node's view.
type Client struct {
	requests
	node atomic.Pointer[metav1.PartialObjectMetadata] // as last seen, nil before
}

// New returns a client; events go out once it runs.
func New(c Config) (*Client, error) {
	r, err := newRequests(c, c.NodeName)
	return &Client{requests: r}, err
}

// Run watches the node until ctx ends and gives its labels to learned whenever they are new.
func (c *Client) Run(ctx context.Context, learned func(labels map[string]string)) error {
	var sending sync.WaitGroup
	sending.Go(func() { c.sendEvents(ctx) })
	defer sending.Wait()
	see := func(object any) {
		node, ok := object.(*metav1.PartialObjectMetadata)
		if !ok || node.Name != c.NodeName {
			return
		}
		if before := c.node.Swap(node); before == nil || !maps.Equal(before.Labels, node.Labels) {
			c.Log.InfoContext(ctx, "learned the labels of the node", logging.KeyNode, node.Name)
			learned(maps.Clone(node.Labels))
		}
	}
	_, informer := cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: c.API.watchNodes(fields.OneTermEqualSelector(metav1.ObjectNameField, c.NodeName).String()),
		ObjectType:    &metav1.PartialObjectMetadata{},
		Handler:       cache.ResourceEventHandlerFuncs{AddFunc: see, UpdateFunc: func(_, now any) { see(now) }},
	})
	informer.RunWithContext(ctx)
	return nil
}

// Get finds the PersistentVolume of this driver whose volumeHandle is id: by name first, which is the same for all that
// external-provisioner makes, then among all.
func (c *Client) Get(ctx context.Context, id string) (pv nodeapi.PersistentVolume, ok bool, err error) {
	object, err := c.named(ctx, id)
	switch {
	case err != nil:
		return pv, false, err
	case object != nil:
		pv, err = c.describe(object)
		return pv, err == nil, err
	}
	all, err := c.List(ctx)
	for _, other := range all {
		if other.Handle == id {
			pv, ok = other, true
		}
	}
	return pv, ok, err
}

// List gives all PersistentVolumes of this driver.
func (c *Client) List(ctx context.Context) (all []nodeapi.PersistentVolume, err error) {
	var unknown error
	err = list(ctx, &c.requests, "/api/v1/"+persistentVolumes, "", func(pv *persistentVolume) {
		if pv.of(c.DriverName) {
			described, err := c.describe(pv)
			all, unknown = append(all, described), cmp.Or(unknown, err)
		}
	})
	if err = cmp.Or(err, unknown); err != nil {
		return nil, err
	}
	return all, nil
}

// OfOtherDriver gives the name of a PersistentVolume of another CSI driver whose volumeHandle is id, "" without one.
func (c *Client) OfOtherDriver(ctx context.Context, id string) (name string, err error) {
	err = list(ctx, &c.requests, "/api/v1/"+persistentVolumes, "", func(pv *persistentVolume) {
		if csi := pv.Spec.CSI; csi != nil && csi.Driver != c.DriverName && csi.VolumeHandle == id {
			name = pv.Name
		}
	})
	return name, err
}

// describe fails where a volume is placed by labels, and this node's are not known yet: it may be here.
func (c *Client) describe(pv *persistentVolume) (nodeapi.PersistentVolume, error) {
	described := pv.describe(c.DriverName, c.TopologyKey)
	if c.node.Load() == nil && pv.isByLabels(c.TopologyKey) {
		return described, fmt.Errorf("%w: PersistentVolume %s is placed by labels, and those of node %s are not known "+
			"yet", nodeapi.ErrClusterUnknown, pv.Name, c.NodeName)
	}
	described.Here = pv.isOn(c.NodeName, c.nodeLabels())
	if len(described.Nodes) == 0 { // for people, and to know that it is not everybody's
		_, described.Nodes = pv.nodes(c.TopologyKey)
	}
	return described, nil
}

// nodeLabels are this node's as a volume's affinity sees them. The kubelet sets the topology label only once it has
// registered the driver.
func (c *Client) nodeLabels() labels.Set {
	known := labels.Set{}
	if node := c.node.Load(); node != nil {
		maps.Copy(known, node.Labels)
	}
	known[c.TopologyKey] = c.NodeName
	return known
}

// Staying reports whether the driver may be back on this node. It is false where its DaemonSet is gone or on its way
// out, and where the driver may not look any more: who uninstalls it takes its rights away in the same moment.
func (c *Client) Staying(ctx context.Context, daemonSet string) bool {
	kind := schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "daemonsets"}
	object, err := c.metadata(ctx, kind, c.PodNamespace, daemonSet)
	if apierrors.IsNotFound(err) || apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) {
		return false
	}
	return err != nil || object.DeletionTimestamp.IsZero()
}

// Report makes these the conditions that the driver has on its own pod, in one request. It is a server-side apply, so
// conditions of earlier reports that are not among them go, and everybody else's stay.
func (c *Client) Report(ctx context.Context, conditions []Condition) error {
	pod := podStatus{Kind: "Pod", APIVersion: "v1", Metadata: reference{Name: c.PodName, Namespace: c.PodNamespace}}
	for _, condition := range conditions {
		condition.Message = shorten(condition.Message)
		pod.Status.Conditions = append(pod.Status.Conditions, condition)
	}
	request := c.API.core.Patch(types.ApplyYAMLPatchType).
		Namespace(c.PodNamespace).Resource("pods").Name(c.PodName).SubResource("status")
	if err := c.apply(ctx, request, pod); err != nil {
		return fmt.Errorf("apply the conditions of pod %s/%s: %w", c.PodNamespace, c.PodName, err)
	}
	return nil
}

// Standalone stands in for a cluster where there is none: no PersistentVolumes, no labels, and events go to the log.
type Standalone struct{ Log *slog.Logger }

// Get finds nothing.
func (Standalone) Get(context.Context, string) (pv nodeapi.PersistentVolume, ok bool, err error) {
	return pv, false, nil
}

// OfOtherDriver finds nothing.
func (Standalone) OfOtherDriver(context.Context, string) (string, error) { return "", nil }

// List gives nothing.
func (Standalone) List(context.Context) ([]nodeapi.PersistentVolume, error) { return nil, nil }

// Normal logs an event.
func (s Standalone) Normal(reason, message string) {
	s.Log.Info("event", logging.KeyReason, reason, logging.KeyMessage, message)
}

// Warning logs an event.
func (s Standalone) Warning(reason, message string) {
	s.Log.Warn("event", logging.KeyReason, reason, logging.KeyMessage, message)
}

// Report logs conditions.
func (s Standalone) Report(_ context.Context, conditions []Condition) error {
	for _, c := range conditions {
		s.Log.Info("condition", logging.KeyReason, c.Reason, logging.KeyMessage, c.Message)
	}
	return nil
}

// Tell logs an event on a claim.
func (s Standalone) Tell(claim nodeapi.Claim, reason, message string) {
	s.Log.Info("event", logging.KeyClaim, claim.String(), logging.KeyReason, reason, logging.KeyMessage,
		message)
}

// Run waits for ctx to end; the node has no labels.
func (Standalone) Run(ctx context.Context, learned func(labels map[string]string)) error {
	learned(nil)
	<-ctx.Done()
	return nil
}
