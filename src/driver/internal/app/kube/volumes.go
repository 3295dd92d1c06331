package kube

import (
	"context"
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/volume"
)

// attributePool is the volume attribute that names a pool, ours and kubevirt's.
const attributePool = "storagePool"

// persistentVolumes is their name in the API.
const persistentVolumes = "persistentvolumes"

// page is how many PersistentVolumes are asked for at a time.
const page = 500

// Volume finds the PersistentVolume of this driver whose volumeHandle is id: by name first, which is the same for
// all that external-provisioner makes, then among all.
func (c *Client) Volume(ctx context.Context, id string) (pv volume.PersistentVolume, ok bool, err error) {
	brief, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	object := &corev1.PersistentVolume{}
	err = c.API.Get().Resource(persistentVolumes).Name(id).Do(brief).Into(object)
	if err == nil && c.owns(object) && object.Spec.CSI.VolumeHandle == id {
		return describe(object), true, nil
	}
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsInvalid(err) {
		return pv, false, fmt.Errorf("%w: get PersistentVolume %s: %w", volume.ErrClusterUnknown, id, err)
	}
	err = c.each(ctx, func(object *corev1.PersistentVolume) {
		if object.Spec.CSI.VolumeHandle == id {
			pv, ok = describe(object), true
		}
	})
	return pv, ok, err
}

// Volumes lists the PersistentVolumes of this driver that only this node can use. Those without node affinity are nobody's
// own: kubevirt made them for pools that all nodes share.
func (c *Client) Volumes(ctx context.Context) ([]volume.PersistentVolume, error) {
	var here []volume.PersistentVolume
	node := c.node()
	err := c.each(ctx, func(object *corev1.PersistentVolume) {
		if isOn(object, node) {
			here = append(here, describe(object))
		}
	})
	if err != nil {
		return nil, err
	}
	return here, nil
}

// each visits all PersistentVolumes of this driver.
func (c *Client) each(ctx context.Context, visit func(*corev1.PersistentVolume)) error {
	options := metav1.ListOptions{Limit: page}
	for {
		list, err := c.list(ctx, options)
		if err != nil {
			return fmt.Errorf("%w: list PersistentVolumes: %w", volume.ErrClusterUnknown, err)
		}
		for i := range list.Items {
			if c.owns(&list.Items[i]) {
				visit(&list.Items[i])
			}
		}
		if options.Continue = list.Continue; options.Continue == "" {
			return nil
		}
	}
}

func (c *Client) list(ctx context.Context, options metav1.ListOptions) (*corev1.PersistentVolumeList, error) {
	brief, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	list := &corev1.PersistentVolumeList{}
	err := c.API.Get().Resource(persistentVolumes).VersionedParams(&options, metav1.ParameterCodec).Do(brief).Into(list)
	return list, err
}

func (c *Client) owns(pv *corev1.PersistentVolume) bool {
	return pv.Spec.CSI != nil && pv.Spec.CSI.Driver == c.DriverName
}

// node is this node as a volume's affinity sees it. The kubelet sets the topology label only once it has registered the driver.
func (c *Client) node() *corev1.Node {
	c.mu.Lock()
	defer c.mu.Unlock()
	labels := maps.Clone(c.labels)
	if labels == nil {
		labels = map[string]string{}
	}
	labels[c.TopologyKey] = c.NodeName
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: c.NodeName, Labels: labels}}
}

func isOn(pv *corev1.PersistentVolume, node *corev1.Node) bool {
	if pv.Spec.NodeAffinity == nil || pv.Spec.NodeAffinity.Required == nil {
		return false
	}
	selector, err := nodeaffinity.NewNodeSelector(pv.Spec.NodeAffinity.Required)
	return err == nil && selector.Match(node)
}

func describe(pv *corev1.PersistentVolume) volume.PersistentVolume {
	described := volume.PersistentVolume{
		Name: pv.Name, Handle: pv.Spec.CSI.VolumeHandle, Pool: pv.Spec.CSI.VolumeAttributes[attributePool], Bytes: pv.Spec.Capacity.Storage().Value(),
	}
	if claim := pv.Spec.ClaimRef; claim != nil {
		described.Claim = volume.Claim{Namespace: claim.Namespace, Name: claim.Name, UID: string(claim.UID)}
	}
	return described
}
