package kube

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/controller/csi"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
)

const (
	claims = "persistentvolumeclaims"
	// selectedNode is the scheduler's annotation on a claim (component-helpers/storage/volume, AnnSelectedNode).
	selectedNode = "volume.kubernetes.io/selected-node"
	// selectAttempts are enough for others that write the same claim: they are few.
	selectAttempts = 5
)

// SelectedNode is the node that is selected for a claim, "" without one; csi.ErrClaimGone where there is none.
func (c *Controller) SelectedNode(ctx context.Context, claim nodeapi.Claim) (node string, err error) {
	object, err := c.claim(ctx, claim)
	if err != nil {
		return "", err
	}
	return object.Annotations[selectedNode], nil
}

// SelectNode selects a node for a claim unless one is selected, and gives the one that is. From then on everybody who
// makes this volume makes it there.
func (c *Controller) SelectNode(ctx context.Context, claim nodeapi.Claim, node string) (selected string, err error) {
	for range selectAttempts {
		object, getErr := c.claim(ctx, claim)
		if getErr != nil {
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
func (c *Controller) selectNode(ctx context.Context, claim *metav1.PartialObjectMetadata, node string) error {
	request := c.API.core.Patch(types.MergePatchType).Namespace(claim.Namespace).Resource(claims).Name(claim.Name)
	return c.send(ctx, request.Param("fieldManager", reporter), map[string]any{"metadata": map[string]any{
		"uid": claim.UID, "resourceVersion": claim.ResourceVersion,
		"annotations": map[string]string{selectedNode: node},
	}})
}

func (c *Controller) claim(ctx context.Context, claim nodeapi.Claim) (*metav1.PartialObjectMetadata, error) {
	object, err := c.metadata(ctx, coreResource(claims), claim.Namespace, claim.Name)
	switch {
	case apierrors.IsNotFound(err):
		return nil, fmt.Errorf("%w: there is no claim %s/%s", csi.ErrClaimGone, claim.Namespace, claim.Name)
	case err != nil:
		return nil, fmt.Errorf("%w: get claim %s/%s: %w", nodeapi.ErrClusterUnknown, claim.Namespace, claim.Name, err)
	case claim.UID != "" && string(object.UID) != claim.UID:
		return nil, fmt.Errorf("%w: claim %s/%s is another one of that name", csi.ErrClaimGone, claim.Namespace,
			claim.Name)
	}
	return object, nil
}
