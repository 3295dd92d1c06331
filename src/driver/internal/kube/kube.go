// Package kube is the node's view of Kubernetes: the labels of its own Node, the PersistentVolumes of this driver, and
// two objects by name. It writes nothing.
package kube

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/persistentvolume"
)

const (
	persistentVolumes = "/api/v1/persistentvolumes"
	// page is how many objects are asked for at a time.
	page = 500
)

// Config is what a client is made of; every field is required.
type Config struct {
	API                               *API
	DriverName, NodeName, TopologyKey string
	// PodNamespace is that of the driver's pod.
	PodNamespace string
	Log          *slog.Logger
	// Timeout bounds one request; a driver that waits for the API serves nobody.
	Timeout time.Duration
}

// Client is what a node asks. Errors wrap nodeapi.ErrClusterUnknown where the API does not answer.
type Client struct {
	Config
	node atomic.Pointer[metav1.PartialObjectMetadata] // as last seen, nil before
}

// New returns a client that has seen nothing yet.
func New(c Config) (*Client, error) {
	if c.API == nil || c.Log == nil || c.Timeout <= 0 ||
		slices.Contains([]string{c.DriverName, c.NodeName, c.TopologyKey, c.PodNamespace}, "") {
		return nil, errors.New("view of Kubernetes: a field of its Config is missing")
	}
	return &Client{Config: c}, nil
}

// read makes one request, which must be answered in time.
func (c *Client) read(ctx context.Context, path, accept string, query url.Values, into any) error {
	brief, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	return c.API.read(brief, path, accept, query, into)
}

// Get finds the PersistentVolume of this driver whose volumeHandle is id: by name first, which is the same for all that
// external-provisioner makes, then among all.
func (c *Client) Get(ctx context.Context, id string) (pv nodeapi.PersistentVolume, ok bool, err error) {
	var object corev1.PersistentVolume
	err = c.read(ctx, persistentVolumes+"/"+url.PathEscape(id), asObject, nil, &object)
	switch {
	case err == nil && persistentvolume.IsOf(&object, c.DriverName) && object.Spec.CSI.VolumeHandle == id:
		pv, err = c.describe(&object)
		return pv, err == nil, err
	case err != nil && !apierrors.IsNotFound(err) && !apierrors.IsInvalid(err):
		return pv, false, fmt.Errorf("%w: get PersistentVolume %s: %w", nodeapi.ErrClusterUnknown, id, err)
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
	err = c.eachVolume(ctx, func(pv *corev1.PersistentVolume) error {
		if !persistentvolume.IsOf(pv, c.DriverName) {
			return nil
		}
		described, err := c.describe(pv)
		all = append(all, described)
		return err
	})
	if err != nil {
		return nil, err
	}
	return all, nil
}

// OfOtherDriver gives the name of a PersistentVolume of another CSI driver whose volumeHandle is id, "" without one.
func (c *Client) OfOtherDriver(ctx context.Context, id string) (name string, err error) {
	err = c.eachVolume(ctx, func(pv *corev1.PersistentVolume) error {
		if csi := pv.Spec.CSI; csi != nil && csi.Driver != c.DriverName && csi.VolumeHandle == id {
			name = pv.Name
		}
		return nil
	})
	return name, err
}

// eachVolume visits all PersistentVolumes, page by page, until an error.
func (c *Client) eachVolume(ctx context.Context, visit func(*corev1.PersistentVolume) error) error {
	query := url.Values{"limit": {strconv.Itoa(page)}}
	for {
		var list corev1.PersistentVolumeList
		if err := c.read(ctx, persistentVolumes, asObject, query, &list); err != nil {
			return fmt.Errorf("%w: list PersistentVolumes: %w", nodeapi.ErrClusterUnknown, err)
		}
		for i := range list.Items {
			if err := visit(&list.Items[i]); err != nil {
				return err
			}
		}
		if list.Continue == "" {
			return nil
		}
		query.Set("continue", list.Continue)
	}
}

// describe fails where a volume is placed by labels, and this node's are not known yet: it may be here.
func (c *Client) describe(pv *corev1.PersistentVolume) (nodeapi.PersistentVolume, error) {
	described := persistentvolume.Describe(pv, c.DriverName, c.TopologyKey)
	if c.node.Load() == nil && persistentvolume.IsByLabels(pv, c.TopologyKey) {
		return described, fmt.Errorf("%w: PersistentVolume %s is placed by labels, and those of node %s are not known "+
			"yet", nodeapi.ErrClusterUnknown, pv.Name, c.NodeName)
	}
	described.Here = persistentvolume.IsOn(pv, c.NodeName, c.nodeLabels())
	if len(described.Nodes) == 0 { // for people, and to know that it is not everybody's
		_, described.Nodes = persistentvolume.Nodes(pv, c.TopologyKey)
	}
	return described, nil
}

// nodeLabels are this node's as a volume's affinity sees them. The kubelet sets the topology label only once it has
// registered the driver.
func (c *Client) nodeLabels() map[string]string {
	known := map[string]string{}
	if node := c.node.Load(); node != nil {
		maps.Copy(known, node.Labels)
	}
	known[c.TopologyKey] = c.NodeName
	return known
}

// Staying reports whether the driver may be back on this node. It is false where its DaemonSet is gone or on its way
// out, and where the driver may not look any more: who uninstalls it takes its rights away in the same moment.
func (c *Client) Staying(ctx context.Context, daemonSet string) bool {
	var object metav1.PartialObjectMetadata
	err := c.read(ctx, "/apis/apps/v1/namespaces/"+c.PodNamespace+"/daemonsets/"+daemonSet, asMetadata, nil, &object)
	if apierrors.IsNotFound(err) || apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) {
		return false
	}
	return err != nil || object.DeletionTimestamp.IsZero()
}

// ConfigMap gives what a ConfigMap of the driver's namespace has, nil where there is none.
func (c *Client) ConfigMap(ctx context.Context, name string) (map[string]string, error) {
	var object corev1.ConfigMap
	err := c.read(ctx, "/api/v1/namespaces/"+c.PodNamespace+"/configmaps/"+name, asObject, nil, &object)
	if err != nil && !apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("get ConfigMap %s/%s: %w", c.PodNamespace, name, err)
	}
	return object.Data, nil
}
