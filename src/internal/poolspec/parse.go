package poolspec

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

// Parse reads a configuration file (YAML or JSON), fills in the defaults and validates it. Nothing is guessed: an
// unknown or repeated key is an error, and every error names its field. An empty file is a configuration without pools.
func Parse(data []byte) (Config, error) {
	var config Config
	document, err := yaml.YAMLToJSONStrict(data)
	if err != nil {
		return Config{}, fmt.Errorf("read the configuration as YAML: %w", err)
	}
	if err := decode(document, reflect.ValueOf(&config).Elem(), ""); err != nil {
		return Config{}, err
	}
	config = config.WithDefaults()
	if err := config.Validate(); err != nil {
		return Config{}, err
	}
	return config, nil
}

// WithDefaults is the configuration with every absent field that has a default set to it.
func (c Config) WithDefaults() Config {
	pools := slices.Clone(c.StoragePools)
	for i := range pools {
		if pools[i].Scope == "" {
			pools[i].Scope = ScopeNode
		}
		if pools[i].Quota == "" {
			pools[i].Quota = QuotaAuto
		}
	}
	return Config{StoragePools: pools}
}

// decode fills a value from JSON. It does what encoding/json does, but refuses keys that differ in case, names the
// full path of whatever it refuses, and goes on to find the other errors.
func decode(data []byte, into reflect.Value, path string) error {
	if string(data) == "null" {
		return nil
	}
	_, own := reflect.TypeAssert[json.Unmarshaler](into.Addr())
	switch {
	case !own && into.Kind() == reflect.Struct:
		return decodeObject(data, into, path)
	case !own && into.Kind() == reflect.Slice:
		return decodeList(data, into, path)
	}
	if err := json.Unmarshal(data, into.Addr().Interface()); err != nil {
		return fmt.Errorf("%s: %s", path, reason(err, into))
	}
	return nil
}

// decodeObject fills a struct whose fields are all tagged for JSON.
func decodeObject(data []byte, into reflect.Value, path string) error {
	var object map[string]json.RawMessage
	if err := json.Unmarshal(data, &object); err != nil {
		return fmt.Errorf("%s: want an object with the keys %s", orDocument(path), strings.Join(keys(into.Type()), ", "))
	}
	var problems []error
	for _, key := range slices.Sorted(maps.Keys(object)) {
		index := slices.Index(keys(into.Type()), key)
		if index < 0 {
			problems = append(problems, fmt.Errorf("%s: unknown key; allowed are %s", join(path, key), strings.Join(keys(into.Type()), ", ")))
			continue
		}
		problems = append(problems, decode(object[key], into.Field(index), join(path, key)))
	}
	return errors.Join(problems...)
}

// decodeList fills a slice, element by element.
func decodeList(data []byte, into reflect.Value, path string) error {
	var list []json.RawMessage
	if err := json.Unmarshal(data, &list); err != nil {
		return fmt.Errorf("%s: want a list", orDocument(path))
	}
	into.Set(reflect.MakeSlice(into.Type(), len(list), len(list)))
	var problems []error
	for i, element := range list {
		problems = append(problems, decode(element, into.Index(i), fmt.Sprintf("%s[%d]", path, i)))
	}
	return errors.Join(problems...)
}

// keys are the JSON names of a struct's fields, in their order.
func keys(of reflect.Type) []string {
	names := make([]string, of.NumField())
	for i := range names {
		names[i], _, _ = strings.Cut(of.Field(i).Tag.Get("json"), ",")
	}
	return names
}

// reason words an error of encoding/json for someone who does not know Go.
func reason(err error, into reflect.Value) string {
	var mismatch *json.UnmarshalTypeError
	if !errors.As(err, &mismatch) {
		return err.Error()
	}
	return fmt.Sprintf("want %s, got %s", kind(into.Type()), mismatch.Value)
}

// kind words the kind of a field's value.
func kind(of reflect.Type) string {
	switch of.Kind() {
	case reflect.Pointer:
		return kind(of.Elem())
	case reflect.Bool:
		return "true or false"
	case reflect.Int:
		return "a whole number"
	case reflect.Float64:
		return "a number"
	case reflect.Map:
		if of.Elem().Kind() == reflect.String {
			return "an object of texts"
		}
		return "an object"
	default:
		return "text"
	}
}

func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

func orDocument(path string) string {
	if path == "" {
		return "configuration"
	}
	return path
}
