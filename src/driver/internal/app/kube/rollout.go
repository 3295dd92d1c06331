package kube

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
)

// An upgrade from versions with a csi-provisioner on each node goes node by node.

const (
	// tunnelMemory is how long the answer about a node's pod is good.
	tunnelMemory = 10 * time.Second
	// oldCapacity selects what provisioners on nodes have published (external-provisioner, pkg/capacity:
	// DriverNameLabel, ManagedByLabel); that of the one beside the controller is managed by "external-provisioner"
	// alone.
	oldCapacity = "csi.storage.k8s.io/drivername=%s,csi.storage.k8s.io/managed-by!=external-provisioner"
)

type storageCapacity struct {
	metav1.ObjectMeta `json:"metadata"`
	NodeTopology      struct {
		MatchLabels map[string]string `json:"matchLabels"`
	} `json:"nodeTopology"`
}

// HasTunnel reports whether the driver on a node is a version that dials the controller, or none is there.
func (c *Controller) HasTunnel(ctx context.Context, node string) (bool, error) {
	if known, ok := c.tunnels.Get(node); ok {
		return known == true, nil
	}
	brief, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	pods, err := c.API.meta.Resource(coreResource("pods")).Namespace(c.PodNamespace).List(brief, metav1.ListOptions{
		LabelSelector: c.NodePods, FieldSelector: fields.OneTermEqualSelector("spec.nodeName", node).String(),
	})
	if err != nil {
		return false, fmt.Errorf("%w: list the driver's pods on node %s: %w", nodeapi.ErrClusterUnknown, node, err)
	}
	has := !slices.ContainsFunc(pods.Items, func(pod metav1.PartialObjectMetadata) bool {
		_, labelled := pod.Labels[nodeapi.TunnelLabel]
		return !labelled
	})
	c.tunnels.Set(node, has, tunnelMemory)
	return has, nil
}

// RemoveOldCapacity deletes the capacity objects that provisioners on connected nodes have left, and gives how many
// there were. Those of other nodes stay: their provisioner may run.
func (c *Controller) RemoveOldCapacity(
	ctx context.Context, connected func(node string) bool,
) (found int, err error) {
	path := "/apis/storage.k8s.io/v1/namespaces/" + c.PodNamespace + "/csistoragecapacities"
	var old []string
	err = list(ctx, &c.requests, path, fmt.Sprintf(oldCapacity, c.DriverName), func(s *storageCapacity) {
		found++
		if node := s.NodeTopology.MatchLabels[c.TopologyKey]; node != "" && connected(node) {
			old = append(old, s.Name)
		}
	})
	for _, name := range old {
		deleteErr := c.do(ctx, c.API.core.Delete().AbsPath(path, name)).Error()
		if deleteErr != nil && !apierrors.IsNotFound(deleteErr) {
			err = errors.Join(err, fmt.Errorf("delete capacity object %s: %w", name, deleteErr))
		}
	}
	return found, err
}
