// Command chartschema writes the schema of a storage pool in the chart's values.schema.json as the definition of the
// custom resource has it. What else is in the file is written by hand, and stays.
//
//	go -C tools run ./chartschema -chart ../charts/hostpath-provisioner -out PATH
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"

	"sigs.k8s.io/yaml"
)

func main() {
	chart := flag.String("chart", "../charts/hostpath-provisioner", "folder of the chart")
	out := flag.String("out", "", "file to write (default the chart's own)")
	flag.Parse()
	if err := run(*chart, *out); err != nil {
		fmt.Fprintln(os.Stderr, "chartschema:", err)
		os.Exit(1)
	}
}

func run(chart, out string) error {
	file := filepath.Join(chart, "values.schema.json")
	if out == "" {
		out = file
	}
	definition, err := os.ReadFile(filepath.Join(chart, "files", "crd.yaml"))
	if err != nil {
		return err
	}
	values, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	pool, err := poolOf(definition)
	if err != nil {
		return fmt.Errorf("files/crd.yaml: %w", err)
	}
	text, err := replace(string(values), pool)
	if err != nil {
		return fmt.Errorf("values.schema.json: %w", err)
	}
	return os.WriteFile(out, []byte(text), 0o644)
}

// object is a schema, of the definition or of the chart.
type object = map[string]any

// poolOf is the chart's schema of a pool. Two fields only kubevirt's manifests have.
func poolOf(definition []byte) (object, error) {
	var crd struct {
		Spec struct {
			Versions []struct {
				Schema struct {
					OpenAPIV3Schema struct {
						Properties struct {
							Spec struct {
								Properties struct {
									StoragePools struct {
										Items object
									}
								}
							}
						}
					}
				}
			}
		}
	}
	if err := yaml.Unmarshal(definition, &crd); err != nil {
		return nil, err
	}
	if got := len(crd.Spec.Versions); got != 1 {
		return nil, fmt.Errorf("%d versions: want one", got)
	}
	pool := crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties.Spec.Properties.StoragePools.Items
	fields, found := pool["properties"].(object)
	if !found {
		return nil, errors.New("spec.storagePools has no fields")
	}
	delete(fields, "overlayClassName")
	delete(fields, "snapshotProvider")
	return closed(pool), nil
}

// closed is an object that takes the fields of its schema only.
func closed(of object) object {
	fields := object{}
	properties, _ := of["properties"].(object) // a schema is an object of objects: the API server takes no other
	for name, is := range properties {
		schema, _ := is.(object)
		fields[name] = field(name, schema)
	}
	of["properties"], of["additionalProperties"] = fields, false
	return of
}

// field says in JSON Schema what the definition says in Kubernetes' own words. Where the chart's schema has one for
// the same thing already, it is that.
func field(name string, of object) object {
	switch {
	case name == "nodeSelector":
		return object{"$ref": "#/definitions/labels"}
	case name == "pvcTemplate":
		return object{"$ref": "#/definitions/freeForm"} // the API server knows a claim
	case of["properties"] != nil:
		return closed(of)
	case of["x-kubernetes-int-or-string"] == true:
		delete(of, "anyOf")
		of["type"], of["minimum"] = []string{"integer", "string"}, 0
	case of["format"] == "int32":
		of["maximum"] = math.MaxInt32
	}
	delete(of, "format")
	for key := range of {
		if strings.HasPrefix(key, "x-kubernetes-") {
			delete(of, key)
		}
	}
	return of
}

// replace puts the schema of a pool in the place of the one in the text.
func replace(text string, pool object) (string, error) {
	before, after, found := strings.Cut(text, `"storagePool": {`)
	if !found {
		return "", errors.New(`no definition "storagePool"`)
	}
	before, after = before+`"storagePool": `, "{"+after
	old := json.NewDecoder(strings.NewReader(after))
	if err := old.Decode(&json.RawMessage{}); err != nil {
		return "", err
	}
	var fresh bytes.Buffer
	encoder := json.NewEncoder(&fresh)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("    ", "  ")
	if err := encoder.Encode(pool); err != nil {
		return "", err
	}
	return before + strings.TrimSuffix(fresh.String(), "\n") + after[old.InputOffset():], nil
}
