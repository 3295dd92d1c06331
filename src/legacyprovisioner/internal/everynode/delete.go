package everynode

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	corelisters "k8s.io/client-go/listers/core/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/names"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/logging"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/legacyprovisioner/internal/everynode/wire"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/legacyprovisioner/internal/hostpathpv"
)

// ShouldDelete reports whether a PersistentVolume was made by this provisioner, or by kubeboost's.
func (p *Provisioner) ShouldDelete(_ context.Context, pv *corev1.PersistentVolume) bool {
	return wire.Ours(pv, p.Provisioner)
}

// Delete has the directories of a PersistentVolume removed on every node that may have one. It may be repeated; an
// error leaves the PersistentVolume, names the nodes that are waited for, and Delete is called again. Which nodes are
// left is kept on the PersistentVolume: with many nodes one is always away, though never the same.
func (p *Provisioner) Delete(ctx context.Context, pv *corev1.PersistentVolume) error {
	if !wire.Ours(pv, p.Provisioner) {
		return fmt.Errorf("PersistentVolume %s is not one of this provisioner's", pv.Name)
	}
	if _, err := wire.Name(p.Base, pv.Spec.HostPath.Path, pv.Name); err != nil {
		return fmt.Errorf("%w; nothing is removed: remove the directory on every node by hand, then the finalizers "+
			"of the PersistentVolume, and delete it", err)
	}
	pv, err := hostpathpv.Current(ctx, p.Client, pv)
	if err == nil {
		err = hostpathpv.Alone(pv, corelisters.NewPersistentVolumeLister(p.Volumes.GetIndexer()))
	}
	if err != nil {
		return err
	}
	f, err := p.readFleet(ctx)
	if err != nil {
		return err
	}
	left, known := p.waitsFor(pv)
	if !known {
		if f.missing > 0 || len(f.members) == 0 {
			return fmt.Errorf(
				"DaemonSet %s/%s has yet to make pods of managers: which nodes have the directory is not known",
				p.Namespace, p.Managers)
		}
		left = slices.Collect(maps.Keys(f.members))
	}
	faults := forEachMember(f.choose(left), func(m member) error { return p.cleanNode(ctx, pv, m) })
	if len(faults) == 0 {
		p.Log.InfoContext(ctx, "removed the directories of a deleted volume", logging.KeyPV, pv.Name,
			logging.KeyPath, pv.Spec.HostPath.Path)
		return nil
	}
	err = fmt.Errorf("the volume's directory is not yet removed on %d of its nodes: %w", len(faults), summary(faults))
	return errors.Join(err, p.waitFor(ctx, pv, slices.Sorted(maps.Keys(faults))))
}

// cleanNode has one node's directory removed, or gives the node up.
func (p *Provisioner) cleanNode(ctx context.Context, pv *corev1.PersistentVolume, m member) error {
	switch {
	case m.unsure:
		return errors.New("its manager's pod is about to be made")
	case m.gone, m.address == "":
		return p.cleanWithout(ctx, pv, m)
	case m.certificate == "":
		return errors.New("its manager has not registered yet")
	}
	p.absences.endAbsence(m.node)
	return p.askManager(ctx, http.MethodDelete, m, pv.Spec.HostPath.Path, pv.Name)
}

// cleanWithout gives up a node that nobody expects back. A node that is down is waited for.
func (p *Provisioner) cleanWithout(ctx context.Context, pv *corev1.PersistentVolume, m member) error {
	_, err := p.Client.CoreV1().Nodes().Get(ctx, m.node, metav1.GetOptions{})
	switch {
	case err == nil && m.gone: // it is to have no manager, and an administrator has taken it out of the ConfigMap
		p.givenUp(ctx, pv, m.node)
		return nil
	case err == nil:
		p.absences.endAbsence(m.node)
		return errors.New("its manager is not ready")
	case !apierrors.IsNotFound(err):
		return fmt.Errorf("look for its Node object: %w", err)
	}
	if gone := p.absences.lasted(m.node, time.Now()); gone < p.GoneAfter {
		return fmt.Errorf("it has no Node object; it is given up in %s", (p.GoneAfter - gone).Round(time.Second))
	}
	if err := p.forget(ctx, m.node); err != nil {
		return err
	}
	p.givenUp(ctx, pv, m.node)
	return nil
}

// givenUp says that nobody will remove what a node has.
func (p *Provisioner) givenUp(ctx context.Context, pv *corev1.PersistentVolume, node string) {
	p.Log.WarnContext(ctx, "a node is given up, and data of a deleted volume may remain on its disk",
		logging.KeyNode, node, logging.KeyPV, pv.Name, logging.KeyPath, pv.Spec.HostPath.Path)
	p.Recorder.Eventf(pv, corev1.EventTypeWarning, "NodeGivenUp", "node %s is given up: data of the volume may "+
		"remain on its disk, in %s", node, pv.Spec.HostPath.Path)
}

// forget removes a node from the ConfigMap. When it returns, its manager registers it again.
func (p *Provisioner) forget(ctx context.Context, node string) error {
	patch, err := json.Marshal(map[string]any{"data": map[string]any{node: nil}})
	if err != nil {
		return err
	}
	if _, err := p.Client.CoreV1().ConfigMaps(p.Namespace).Patch(ctx, p.Managers, types.MergePatchType, patch,
		metav1.PatchOptions{}); err != nil {
		return fmt.Errorf("remove it from ConfigMap %s/%s: %w", p.Namespace, p.Managers, err)
	}
	return nil
}

// waitsFor is which nodes are left of an earlier attempt; known is false when there was none. A volume that was bound
// again since has another claim, and its directories are everywhere again.
func (p *Provisioner) waitsFor(pv *corev1.PersistentVolume) (left []string, known bool) {
	claim, rest, found := strings.Cut(pv.Annotations[names.WaitsFor(p.Provisioner)], ":")
	if !found || claim != claimOf(pv) {
		return nil, false
	}
	return strings.FieldsFunc(rest, func(r rune) bool { return r == ',' }), true
}

// waitFor writes on the PersistentVolume which nodes are left.
func (p *Provisioner) waitFor(ctx context.Context, pv *corev1.PersistentVolume, left []string) error {
	key, value := names.WaitsFor(p.Provisioner), claimOf(pv)+":"+strings.Join(left, ",")
	if pv.Annotations[key] == value {
		return nil
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": pv.UID, "annotations": map[string]string{key: value},
	}})
	if err != nil {
		return err
	}
	if _, err := p.Client.CoreV1().PersistentVolumes().Patch(ctx, pv.Name, types.MergePatchType, patch,
		metav1.PatchOptions{}); err != nil {
		return fmt.Errorf("write on the PersistentVolume which nodes are left: %w", err)
	}
	return nil
}

// claimOf tells one end of a volume from another, should it be bound again.
func claimOf(pv *corev1.PersistentVolume) string {
	if pv.Spec.ClaimRef == nil {
		return ""
	}
	return string(pv.Spec.ClaimRef.UID)
}
