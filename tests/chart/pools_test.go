package chart

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/hostpath-provisioner/hostpath-provisioner/tests/chart/helmcli"
)

// TestPoolsAreThoseOfTheDefinition: a pool has the same fields, choices and limits in values as in the custom resource,
// but for two fields that only kubevirt's manifests have.
func TestPoolsAreThoseOfTheDefinition(t *testing.T) {
	t.Parallel()
	var values schema
	var definition struct {
		Spec struct {
			Versions []struct {
				Schema struct{ OpenAPIV3Schema schema }
			}
		}
	}
	valuesText, err := os.ReadFile(filepath.Join(helmcli.ChartDir(t), "values.schema.json"))
	definitionText, readErr := os.ReadFile(filepath.Join(helmcli.ChartDir(t), "files", "crd.yaml"))
	if err := errors.Join(err, readErr, yaml.Unmarshal(valuesText, &values),
		yaml.Unmarshal(definitionText, &definition)); err != nil {
		t.Fatal(err)
	}
	for _, version := range definition.Spec.Versions {
		pool := *version.Schema.OpenAPIV3Schema.Properties["spec"].Properties["storagePools"].Items
		delete(pool.Properties, "overlayClassName")
		delete(pool.Properties, "snapshotProvider")
		if diff := cmp.Diff(poolFields(pool), poolFields(values.Definitions["storagePool"])); diff != "" {
			t.Errorf("the definition's pool (-) and that of values.schema.json (+):\n%s", diff)
		}
	}
}

// poolFields are the fields of a pool, with the choices and the limit of each.
func poolFields(pool schema) map[string]string {
	all := map[string]string{"required": fmt.Sprint(pool.Required)}
	for name, field := range pool.Properties {
		all[name] = fmt.Sprint(field.Enum)
		if field.Maximum != nil {
			all[name] += fmt.Sprint(" at most ", *field.Maximum)
		}
		if name == "pvcTemplate" { // the API server knows a claim
			continue
		}
		for inner := range field.Properties {
			all[name+"."+inner] = ""
		}
	}
	return all
}
