package app

import (
	"context"
	"fmt"
	"io/fs"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/hostpath-provisioner/hostpath-provisioner/charts"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/operator/internal/apply"
)

const (
	establishInterval = 200 * time.Millisecond
	establishPatience = time.Minute
)

// installDefinitions applies the CustomResourceDefinitions that this operator was made with, and waits until they are
// served: Helm installs them once and never upgrades them.
func installDefinitions(ctx context.Context, config *rest.Config) error {
	scheme := runtime.NewScheme()
	if err := apiextensionsv1.AddToScheme(scheme); err != nil {
		return err
	}
	c, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		return fmt.Errorf("connect to the API server: %w", err)
	}
	chart, err := charts.HostpathProvisioner()
	if err != nil {
		return fmt.Errorf("read the embedded chart: %w", err)
	}
	files, err := fs.Glob(chart, "crds/*.yaml")
	if err != nil || len(files) == 0 {
		return fmt.Errorf("the embedded chart has no CustomResourceDefinition: %w", err)
	}
	for _, name := range files {
		data, err := fs.ReadFile(chart, name)
		if err != nil {
			return fmt.Errorf("read the embedded chart: %w", err)
		}
		if err := installDefinition(ctx, c, data); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

func installDefinition(ctx context.Context, c client.Client, data []byte) error {
	definition := &unstructured.Unstructured{}
	if err := yaml.Unmarshal(data, &definition.Object); err != nil {
		return err
	}
	// A file with an empty status would claim to own it.
	unstructured.RemoveNestedField(definition.Object, "status")
	key := client.ObjectKeyFromObject(definition)
	if err := apply.ServerSide(ctx, c, definition); err != nil {
		return fmt.Errorf("apply CustomResourceDefinition %s: %w", key.Name, err)
	}
	why := "it has no condition yet"
	established := func(ctx context.Context) (bool, error) {
		var current apiextensionsv1.CustomResourceDefinition
		if err := c.Get(ctx, key, &current); err != nil {
			return false, err
		}
		for _, condition := range current.Status.Conditions {
			if condition.Status != apiextensionsv1.ConditionTrue {
				why = condition.Message
			} else if condition.Type == apiextensionsv1.Established {
				return true, nil
			}
		}
		return false, nil
	}
	err := wait.PollUntilContextTimeout(ctx, establishInterval, establishPatience, true, established)
	if err != nil {
		return fmt.Errorf("wait until CustomResourceDefinition %s is served (%s): %w", key.Name, why, err)
	}
	return nil
}
