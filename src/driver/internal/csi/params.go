package csi

import (
	"fmt"
	"io/fs"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/names"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/store"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/volume"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/poolspec"
)

// Keys of inline volumes' attributes that only nodes read, beside those of nodeapi.
const (
	keySize      = "size"
	keyEphemeral = nodeapi.KeysOfKubernetes + "ephemeral"
	keyPodName   = nodeapi.KeysOfKubernetes + "pod.name"
	keyPodNS     = nodeapi.KeysOfKubernetes + "pod.namespace"
	keyPodUID    = nodeapi.KeysOfKubernetes + "pod.uid"

	// defaultMode lets any user write: csi/ itself is 0700, so only the bind mount leads to the volume.
	defaultMode = fs.FileMode(0o777)
	// maxID is the largest user or group id; one more means "unchanged" to chown(2).
	maxID = math.MaxUint32 - 1
	// maxValue bounds what a key of ours may say, in bytes: Kubernetes does not bound the attributes of inline volumes.
	maxValue = 1 << 10
)

// setters are what a StorageClass may say, each with what it does to the spec.
func setters() map[string]func(*volume.Spec, string) error {
	return map[string]func(*volume.Spec, string) error{
		names.StoragePoolParameter: func(s *volume.Spec, v string) error { s.Pool = v; return nil },
		nodeapi.KeyOverlay:         func(*volume.Spec, string) error { return nil },
		nodeapi.KeyDirectoryMode:   setMode,
		nodeapi.KeyUID:             func(s *volume.Spec, v string) (err error) { s.UID, err = ownerID(v); return err },
		nodeapi.KeyGID:             func(s *volume.Spec, v string) (err error) { s.GID, err = ownerID(v); return err },
		nodeapi.KeyInodeLimit:      setInodes,
		nodeapi.KeyOnDelete:        setDisposal,
		nodeapi.KeyRestoreTo: func(_ *volume.Spec, v string) error { // the controller goes by it
			if v != nodeapi.RestoreToPod && v != nodeapi.RestoreToSource {
				return wrong(v, nodeapi.RestoreToPod+" or "+nodeapi.RestoreToSource)
			}
			return nil
		},
	}
}

func inlineSetters() map[string]func(*volume.Spec, string) error {
	return map[string]func(*volume.Spec, string) error{
		names.StoragePoolParameter: func(s *volume.Spec, v string) error { s.Pool = v; return nil },
		nodeapi.KeyInodeLimit:      setInodes,
		keySize:                    setSize,
	}
}

// apply reads parameters into a spec. A key that is not known is refused: a misspelt one must not make a volume that is
// other than its author meant. The first refusal in the order of the keys counts.
func apply(
	s *volume.Spec, field string, given map[string]string, known map[string]func(*volume.Spec, string) error,
) error {
	for _, key := range slices.Sorted(maps.Keys(given)) {
		if strings.HasPrefix(key, nodeapi.KeysOfKubernetes) {
			continue
		}
		set, ok := known[key]
		if !ok {
			return invalid(field, "unknown key %.64q; known are %s", key,
				strings.Join(slices.Sorted(maps.Keys(known)), ", "))
		}
		if size := len(given[key]); size > maxValue {
			return invalid(field+"."+key, "%d bytes are too long: want at most %d", size, maxValue)
		}
		if err := set(s, given[key]); err != nil {
			return invalid(field+"."+key, "%w", err)
		}
	}
	return nil
}

func wrong(value, want string) error { return fmt.Errorf("%.64q: want %s", value, want) }

func setMode(s *volume.Spec, v string) error {
	bits, err := strconv.ParseUint(v, 8, 32)
	if err != nil || bits > 0o3777 {
		return wrong(v, `octal permissions from "0000" to "3777", such as "0750"`)
	}
	s.Mode = store.FileMode(uint32(bits))
	return nil
}

func ownerID(v string) (int, error) {
	id, err := strconv.ParseUint(v, 10, 32)
	if err != nil || id > maxID {
		return 0, wrong(v, `a whole number from "0" to "4294967294"`)
	}
	return int(id), nil
}

func setInodes(s *volume.Spec, v string) error {
	limit, err := strconv.ParseInt(v, 10, 64)
	if err != nil || limit < 0 {
		return wrong(v, `a whole number, "0" for no limit`)
	}
	s.Inodes, s.InodesFrom = limit, store.FromClass
	return nil
}

func setDisposal(s *volume.Spec, v string) error {
	s.OnDelete = store.Disposal(v)
	if !nodeapi.IsOnDelete(v) {
		return wrong(v, "trash, purge or retain")
	}
	return nil
}

func setSize(s *volume.Spec, v string) error {
	var err error
	if s.Bytes, err = poolspec.ParseBytes(v); err == nil && s.Bytes <= 0 {
		return wrong(v, `more than 0 bytes, such as "1Gi"`)
	}
	return err
}
