package csi

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	pb "github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/names"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/store"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/volume"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/bytesize"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/csi"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/kernel/bindmount"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/poolspec"
)

// defaultBytes is the size of a volume whose request names none; Kubernetes always does.
const defaultBytes = 1 << 30

func (c Config) specOf(q *pb.CreateVolumeRequest) (volume.Spec, error) {
	s := volume.Spec{
		ID: q.GetName(), Mode: defaultMode, OnDelete: store.Trash, InodesFrom: store.Derived,
		Parameters: maps.Clone(q.GetParameters()),
		Claim: nodeapi.Claim{
			Namespace: q.GetParameters()[nodeapi.KeyClaimNS], Name: q.GetParameters()[nodeapi.KeyClaimName],
		},
	}
	if uid, ok := strings.CutPrefix(s.ID, "pvc-"); ok { // external-provisioner makes the name of the claim's uid
		s.Claim.UID = uid
	}
	var content, mutable, size error
	s.Source, content = sourceOf(q.GetVolumeContentSource())
	if len(q.GetMutableParameters()) > 0 {
		mutable = invalid("mutable_parameters", "VolumeAttributesClass is not supported; want none, got %s",
			strings.Join(slices.Sorted(maps.Keys(q.GetMutableParameters())), ", "))
	}
	s.Bytes, s.MaxBytes, size = sizes(q.GetCapacityRange())
	err := cmp.Or(csi.CheckVolumeID("name", s.ID), capabilities("volume_capabilities", q.GetVolumeCapabilities()),
		content, mutable, size, apply(&s, "parameters", q.GetParameters(), setters()),
		c.reachable(q.GetAccessibilityRequirements()))
	if err == nil {
		err = c.setPools(&s, "parameters")
	}
	for i, pools := 0, s.Pools(); i < len(pools) && err == nil; i++ {
		err = c.accessModes("volume_capabilities", q.GetVolumeCapabilities(), pools[i])
	}
	return s, err
}

// setPools makes what a spec has of storagePool the pool that it means, or several.
func (c Config) setPools(s *volume.Spec, field string) error {
	pools, err := c.Pools.Resolve(s.Pool)
	if err != nil {
		return fmt.Errorf("%s.%s: %w", field, names.StoragePoolParameter, err)
	}
	if poolspec.Several(s.Pool) {
		s.Pool, s.Among = "", pools
	} else {
		s.Pool = pools[0]
	}
	return nil
}

// sizes reads a capacity range: bytes to make, and the most that is allowed, 0 for no limit. Without a range, or with a
// limit alone, the volume is 1 GiB or as large as the limit allows.
func sizes(r *pb.CapacityRange) (bytes, limit int64, err error) {
	required, limit := r.GetRequiredBytes(), r.GetLimitBytes()
	switch {
	case required < 0:
		return 0, 0, invalid("capacity_range.required_bytes", "%s: must not be negative", bytesize.Format(required))
	case limit < 0:
		return 0, 0, invalid("capacity_range.limit_bytes", "%s: must not be negative", bytesize.Format(limit))
	case r != nil && required == 0 && limit == 0:
		return 0, 0, invalid("capacity_range.required_bytes", "0: want the volume's size")
	case limit > 0 && limit < required:
		return 0, 0, invalid("capacity_range.limit_bytes", "%s is less than required_bytes %s",
			bytesize.Format(limit), bytesize.Format(required))
	case required > 0:
		return required, limit, nil
	case limit > 0:
		return min(defaultBytes, limit), limit, nil
	}
	return defaultBytes, 0, nil
}

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

func (c Config) here(t *pb.Topology) bool { return t.GetSegments()[c.TopologyKey] == c.NodeName }

func (c Config) inlineSpec(id string, attributes map[string]string) (*volume.Spec, error) {
	s := volume.Spec{
		ID: id, Bytes: defaultBytes, Mode: defaultMode, OnDelete: store.Purge, Ephemeral: true,
		InodesFrom: store.Derived,
		Claim: nodeapi.Claim{
			Namespace: attributes[keyPodNS], Name: attributes[keyPodName], UID: attributes[keyPodUID],
		},
		Parameters: maps.Clone(attributes),
	}
	// The keys of Kubernetes may have the pod's service account token.
	maps.DeleteFunc(s.Parameters, func(key, _ string) bool { return strings.HasPrefix(key, nodeapi.KeysOfKubernetes) })
	err := apply(&s, "volume_context", attributes, inlineSetters())
	if err == nil && poolspec.Several(s.Pool) {
		err = invalid("volume_context."+names.StoragePoolParameter,
			"%.64q: an inline ephemeral volume wants the name of one pool", s.Pool)
	}
	if err == nil {
		err = c.setPools(&s, "volume_context")
	}
	if err == nil && !c.Pools.Spec(s.Pool).Inline {
		err = invalid("volume_context."+names.StoragePoolParameter,
			"pool %.64q takes no inline ephemeral volumes; want one with inline: true", s.Pool)
	}
	return &s, err
}

func capabilities(field string, asked []*pb.VolumeCapability) error {
	if len(asked) == 0 {
		return invalid(field, "missing: want at least one")
	}
	for i, c := range asked {
		at := fmt.Sprintf("%s[%d]", field, i)
		if _, err := mountOptions(at, c); err != nil {
			return err
		}
		mode := c.GetAccessMode().GetMode()
		if _, known := pb.VolumeCapability_AccessMode_Mode_name[int32(mode)]; !known {
			return invalid(at+".access_mode", "%s is not known", mode)
		}
	}
	return nil
}

// accessModes checks that a pool allows every access mode that is asked for.
func (c Config) accessModes(field string, asked []*pb.VolumeCapability, pool string) error {
	if i := slices.IndexFunc(asked, csi.ForManyNodes); i >= 0 && !c.Pools.Spec(pool).AllowsMany() {
		return invalid(fmt.Sprintf("%s[%d].access_mode", field, i), "%s: a volume of pool %s lives on one node; want "+
			"ReadWriteOnce or ReadWriteOncePod (SINGLE_NODE_*), or a pool with sharedAccess: true or scope: shared",
			asked[i].GetAccessMode().GetMode(), pool)
	}
	return nil
}

// mountOptions reads what a capability says about mounting, the access mode included. It takes every access mode:
// volumes taken over from kubevirt's driver carry whatever their claims asked for.
func mountOptions(field string, c *pb.VolumeCapability) (bindmount.Options, error) {
	var o bindmount.Options
	switch {
	case c == nil:
		return o, invalid(field, "missing")
	case c.GetBlock() != nil:
		return o, invalid(field+".block", "block volumes are not supported; want volumeMode Filesystem")
	case c.GetMount() == nil:
		return o, invalid(field+".access_type", "missing: want mount")
	case c.GetAccessMode().GetMode() == pb.VolumeCapability_AccessMode_UNKNOWN:
		return o, invalid(field+".access_mode", "missing")
	}
	for _, flag := range c.GetMount().GetMountFlags() {
		for option := range strings.SplitSeq(flag, ",") {
			if err := setOption(&o, option); err != nil {
				return o, invalid(field+".mount.mount_flags", "%w", err)
			}
		}
	}
	mode := c.GetAccessMode().GetMode()
	o.ReadOnly = o.ReadOnly || mode == pb.VolumeCapability_AccessMode_SINGLE_NODE_READER_ONLY ||
		mode == pb.VolumeCapability_AccessMode_MULTI_NODE_READER_ONLY
	return o, nil
}

func setOption(o *bindmount.Options, option string) error {
	switches := map[string]*bool{"ro": &o.ReadOnly, "nosuid": &o.NoSUID, "nodev": &o.NoDev, "noexec": &o.NoExec}
	if on, ok := switches[option]; ok {
		*on = true
		return nil
	}
	if !slices.Contains([]string{"noatime", "nodiratime", "relatime", "strictatime"}, option) {
		return wrong(option,
			"a mount option out of ro, nosuid, nodev, noexec, noatime, nodiratime, relatime, strictatime")
	}
	if o.Atime != "" && o.Atime != option {
		return fmt.Errorf("%s and %s together: want one of them", o.Atime, option)
	}
	o.Atime = option
	return nil
}
