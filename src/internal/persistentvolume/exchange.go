package persistentvolume

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

// Exchange puts a PersistentVolume in the place of another one of its name, under the same claim.
type Exchange struct {
	Volumes Volumes
	As      string // the field manager of what it writes
}

// Volumes is what is needed of the API's PersistentVolumes.
type Volumes interface {
	Patcher[corev1.PersistentVolume]
	Delete(ctx context.Context, name string, options metav1.DeleteOptions) error
}

// Patcher patches objects of a kind.
type Patcher[T any] interface {
	Patch(
		ctx context.Context, name string, kind types.PatchType, patch []byte, options metav1.PatchOptions,
		subresources ...string,
	) (*T, error)
}

// meta is what a patch changes of an object. Nothing but the object with the UID is changed.
type meta struct {
	UID         types.UID         `json:"uid,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

// SetPolicy changes the reclaim policy of a PersistentVolume, and gives what it is then.
func (x Exchange) SetPolicy(
	ctx context.Context, pv *corev1.PersistentVolume, policy corev1.PersistentVolumeReclaimPolicy,
) (is *corev1.PersistentVolume, err error) {
	patch, err := json.Marshal(map[string]any{
		"metadata": meta{UID: pv.UID}, "spec": map[string]any{"persistentVolumeReclaimPolicy": policy},
	})
	if err == nil {
		is, err = x.Volumes.Patch(ctx, pv.Name, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: x.As})
	}
	if err != nil {
		return nil, fmt.Errorf("make the reclaim policy of PersistentVolume %s %s: %w", pv.Name, policy, err)
	}
	return is, nil
}

// Remove deletes a PersistentVolume, and nothing but that one, without waiting for its claim. Its reclaim policy has to
// be Retain: what keeps it are finalizers of those who would delete the data.
func (x Exchange) Remove(ctx context.Context, pv *corev1.PersistentVolume) error {
	if pv.Spec.PersistentVolumeReclaimPolicy != corev1.PersistentVolumeReclaimRetain {
		return fmt.Errorf("%w: the reclaim policy of PersistentVolume %s is not Retain", nodeapi.ErrNamed, pv.Name)
	}
	if pv.DeletionTimestamp == nil {
		// Of this version: whose reclaim policy is Retain.
		options := metav1.DeleteOptions{
			Preconditions: &metav1.Preconditions{UID: &pv.UID, ResourceVersion: &pv.ResourceVersion},
		}
		err := x.Volumes.Delete(ctx, pv.Name, options)
		if err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("delete PersistentVolume %s: %w", pv.Name, err)
		}
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": pv.UID, "finalizers": nil}})
	if err == nil {
		_, err = x.Volumes.Patch(ctx, pv.Name, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: x.As})
	}
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("take the finalizers from PersistentVolume %s: %w", pv.Name, err)
	}
	return nil
}

// Touch annotates a claim, so that Kubernetes looks at it again: a new PersistentVolume alone has it do so only later.
func (x Exchange) Touch(
	ctx context.Context, claims Patcher[corev1.PersistentVolumeClaim], claim nodeapi.Claim, key, value string,
) error {
	patch, err := json.Marshal(map[string]any{
		"metadata": meta{UID: types.UID(claim.UID), Annotations: map[string]string{key: value}},
	})
	if err == nil {
		_, err = claims.Patch(ctx, claim.Name, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: x.As})
	}
	if err != nil {
		return fmt.Errorf("annotate claim %s: %w", claim, err)
	}
	return nil
}

// OnNode is the affinity of a volume that is on one node.
func OnNode(topologyKey, node string) *corev1.VolumeNodeAffinity {
	return &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
		MatchExpressions: []corev1.NodeSelectorRequirement{{
			Key: topologyKey, Operator: corev1.NodeSelectorOpIn, Values: []string{node},
		}},
	}}}}
}

// BoundTo is the reference to a claim that is bound already.
func BoundTo(namespace, name string, uid types.UID) *corev1.ObjectReference {
	return &corev1.ObjectReference{
		APIVersion: "v1", Kind: "PersistentVolumeClaim", Namespace: namespace, Name: name, UID: uid,
	}
}
