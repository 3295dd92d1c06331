package poolspec

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation/field"
	strictjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

// Parse reads a configuration file (YAML or JSON), fills in the defaults and validates it. A key that is unknown,
// repeated or in another case is an error. Every error names its field. An empty file has no pools.
func Parse(data []byte) (Config, error) {
	document, err := yaml.YAMLToJSONStrict(data)
	if err != nil {
		return Config{}, fmt.Errorf("read the configuration as YAML: %w", err)
	}
	var config Config
	own := map[string]reader{"storagePools": poolsReader(&config)}
	if problems := decode(document, &config, nil, own); len(problems) > 0 {
		return Config{}, problems.ToAggregate()
	}
	config = config.WithDefaults()
	return config, config.Validate().ToAggregate()
}

// ReadPool reads one pool from JSON, without defaults and without validation. The pool has every field that could be
// read; the errors name the others below the given path.
func ReadPool(data []byte, at *field.Path) (pool Pool, problems field.ErrorList) {
	trash := func(data []byte, at *field.Path) field.ErrorList { return decode(data, &pool.Trash, at, nil) }
	problems = decode(data, &pool, at, map[string]reader{"trash": trash})
	return pool, problems
}

// WithDefaults is the configuration with every absent field that has a default set to it.
func (c Config) WithDefaults() Config {
	pools := slices.Clone(c.StoragePools)
	for i := range pools {
		scope, quota := ScopeNode, QuotaAuto
		if pools[i].sharedTemplate() {
			scope = ScopeShared
		}
		pools[i].Scope = cmp.Or(pools[i].Scope, scope)
		if pools[i].Shared() {
			quota = QuotaNone
		}
		pools[i].Quota = cmp.Or(pools[i].Quota, quota)
	}
	return Config{StoragePools: pools}
}

// reader reads the value of one key.
type reader func(data []byte, at *field.Path) field.ErrorList

func poolsReader(into *Config) reader {
	return func(data []byte, at *field.Path) (problems field.ErrorList) {
		var list []json.RawMessage
		if err := json.Unmarshal(data, &list); err != nil {
			return field.ErrorList{field.TypeInvalid(at, json.RawMessage(data), "want a list of pools")}
		}
		for i, element := range list {
			pool, wrong := ReadPool(element, at.Index(i))
			into.StoragePools, problems = append(into.StoragePools, pool), append(problems, wrong...)
		}
		return problems
	}
}

// decode fills a struct from a JSON object, key by key: so each error names its field, and all errors are found. Keys
// that have a reader of their own are read by it.
func decode(data []byte, into any, at *field.Path, own map[string]reader) field.ErrorList {
	var object map[string]json.RawMessage
	if err := json.Unmarshal(data, &object); err != nil {
		root := field.NewPath("configuration")
		return field.ErrorList{field.TypeInvalid(cmp.Or(at, root), json.RawMessage(data), "want an object")}
	}
	var problems field.ErrorList
	for _, key := range slices.Sorted(maps.Keys(object)) {
		if read, found := own[key]; found {
			problems = append(problems, read(object[key], at.Child(key))...)
		} else if problem := decodeField(key, object[key], into, at.Child(key)); problem != nil {
			problems = append(problems, problem)
		}
	}
	return problems
}

func decodeField(key string, value json.RawMessage, into any, at *field.Path) *field.Error {
	unknown, err := strictjson.UnmarshalStrict(fmt.Appendf(nil, "{%q:%s}", key, value), into)
	var mismatch *json.UnmarshalTypeError
	switch {
	case len(unknown) > 0:
		return field.Forbidden(at, "unknown field")
	case errors.As(err, &mismatch):
		return field.TypeInvalid(at, value, "want a value of type "+mismatch.Type.Kind().String())
	case err != nil:
		return field.Invalid(at, value, err.Error())
	}
	return nil
}
