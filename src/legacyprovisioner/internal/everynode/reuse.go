package everynode

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/names"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/logging"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/legacyprovisioner/internal/everynode/wire"
)

// boundByController is what Kubernetes writes on a PersistentVolume that it chose for a claim.
const boundByController = "pv.kubernetes.io/bound-by-controller"

// registryRetry is the pause before the ConfigMap is tried again.
const registryRetry = 2 * time.Second

// Run makes the ConfigMap that managers wait for, and makes retained volumes available again as their classes said,
// until ctx ends.
func (p *Provisioner) Run(ctx context.Context) {
	for {
		_, err := p.registry(ctx)
		if err == nil || ctx.Err() != nil {
			break
		}
		p.Log.WarnContext(ctx, "cannot make what the managers wait for; it is tried again", logging.KeyError, err)
		select {
		case <-ctx.Done():
		case <-time.After(registryRetry):
		}
	}
	p.changes.Run(ctx, p.reuseAll)
}

func (p *Provisioner) reuseAll(ctx context.Context) (done bool) {
	done = true
	for _, object := range p.Volumes.GetIndexer().List() {
		pv, ok := object.(*corev1.PersistentVolume)
		if !ok || !wire.Ours(pv, p.Provisioner) || !p.reusable(pv) {
			continue
		}
		if err := p.reuseVolume(ctx, pv); err != nil && ctx.Err() == nil {
			done = false
			p.Log.WarnContext(ctx, "cannot make a retained volume available; it is tried again", logging.KeyPV, pv.Name,
				logging.KeyError, err)
		}
	}
	return done
}

// reusable reports whether a volume is retained, released, and for somebody else now. One that was saved while it was
// being removed lacks data on some nodes, and is for the administrator.
func (p *Provisioner) reusable(pv *corev1.PersistentVolume) bool {
	policy := pv.Annotations[names.ReusePolicy(p.Provisioner)]
	_, begun := p.waitsFor(pv)
	return !begun && pv.DeletionTimestamp == nil && pv.Status.Phase == corev1.VolumeReleased &&
		pv.Spec.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimRetain &&
		pv.Spec.ClaimRef != nil && pv.Spec.ClaimRef.UID != "" && (policy == reuseSamePVCName || policy == reuseAlways)
}

// reuseVolume takes the claim that is gone out of the PersistentVolume, or only what tells it from another of its name.
// The volume must not have changed: an administrator may have bound it meanwhile.
func (p *Provisioner) reuseVolume(ctx context.Context, pv *corev1.PersistentVolume) error {
	var claim any
	if pv.Annotations[names.ReusePolicy(p.Provisioner)] == reuseSamePVCName {
		claim = map[string]any{"uid": nil, "resourceVersion": nil}
	}
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{
			"uid": pv.UID, "resourceVersion": pv.ResourceVersion, "annotations": map[string]any{boundByController: nil},
		},
		"spec": map[string]any{"claimRef": claim},
	})
	if err != nil {
		return err
	}
	_, err = p.Client.CoreV1().PersistentVolumes().Patch(ctx, pv.Name, types.MergePatchType, patch,
		metav1.PatchOptions{})
	switch {
	case errors.IsConflict(err) || errors.IsNotFound(err):
		return nil // the change is seen here next
	case err != nil:
		return fmt.Errorf("take the claim out of it: %w", err)
	}
	p.Log.InfoContext(ctx, "made a retained volume available again", logging.KeyPV, pv.Name,
		logging.KeyReason, pv.Annotations[names.ReusePolicy(p.Provisioner)])
	return nil
}
