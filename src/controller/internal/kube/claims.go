package kube

import (
	"context"
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
)

const (
	// selectedNode is the scheduler's annotation on a claim (component-helpers/storage/volume, AnnSelectedNode).
	selectedNode = "volume.kubernetes.io/selected-node"
	// selectAttempts are enough for others that write the same claim: they are few.
	selectAttempts = 5
)

// SelectedNode is the node that is selected for a claim, "" without one; found is false where the claim is gone, or
// another one of that name is there.
func (c *Cluster) SelectedNode(ctx context.Context, claim nodeapi.Claim) (node string, found bool, err error) {
	object, err := c.Claim(ctx, claim)
	if err != nil || object == nil {
		return "", false, err
	}
	return object.Annotations[selectedNode], true, nil
}

// SelectNode selects a node for a claim unless one is selected, and gives the one that is. From then on everybody who
// makes this volume makes it there. It gives "" where the claim is gone.
func (c *Cluster) SelectNode(ctx context.Context, claim nodeapi.Claim, node string) (selected string, err error) {
	for range selectAttempts {
		object, getErr := c.Claim(ctx, claim)
		if getErr != nil || object == nil {
			return "", getErr
		}
		if selected = object.Annotations[selectedNode]; selected != "" {
			return selected, nil
		}
		if err = c.selectNode(ctx, object, node); err == nil {
			return node, nil
		}
		if !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
			break
		}
	}
	return "", fmt.Errorf("%w: select node %s for claim %s/%s: %w", nodeapi.ErrClusterUnknown, node, claim.Namespace,
		claim.Name, err)
}

// selectNode writes the annotation if the claim is as it was read.
func (c *Cluster) selectNode(ctx context.Context, claim *corev1.PersistentVolumeClaim, node string) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": claim.UID, "resourceVersion": claim.ResourceVersion,
		"annotations": map[string]string{selectedNode: node},
	}})
	if err != nil {
		return err
	}
	_, err = c.api.CoreV1().PersistentVolumeClaims(claim.Namespace).Patch(ctx, claim.Name, types.MergePatchType, patch,
		metav1.PatchOptions{FieldManager: manager})
	return err
}

// Claim gives a claim, nil where it is gone, or another one of that name is there.
func (c *Cluster) Claim(ctx context.Context, claim nodeapi.Claim) (*corev1.PersistentVolumeClaim, error) {
	object, err := c.api.CoreV1().PersistentVolumeClaims(claim.Namespace).Get(ctx, claim.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("%w: get claim %s/%s: %w", nodeapi.ErrClusterUnknown, claim.Namespace, claim.Name, err)
	case claim.UID != "" && string(object.UID) != claim.UID:
		return nil, nil
	}
	return object, nil
}

// Waiting gives the claims of this driver's classes that have no volume.
func (c *Cluster) Waiting() (all []nodeapi.WaitingClaim) {
	for _, object := range c.claims.List() {
		is, ok := object.(*claim)
		if !ok || is.waits == nil {
			continue
		}
		known, _, _ := c.classes.GetByKey(is.waits.class) // fails only for a key that is none
		if of, ok := known.(*class); ok && of.ours {
			all = append(all, nodeapi.WaitingClaim{
				Claim: nodeapi.Claim{Namespace: is.Namespace, Name: is.Name, UID: string(is.UID)},
				Pool:  of.pool, Bytes: is.waits.bytes, Since: is.waits.since,
			})
		}
	}
	return all
}
