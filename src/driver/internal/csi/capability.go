package csi

import (
	"fmt"
	"strings"

	pb "github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/kernel/bindmount"
)

// modeOf is short for the enumeration of access modes.
type modeOf = pb.VolumeCapability_AccessMode_Mode

// capabilities checks those that a volume is asked to have.
func capabilities(field string, asked []*pb.VolumeCapability) error {
	if len(asked) == 0 {
		return invalid(field, "missing: want at least one")
	}
	for i, c := range asked {
		at := fmt.Sprintf("%s[%d]", field, i)
		if _, err := mountOptions(at, c); err != nil {
			return err
		}
		switch mode := c.GetAccessMode().GetMode(); mode {
		case pb.VolumeCapability_AccessMode_SINGLE_NODE_WRITER, pb.VolumeCapability_AccessMode_SINGLE_NODE_READER_ONLY,
			pb.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER, pb.VolumeCapability_AccessMode_SINGLE_NODE_MULTI_WRITER:
		default:
			return invalid(at+".access_mode", "%s: volumes live on one node; want ReadWriteOnce or ReadWriteOncePod "+
				"(SINGLE_NODE_*)", mode)
		}
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
	o.ReadOnly = o.ReadOnly || readerOnly(c.GetAccessMode().GetMode())
	return o, nil
}

func setOption(o *bindmount.Options, option string) error {
	switch option {
	case "ro":
		o.ReadOnly = true
	case "nosuid":
		o.NoSUID = true
	case "nodev":
		o.NoDev = true
	case "noexec":
		o.NoExec = true
	case "noatime", "nodiratime", "relatime", "strictatime":
		if o.Atime != "" && o.Atime != option {
			return fmt.Errorf("%s and %s together: want one of them", o.Atime, option)
		}
		o.Atime = option
	default:
		return wrong(option, "a mount option out of ro, nosuid, nodev, noexec, noatime, nodiratime, relatime, strictatime")
	}
	return nil
}

func readerOnly(mode modeOf) bool {
	return mode == pb.VolumeCapability_AccessMode_SINGLE_NODE_READER_ONLY ||
		mode == pb.VolumeCapability_AccessMode_MULTI_NODE_READER_ONLY
}
