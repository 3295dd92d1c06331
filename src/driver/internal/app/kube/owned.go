package kube

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

const (
	secrets    = "secrets"
	configMaps = "configmaps"
)

// dataOf is a Secret, whose values are bytes, or a ConfigMap, whose values are text.
type dataOf[T []byte | string] struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Type              string       `json:"type,omitempty"`
	Data              map[string]T `json:"data,omitempty"`
}

// own makes an object that the controller writes.
func own[T []byte | string](kind, namespace, name string, data map[string]T) dataOf[T] {
	return dataOf[T]{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: kind},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: name,
			Labels: map[string]string{"app.kubernetes.io/managed-by": reporter + "-controller"},
		},
		Data: data,
	}
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
	return secret.Data, secret.ResourceVersion, nil
}

// WriteSecret makes a Secret with a certificate, or replaces the one of a version that Secret gave. It fails where
// another replica was first.
func (c *Controller) WriteSecret(ctx context.Context, name, version string, data map[string][]byte) error {
	secret := own("Secret", c.PodNamespace, name, data)
	secret.Type, secret.ResourceVersion = "kubernetes.io/tls", version
	if err := c.put(ctx, secrets, secret.ObjectMeta, secret); err != nil {
		return fmt.Errorf("write Secret %s/%s: %w", c.PodNamespace, name, err)
	}
	return nil
}

// WriteConfigMap makes a ConfigMap of the driver's namespace what it should be.
func (c *Controller) WriteConfigMap(ctx context.Context, name string, data map[string]string) error {
	request := c.API.core.Patch(types.ApplyYAMLPatchType).Namespace(c.PodNamespace).Resource(configMaps).Name(name)
	if err := c.apply(ctx, request, own("ConfigMap", c.PodNamespace, name, data)); err != nil {
		return fmt.Errorf("write ConfigMap %s/%s: %w", c.PodNamespace, name, err)
	}
	return nil
}

// Identities are the ids of the shared pools in a ConfigMap of the driver's namespace.
type Identities struct {
	*Controller
	ConfigMap string
}

// Load implements controller.Identities; version is "" where there is no ConfigMap.
func (i Identities) Load(ctx context.Context) (ids map[string]string, version string, err error) {
	var object dataOf[string]
	err = i.read(ctx, i.API.core.Get().Namespace(i.PodNamespace).Resource(configMaps).Name(i.ConfigMap), &object)
	if err != nil && !apierrors.IsNotFound(err) {
		return nil, "", fmt.Errorf("get ConfigMap %s/%s: %w", i.PodNamespace, i.ConfigMap, err)
	}
	if object.Data == nil {
		object.Data = map[string]string{}
	}
	return object.Data, object.ResourceVersion, nil
}

// Store implements controller.Identities.
func (i Identities) Store(ctx context.Context, version string, ids map[string]string) error {
	object := own("ConfigMap", i.PodNamespace, i.ConfigMap, ids)
	object.ResourceVersion = version
	if err := i.put(ctx, configMaps, object.ObjectMeta, object); err != nil {
		return fmt.Errorf("write ConfigMap %s/%s: %w", i.PodNamespace, i.ConfigMap, err)
	}
	return nil
}

// put makes an object, or replaces the one of its resource version. It fails where another replica was first.
func (c *Controller) put(ctx context.Context, resource string, meta metav1.ObjectMeta, object any) error {
	request := c.API.core.Post()
	if meta.ResourceVersion != "" {
		request = c.API.core.Put().Name(meta.Name)
	}
	return c.send(ctx, request.Namespace(meta.Namespace).Resource(resource), object)
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
