package kube

import (
	"context"
	"encoding/json"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// The chart makes the Secret and the ConfigMaps that the controller fills, so that it needs no right to create any:
// what they are beside their data is Helm's.

// Secret gives what a Secret of the driver's namespace has; version is "" where there is none.
func (c *Cluster) Secret(ctx context.Context, name string) (data map[string][]byte, version string, err error) {
	secret, err := c.api.CoreV1().Secrets(c.PodNamespace).Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, "", nil
	case err != nil:
		return nil, "", fmt.Errorf("get Secret %s/%s: %w", c.PodNamespace, name, err)
	}
	return secret.Data, secret.ResourceVersion, nil
}

// WriteSecret writes keys into the Secret of a version that Secret gave. It fails where another replica was first.
func (c *Cluster) WriteSecret(ctx context.Context, name, version string, data map[string][]byte) error {
	patch, err := mergePatch(version, data)
	if err == nil {
		_, err = c.api.CoreV1().Secrets(c.PodNamespace).Patch(ctx, name, types.MergePatchType, patch,
			metav1.PatchOptions{FieldManager: manager})
	}
	if err != nil {
		return fmt.Errorf("write Secret %s/%s: %w", c.PodNamespace, name, advise(err))
	}
	return nil
}

// ConfigMap gives what a ConfigMap of the driver's namespace has, nil where there is none.
func (c *Cluster) ConfigMap(ctx context.Context, name string) (map[string]string, error) {
	object, err := c.api.CoreV1().ConfigMaps(c.PodNamespace).Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("get ConfigMap %s/%s: %w", c.PodNamespace, name, err)
	}
	return object.Data, nil
}

// WriteConfigMap writes keys into a ConfigMap of the driver's namespace.
func (c *Cluster) WriteConfigMap(ctx context.Context, name string, data map[string]string) error {
	return writeConfigMap(ctx, c, name, "", data)
}

func writeConfigMap[T string | *string](
	ctx context.Context, c *Cluster, name, version string, data map[string]T,
) error {
	patch, err := mergePatch(version, data)
	if err == nil {
		_, err = c.api.CoreV1().ConfigMaps(c.PodNamespace).Patch(ctx, name, types.MergePatchType, patch,
			metav1.PatchOptions{FieldManager: manager})
	}
	if err != nil {
		return fmt.Errorf("write ConfigMap %s/%s: %w", c.PodNamespace, name, advise(err))
	}
	return nil
}

// mergePatch adds keys to the data of an object that has a version, or of whichever is there if that is "". A nil
// removes its key.
func mergePatch[T []byte | string | *string](version string, data map[string]T) ([]byte, error) {
	patch := map[string]any{"data": data}
	if version != "" {
		patch["metadata"] = map[string]string{"resourceVersion": version}
	}
	return json.Marshal(patch)
}

// loadConfigMap gives what a ConfigMap that the chart makes has, and its version.
func (c *Cluster) loadConfigMap(ctx context.Context, name string) (map[string]string, string, error) {
	object, err := c.api.CoreV1().ConfigMaps(c.PodNamespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, "", fmt.Errorf("get ConfigMap %s/%s: %w", c.PodNamespace, name, advise(err))
	}
	if object.Data == nil {
		object.Data = map[string]string{}
	}
	return object.Data, object.ResourceVersion, nil
}

// advise says how an object that the chart makes comes back.
func advise(err error) error {
	if apierrors.IsNotFound(err) {
		return fmt.Errorf("%w; the chart makes it: upgrade the release to get it back", err)
	}
	return err
}

// Identities are the ids of the shared pools in a ConfigMap of the driver's namespace.
type Identities struct {
	*Cluster
	Name string
}

// Load implements sharedpools.Identities.
func (i Identities) Load(ctx context.Context) (ids map[string]string, version string, err error) {
	return i.loadConfigMap(ctx, i.Name)
}

// Store implements sharedpools.Identities.
func (i Identities) Store(ctx context.Context, version string, ids map[string]string) error {
	return writeConfigMap(ctx, i.Cluster, i.Name, version, ids)
}
