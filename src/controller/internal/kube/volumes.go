package kube

import (
	"context"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/persistentvolume"
)

// Get finds the PersistentVolume of this driver whose volumeHandle is id: among those known, then in the API by name,
// for one that was just made. It is nodeapi.ErrNamed where several of one handle are on different nodes, which somebody
// has made by hand: a call names the handle alone.
func (c *Cluster) Get(ctx context.Context, id string) (pv nodeapi.PersistentVolume, ok bool, err error) {
	for _, known := range c.Known(id) {
		if ok && !slices.Equal(known.Nodes, pv.Nodes) {
			return pv, false, fmt.Errorf("%w: PersistentVolumes %s and %s have the volumeHandle %s on different "+
				"nodes; delete one of them, its reclaim policy being Retain", nodeapi.ErrNamed, pv.Name, known.Name, id)
		}
		pv, ok = known, true
	}
	if ok {
		return pv, true, nil
	}
	object, err := c.api.CoreV1().PersistentVolumes().Get(ctx, id, metav1.GetOptions{})
	switch {
	case err == nil && persistentvolume.IsOf(object, c.DriverName) && object.Spec.CSI.VolumeHandle == id:
		return persistentvolume.Describe(object, c.DriverName, c.TopologyKey), true, nil
	case err != nil && !apierrors.IsNotFound(err) && !apierrors.IsInvalid(err):
		return pv, false, fmt.Errorf("%w: get PersistentVolume %s: %w", nodeapi.ErrClusterUnknown, id, err)
	case !c.Synced():
		return pv, false, fmt.Errorf("%w: not all PersistentVolumes are known yet", nodeapi.ErrClusterUnknown)
	}
	return pv, false, nil
}

// Known gives the PersistentVolumes with a volumeHandle that the informers know, by name.
func (c *Cluster) Known(handle string) (all []nodeapi.PersistentVolume) {
	objects, _ := c.volumes.ByIndex(byHandle, handle) // fails only for an index that does not exist
	for _, object := range objects {
		if v, ok := object.(*volume); ok {
			all = append(all, *v.is)
		}
	}
	slices.SortFunc(all, func(a, b nodeapi.PersistentVolume) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// List gives all PersistentVolumes of this driver that are known.
func (c *Cluster) List() (all []nodeapi.PersistentVolume) {
	for _, object := range c.volumes.List() {
		if v, ok := object.(*volume); ok && v.is != nil {
			all = append(all, *v.is)
		}
	}
	return all
}
