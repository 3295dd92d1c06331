package csi

import (
	"cmp"
	"context"
	"fmt"
	"path"

	pb "github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/records"
)

// NodeExpandVolume grows a volume, mounted or not, while pods write to it.
func (n *node) NodeExpandVolume(
	ctx context.Context, q *pb.NodeExpandVolumeRequest,
) (*pb.NodeExpandVolumeResponse, error) {
	bytes, limit, err := growth(q.GetCapacityRange())
	if err := cmp.Or(volumeID("volume_id", q.GetVolumeId()), volumePath(q.GetVolumePath()), err); err != nil {
		return nil, toStatus(expand, err)
	}
	v, err := n.Publisher.Expand(ctx, q.GetVolumeId(), bytes, limit)
	if err != nil {
		return nil, toStatus(expand, err)
	}
	return &pb.NodeExpandVolumeResponse{CapacityBytes: v.Bytes}, nil
}

// volumePath checks where a volume is said to be published.
func volumePath(name string) error {
	if name == "" {
		return invalid("volume_path", "missing")
	}
	if !path.IsAbs(name) {
		return fmt.Errorf("%w: nothing can be published at the relative volume_path %.128q", records.ErrNotFound, name)
	}
	return nil
}

// growth reads the capacity range of an expansion: at least one byte, which is to leave the volume as it is, where
// there is none.
func growth(r *pb.CapacityRange) (bytes, limit int64, err error) {
	if r == nil || r.GetRequiredBytes() == 0 && r.GetLimitBytes() > 0 {
		return 1, r.GetLimitBytes(), nil
	}
	return sizes(r)
}
