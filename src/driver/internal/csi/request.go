package csi

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	pb "github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/records"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/volume"
)

// defaultBytes is the size of a volume whose request names none; Kubernetes always does.
const defaultBytes = 1 << 30

// specOf is the volume that a CreateVolume asks for.
func (c Config) specOf(q *pb.CreateVolumeRequest) (volume.Spec, error) {
	s := volume.Spec{
		ID: q.GetName(), Mode: defaultMode, OnDelete: records.Trash,
		Claim: claim(q.GetName(), q.GetParameters()), Parameters: maps.Clone(q.GetParameters()),
	}
	if err := volumeID("name", s.ID); err != nil {
		return s, err
	}
	if err := capabilities("volume_capabilities", q.GetVolumeCapabilities()); err != nil {
		return s, err
	}
	if q.GetVolumeContentSource() != nil {
		return s, invalid("volume_content_source", "snapshots and clones are not supported; want an empty volume")
	}
	if len(q.GetMutableParameters()) > 0 {
		return s, invalid("mutable_parameters", "VolumeAttributesClass is not supported; want none, got %s",
			strings.Join(slices.Sorted(maps.Keys(q.GetMutableParameters())), ", "))
	}
	var err error
	if s.Bytes, s.MaxBytes, err = sizes(q.GetCapacityRange()); err != nil {
		return s, err
	}
	if err := apply(&s, "parameters", q.GetParameters(), setters()); err != nil {
		return s, err
	}
	if err := c.reachable(q.GetAccessibilityRequirements()); err != nil {
		return s, err
	}
	s.Pool, err = c.pool("parameters", s.Pool)
	return s, err
}

// pool is the one that is meant by the storagePool of a field.
func (c Config) pool(field, name string) (string, error) {
	resolved, err := c.Pools.Resolve(name)
	if err != nil {
		return "", fmt.Errorf("%s.%s: %w", field, keyPool, err)
	}
	return resolved, nil
}

// sizes reads a capacity range: bytes to make, and the most that is allowed, 0 for no limit. Without a range, or with a
// limit alone, the volume is 1 GiB or as large as the limit allows.
func sizes(r *pb.CapacityRange) (bytes, limit int64, err error) {
	required, limit := r.GetRequiredBytes(), r.GetLimitBytes()
	switch {
	case required < 0:
		return 0, 0, invalid("capacity_range.required_bytes", "%d: must not be negative", required)
	case limit < 0:
		return 0, 0, invalid("capacity_range.limit_bytes", "%d: must not be negative", limit)
	case r != nil && required == 0 && limit == 0:
		return 0, 0, invalid("capacity_range.required_bytes", "0: want the volume's size in bytes")
	case limit > 0 && limit < required:
		return 0, 0, invalid("capacity_range.limit_bytes", "%d is less than required_bytes %d", limit, required)
	case required > 0:
		return required, limit, nil
	case limit > 0:
		return min(defaultBytes, limit), limit, nil
	}
	return defaultBytes, 0, nil
}

// reachable reports whether a volume on this node is what is asked for.
func (c Config) reachable(r *pb.TopologyRequirement) error {
	wanted := r.GetRequisite()
	if len(wanted) == 0 {
		wanted = r.GetPreferred()
	}
	if len(wanted) == 0 || slices.ContainsFunc(wanted, c.here) {
		return nil
	}
	return fmt.Errorf("%w: accessibility_requirements do not contain %s=%s", errElsewhere, c.TopologyKey, c.NodeName)
}

// here reports whether a topology is this node's.
func (c Config) here(t *pb.Topology) bool {
	return t.GetSegments()[c.TopologyKey] == c.NodeName
}

// inlineSpec is the volume that a pod's inline volume asks for.
func (c Config) inlineSpec(id string, attributes map[string]string) (*volume.Spec, error) {
	s := volume.Spec{
		ID: id, Bytes: defaultBytes, Mode: defaultMode, OnDelete: records.Purge, Claim: pod(attributes), Ephemeral: true,
		Parameters: map[string]string{},
	}
	for key, value := range attributes {
		if !strings.HasPrefix(key, keysOfKubernetes) { // those may have the pod's service account token
			s.Parameters[key] = value
		}
	}
	if err := apply(&s, "volume_context", attributes, inlineSetters()); err != nil {
		return nil, err
	}
	var err error
	if s.Pool, err = c.pool("volume_context", s.Pool); err != nil {
		return nil, err
	}
	if !c.Pools.Inline(s.Pool) {
		return nil, invalid("volume_context."+keyPool,
			"pool %.64q takes no inline ephemeral volumes; want one with inline: true", s.Pool)
	}
	return &s, nil
}
