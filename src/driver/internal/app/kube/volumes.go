package kube

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/rest"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/pool"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/volume"
)

const (
	// Volume attributes that are read: the pool's name, ours and kubevirt's, and what deleting does with the data.
	attributePool     = "storagePool"
	attributeOnDelete = "onDelete"

	persistentVolumes = "persistentvolumes"
	// page is how many PersistentVolumes are asked for at a time.
	page = 500
)

// Get finds the PersistentVolume of this driver whose volumeHandle is id: by name first, which is the same for all that
// external-provisioner makes, then among all.
func (c *Client) Get(ctx context.Context, id string) (pv pool.PersistentVolume, ok bool, err error) {
	object, err := c.object(ctx, id)
	if err != nil || object == nil {
		return pv, false, err
	}
	return c.describe(object), true, nil
}

// object is the PersistentVolume of Get, nil where there is none.
func (c *Client) object(ctx context.Context, id string) (found *persistentVolume, err error) {
	var object persistentVolume
	err = c.read(ctx, c.API.core.Get().Resource(persistentVolumes).Name(id), &object)
	if err == nil && c.owns(&object) && object.Spec.CSI.VolumeHandle == id {
		return &object, nil
	}
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsInvalid(err) {
		return nil, fmt.Errorf("%w: get PersistentVolume %s: %w", volume.ErrClusterUnknown, id, err)
	}
	err = c.each(ctx, func(object *persistentVolume) {
		if object.Spec.CSI.VolumeHandle == id {
			copied := *object
			found = &copied
		}
	})
	return found, err
}

// List gives all PersistentVolumes of this driver.
func (c *Client) List(ctx context.Context) (all []pool.PersistentVolume, err error) {
	err = c.each(ctx, func(object *persistentVolume) { all = append(all, c.describe(object)) })
	if err != nil {
		return nil, err
	}
	return all, nil
}

// each visits all PersistentVolumes of this driver.
func (c *Client) each(ctx context.Context, visit func(*persistentVolume)) error {
	options := metav1.ListOptions{Limit: page}
	for {
		var list persistentVolumeList
		request := c.API.core.Get().Resource(persistentVolumes).VersionedParams(&options, metav1.ParameterCodec)
		if err := c.read(ctx, request, &list); err != nil {
			return fmt.Errorf("%w: list PersistentVolumes: %w", volume.ErrClusterUnknown, err)
		}
		for i := range list.Items {
			if c.owns(&list.Items[i]) {
				visit(&list.Items[i])
			}
		}
		if options.Continue = list.Metadata.Continue; options.Continue == "" {
			return nil
		}
	}
}

// read asks the API and reads its answer.
func (c *Client) read(ctx context.Context, request *rest.Request, into any) error {
	brief, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	data, err := request.Do(brief).Raw()
	if err != nil {
		return err // each caller says what was asked for
	}
	return json.Unmarshal(data, into)
}

func (c *Client) owns(pv *persistentVolume) bool {
	return pv.Spec.CSI != nil && pv.Spec.CSI.Driver == c.DriverName
}

// nodeLabels are this node's as a volume's affinity sees them. The kubelet sets the topology label only once it has
// registered the driver.
func (c *Client) nodeLabels() labels.Set {
	c.mu.Lock()
	defer c.mu.Unlock()
	known := labels.Set{}
	maps.Copy(known, c.labels)
	known[c.TopologyKey] = c.NodeName
	return known
}
