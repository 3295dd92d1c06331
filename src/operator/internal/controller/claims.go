package controller

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/v1beta1"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/operator/internal/gates"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/operator/internal/poolclaims"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/operator/internal/pools"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/operator/internal/render"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/operator/internal/status"
)

// lookForVolumes is how often it is looked whether mounters are there for volumes still: while nothing is being
// deleted, volumes wake nobody. What was deleted is likely to be purged then, so that the claim can be unmounted.
const lookForVolumes = time.Minute

// whileKept is when that is, 0 for never.
func whileKept(claims poolclaims.State) time.Duration {
	if claims.Kept {
		return lookForVolumes
	}
	return 0
}

// provide makes the claims of the pools that are provided by claims. An error means that it is not known which there
// are: then nothing may be applied, because mounters would be missing from it.
func (r *Reconciler) provide(ctx context.Context, in render.Input, around surroundings) (poolclaims.State, error) {
	templated := func(pool v1beta1.StoragePool) bool { return pool.PVCTemplate != nil }
	if !slices.ContainsFunc(in.Resource.Spec.StoragePools, templated) {
		return poolclaims.State{}, nil
	}
	plan, err := r.Renderer.Plan(in)
	if err != nil {
		return poolclaims.State{}, nil //nolint:nilerr // the rendering finds the same, and then nothing is applied
	}
	return r.claims.Keep(ctx, plan, poolclaims.Cluster{
		Nodes: around.nodes, Deployments: around.deployments, Volumes: r.allVolumes,
		Configured: pools.Names(in.Resource.Spec),
	})
}

// allVolumes are those that the cache knows.
func (r *Reconciler) allVolumes(ctx context.Context) ([]gates.Volume, error) {
	var list corev1.PersistentVolumeList
	if err := r.Client.List(ctx, &list); err != nil {
		return nil, fmt.Errorf("list PersistentVolumes: %w", err)
	}
	return gates.Volumes(list.Items, r.DriverName, r.Namespace), nil
}

// claimsStay is the event of a resource that is gone while claims of its pools are left.
func (r *Reconciler) claimsStay(ctx context.Context, resource *hpp) error {
	left, err := r.claims.DescribeLeft(ctx)
	if err != nil || left == "" {
		return err
	}
	r.recordEvent(resource, status.Event{Type: corev1.EventTypeNormal, Reason: eventClaimsStay, Note: left})
	return nil
}
