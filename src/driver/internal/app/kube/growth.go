package kube

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/growth"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/records"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/volume"
)

const (
	claims = "persistentvolumeclaims"
	// storageAPI is the group of classes and capacities.
	storageAPI = "/apis/storage.k8s.io/v1/"
	// labelDriver is what external-provisioner puts on its capacity objects (pkg/capacity, DriverNameLabel).
	labelDriver = "csi.storage.k8s.io/drivername"
)

// Growth is what the controller wants to know of the cluster; it implements growth.Cluster.
type Growth struct {
	*Client
	// Namespace has the capacity objects; "" looks in all.
	Namespace string
	// Resolve gives the pool that a class or volume without storagePool means, "" where that is open.
	Resolve func(name string) string
}

// Find implements growth.Cluster.
func (g Growth) Find(ctx context.Context, handle string) (v growth.Volume, ok bool, err error) {
	object, err := g.object(ctx, handle)
	if err != nil || object == nil {
		return v, false, err
	}
	return g.volume(object), true, nil
}

func (g Growth) volume(object *persistentVolume) growth.Volume {
	d := g.describe(object)
	v := growth.Volume{Handle: d.Handle, Pool: g.Resolve(d.Pool), Bytes: d.Bytes, Claim: d.Claim}
	if len(d.Nodes) == 1 {
		v.Node = d.Nodes[0]
	}
	return v
}

// Room implements growth.Cluster: the most that is published for any class of the pool. MaximumVolumeSize is about new
// volumes: it is 0 where none can be made, although those that are there may grow.
func (g Growth) Room(ctx context.Context, pool, node string) (most int64, ok bool, err error) {
	classes, err := g.classes(ctx, pool)
	if err != nil || len(classes) == 0 {
		return 0, false, err
	}
	path := storageAPI + "csistoragecapacities"
	if g.Namespace != "" {
		path = storageAPI + "namespaces/" + g.Namespace + "/csistoragecapacities"
	}
	err = list(ctx, g.Client, path, labelDriver+"="+g.DriverName, func(c *storageCapacity) {
		if _, ours := classes[c.StorageClassName]; !ours || c.NodeTopology.MatchLabels[g.TopologyKey] != node {
			return
		}
		if c.Capacity != nil {
			most, ok = max(most, c.Capacity.Value()), true
		}
	})
	return most, ok, err
}

// classes are the names of those that make volumes in a pool.
func (g Growth) classes(ctx context.Context, pool string) (map[string]struct{}, error) {
	names := map[string]struct{}{}
	err := list(ctx, g.Client, storageAPI+"storageclasses", "", func(c *storageClass) {
		if c.Provisioner == g.DriverName && g.Resolve(c.Parameters[attributePool]) == pool {
			names[c.Metadata.Name] = struct{}{}
		}
	})
	return names, err
}

// Given implements growth.Cluster.
func (g Growth) Given(ctx context.Context, claim records.Claim) (bytes int64, ok bool, err error) {
	if claim.Name == "" {
		return 0, false, nil
	}
	var object persistentVolumeClaim
	err = g.read(ctx, g.API.core.Get().Namespace(claim.Namespace).Resource(claims).Name(claim.Name), &object)
	switch {
	case apierrors.IsNotFound(err):
		return 0, false, nil
	case err != nil:
		return 0, false, fmt.Errorf("%w: get claim %s/%s: %w", volume.ErrClusterUnknown, claim.Namespace, claim.Name, err)
	}
	bytes, ok = object.given(claim)
	return bytes, ok, nil
}

// Grants implements growth.Cluster.
func (g Growth) Grants(ctx context.Context) ([]growth.Grant, error) {
	volumes := map[reference]growth.Volume{}
	key := func(namespace, name string) reference { return reference{Namespace: namespace, Name: name} }
	err := g.each(ctx, func(object *persistentVolume) {
		if v := g.volume(object); v.Node != "" && v.Claim.Name != "" {
			volumes[key(v.Claim.Namespace, v.Claim.Name)] = v
		}
	})
	if err != nil || len(volumes) == 0 {
		return nil, err
	}
	var grants []growth.Grant
	err = list(ctx, g.Client, "/api/v1/"+claims, "", func(object *persistentVolumeClaim) {
		v, ok := volumes[key(object.Metadata.Namespace, object.Metadata.Name)]
		if !ok {
			return
		}
		if given, ok := object.given(v.Claim); ok && given < v.Bytes {
			grants = append(grants, growth.Grant{Volume: v, To: v.Bytes})
		}
	})
	return grants, err
}

// list visits all objects of a kind, page by page.
func list[T any](ctx context.Context, c *Client, path, selector string, visit func(*T)) error {
	options := metav1.ListOptions{Limit: page, LabelSelector: selector}
	for {
		var got struct {
			Metadata struct {
				Continue string `json:"continue"`
			} `json:"metadata"`
			Items []T `json:"items"`
		}
		if err := c.read(ctx, withOptions(c.API.core.Get().AbsPath(path), options), &got); err != nil {
			return fmt.Errorf("%w: list %s: %w", volume.ErrClusterUnknown, path, err)
		}
		for i := range got.Items {
			visit(&got.Items[i])
		}
		if options.Continue = got.Metadata.Continue; options.Continue == "" {
			return nil
		}
	}
}

func withOptions(request *rest.Request, options metav1.ListOptions) *rest.Request {
	return request.VersionedParams(&options, metav1.ParameterCodec)
}

// The fields of further objects that the controller reads, named as in the API.
type (
	persistentVolumeClaim struct {
		Metadata reference `json:"metadata"`
		Status   struct {
			Capacity map[string]resource.Quantity `json:"capacity"`
		} `json:"status"`
	}

	storageClass struct {
		Metadata    reference         `json:"metadata"`
		Provisioner string            `json:"provisioner"`
		Parameters  map[string]string `json:"parameters"`
	}

	storageCapacity struct {
		StorageClassName string `json:"storageClassName"`
		NodeTopology     struct {
			MatchLabels map[string]string `json:"matchLabels"`
		} `json:"nodeTopology"`
		Capacity *resource.Quantity `json:"capacity"`
	}
)

// given is the size that the status shows; ok is false where it is another claim of the same name.
func (c *persistentVolumeClaim) given(to records.Claim) (bytes int64, ok bool) {
	if to.UID != "" && c.Metadata.UID != to.UID {
		return 0, false
	}
	capacity := c.Status.Capacity["storage"]
	return capacity.Value(), true
}
