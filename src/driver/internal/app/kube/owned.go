package kube

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
)

const (
	secrets    = "secrets"
	configMaps = "configmaps"
)

// dataOf is a Secret, whose values are bytes, or a ConfigMap, whose values are text. The chart makes those that the
// controller fills, so that it needs no right to create any: what they are beside their data is Helm's.
type dataOf[T []byte | string] struct {
	Metadata struct {
		ResourceVersion string `json:"resourceVersion,omitempty"`
	} `json:"metadata"`
	Data map[string]T `json:"data,omitempty"`
}

// Secret gives what a Secret of the driver's namespace has; version is "" where there is none.
func (c *Controller) Secret(ctx context.Context, name string) (data map[string][]byte, version string, err error) {
	var secret dataOf[[]byte]
	err = c.read(ctx, c.API.core.Get().Namespace(c.PodNamespace).Resource(secrets).Name(name), &secret)
	if apierrors.IsNotFound(err) {
		return nil, "", nil
	}
	if err != nil {
		return nil, "", fmt.Errorf("get Secret %s/%s: %w", c.PodNamespace, name, err)
	}
	return secret.Data, secret.Metadata.ResourceVersion, nil
}

// WriteSecret writes keys into the Secret of a version that Secret gave. It fails where another replica was first.
func (c *Controller) WriteSecret(ctx context.Context, name, version string, data map[string][]byte) error {
	if err := writeData(ctx, c, secrets, name, newData(version, data)); err != nil {
		return fmt.Errorf("write Secret %s/%s: %w", c.PodNamespace, name, err)
	}
	return nil
}

// WriteConfigMap writes keys into a ConfigMap of the driver's namespace.
func (c *Controller) WriteConfigMap(ctx context.Context, name string, data map[string]string) error {
	if err := writeData(ctx, c, configMaps, name, newData("", data)); err != nil {
		return fmt.Errorf("write ConfigMap %s/%s: %w", c.PodNamespace, name, err)
	}
	return nil
}

// Identities are the ids of the shared pools in a ConfigMap of the driver's namespace.
type Identities struct {
	*Controller
	ConfigMap string
}

// Load implements sharedpools.Identities.
func (i Identities) Load(ctx context.Context) (ids map[string]string, version string, err error) {
	var object dataOf[string]
	err = i.read(ctx, i.API.core.Get().Namespace(i.PodNamespace).Resource(configMaps).Name(i.ConfigMap), &object)
	if err != nil {
		return nil, "", fmt.Errorf("get ConfigMap %s/%s: %w", i.PodNamespace, i.ConfigMap, advise(err))
	}
	if object.Data == nil {
		object.Data = map[string]string{}
	}
	return object.Data, object.Metadata.ResourceVersion, nil
}

// Store implements sharedpools.Identities.
func (i Identities) Store(ctx context.Context, version string, ids map[string]string) error {
	if err := writeData(ctx, i.Controller, configMaps, i.ConfigMap, newData(version, ids)); err != nil {
		return fmt.Errorf("write ConfigMap %s/%s: %w", i.PodNamespace, i.ConfigMap, err)
	}
	return nil
}

// newData is data of an object that has a version, or of whichever is there if that is "".
func newData[T []byte | string](version string, data map[string]T) dataOf[T] {
	object := dataOf[T]{Data: data}
	object.Metadata.ResourceVersion = version
	return object
}

// writeData merges keys into an object. It fails if that has another version.
func writeData[T []byte | string](ctx context.Context, c *Controller, resource, name string, patch dataOf[T]) error {
	request := c.API.core.Patch(types.MergePatchType).Namespace(c.PodNamespace).Resource(resource).Name(name)
	return advise(c.send(ctx, request.Param("fieldManager", reporter), patch))
}

// advise says how an object that the chart makes comes back.
func advise(err error) error {
	if apierrors.IsNotFound(err) {
		return fmt.Errorf("%w; the chart makes it: upgrade the release to get it back", err)
	}
	return err
}

// ConfigMap gives what a ConfigMap of the driver's namespace has, nil where there is none.
func (r *requests) ConfigMap(ctx context.Context, name string) (map[string]string, error) {
	var object dataOf[string]
	err := r.read(ctx, r.API.core.Get().Namespace(r.PodNamespace).Resource(configMaps).Name(name), &object)
	if err != nil && !apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("get ConfigMap %s/%s: %w", r.PodNamespace, name, err)
	}
	return object.Data, nil
}
