package store

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/disk"
)

// Replace makes a record durable in the place of an older one, with those fields of that which this driver does not
// know: a newer one may have added them. After an error either may be there, and the new one not durable.
func Replace(d disk.FS, r Record) error {
	return write(d, r, func(d disk.FS, name string, data []byte) error {
		older, err := d.ReadFile(name)
		if errors.Is(err, fs.ErrNotExist) {
			return disk.ReplaceFile(d, name, data)
		}
		if err == nil {
			data, err = withUnknown(data, older)
		}
		if err != nil {
			return fmt.Errorf("see what the record says that this driver does not know: %w", err)
		}
		return disk.ReplaceFile(d, name, data)
	})
}

// withUnknown adds the fields of an older record that no field of Record takes to the end of a new one.
func withUnknown(data, older []byte) ([]byte, error) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(older, &fields); err != nil {
		return nil, err
	}
	for f := range reflect.TypeFor[Record]().Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		maps.DeleteFunc(fields, func(key string, _ json.RawMessage) bool { return strings.EqualFold(key, name) })
	}
	if len(fields) == 0 {
		return data, nil
	}
	unknown, err := json.Marshal(fields)
	if err != nil {
		return nil, err
	}
	var whole bytes.Buffer
	known := bytes.TrimSuffix(data, []byte("}\n"))
	if err := json.Indent(&whole, slices.Concat(known, []byte(","), unknown[1:]), "", "  "); err != nil {
		return nil, err
	}
	return append(whole.Bytes(), '\n'), nil
}
