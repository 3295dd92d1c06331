package csi_test

import (
	"fmt"
	"testing"

	pb "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/ledger"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/pool"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/store"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/volume"
)

func TestNodeExpandVolume(t *testing.T) {
	const at = "/var/lib/kubelet/pods/1/volumes/x/mount"
	for name, test := range map[string]struct {
		asked *pb.NodeExpandVolumeRequest
		err   error
		call  string // what the domain is asked, "" for nothing
		code  codes.Code
	}{
		"grows": {
			asked: &pb.NodeExpandVolumeRequest{
				VolumeId: "pvc-1", VolumePath: at,
				CapacityRange: &pb.CapacityRange{RequiredBytes: 2 << 30, LimitBytes: 3 << 30},
			},
			call: "pvc-1 2147483648 3221225472",
		},
		"no range: as it is": {
			asked: &pb.NodeExpandVolumeRequest{VolumeId: "pvc-1", VolumePath: at},
			call:  "pvc-1 1 0",
		},
		"no room": {
			asked: &pb.NodeExpandVolumeRequest{
				VolumeId: "pvc-1", VolumePath: at,
				CapacityRange: &pb.CapacityRange{RequiredBytes: 2 << 30},
			},
			err: ledger.ErrNoSpace, call: "pvc-1 2147483648 0", code: codes.FailedPrecondition,
		},
		"no id":   {asked: &pb.NodeExpandVolumeRequest{VolumePath: at}, code: codes.InvalidArgument},
		"no path": {asked: &pb.NodeExpandVolumeRequest{VolumeId: "pvc-1"}, code: codes.InvalidArgument},
		"a bad path": {
			asked: &pb.NodeExpandVolumeRequest{VolumeId: "pvc-1", VolumePath: "some/path"},
			code:  codes.NotFound,
		},
		"a bad range": {
			asked: &pb.NodeExpandVolumeRequest{
				VolumeId: "pvc-1", VolumePath: at,
				CapacityRange: &pb.CapacityRange{RequiredBytes: -1},
			}, code: codes.InvalidArgument,
		},
	} {
		t.Run(name, func(t *testing.T) {
			call := ""
			c := serve(t, &fake{expand: func(id string, bytes, limit int64) (volume.Volume, error) {
				call = fmt.Sprint(id, " ", bytes, " ", limit)
				return volume.Volume{Record: store.Record{ID: id, Bytes: 7 << 30}}, test.err
			}})
			answer, err := c.NodeExpandVolume(t.Context(), test.asked)
			if status.Code(err) != test.code || call != test.call ||
				(err == nil && answer.GetCapacityBytes() != 7<<30) {
				t.Errorf("%v, %v after asking %q; want code %s after %q", answer, err, call, test.code, test.call)
			}
		})
	}
}

func TestControllerExpandVolume(t *testing.T) {
	two := &pb.CapacityRange{RequiredBytes: 2 << 30, LimitBytes: 3 << 30}
	for name, test := range map[string]struct {
		id    string
		asked *pb.CapacityRange
		err   error
		call  string // what the domain is asked, "" for nothing
		code  codes.Code
	}{
		"grows":    {"pvc-1", two, nil, "pvc-1 2147483648 3221225472", codes.OK},
		"no room":  {"pvc-1", two, ledger.ErrNoSpace, "pvc-1 2147483648 3221225472", codes.OutOfRange},
		"absent":   {"pvc-1", two, pool.ErrAbsent, "pvc-1 2147483648 3221225472", codes.Unavailable},
		"no id":    {"", two, nil, "", codes.InvalidArgument},
		"a bad id": {"../x", two, nil, "", codes.InvalidArgument},
		"no range": {"pvc-1", nil, nil, "", codes.InvalidArgument},
		"a bad range": {
			"pvc-1", &pb.CapacityRange{RequiredBytes: 3, LimitBytes: 2}, nil, "", codes.InvalidArgument,
		},
	} {
		t.Run(name, func(t *testing.T) {
			call := ""
			c := serve(t, &fake{expand: func(id string, bytes, limit int64) (volume.Volume, error) {
				call = fmt.Sprint(id, " ", bytes, " ", limit)
				return volume.Volume{Record: store.Record{ID: id, Bytes: 7 << 30}}, test.err
			}})
			answer, err := c.ControllerExpandVolume(t.Context(),
				&pb.ControllerExpandVolumeRequest{VolumeId: test.id, CapacityRange: test.asked})
			if status.Code(err) != test.code || call != test.call ||
				(err == nil && answer.GetCapacityBytes() != 7<<30) {
				t.Errorf("%v, %v after asking %q; want code %s after %q", answer, err, call, test.code, test.call)
			}
			if answer.GetNodeExpansionRequired() {
				t.Error("something is left for the kubelet")
			}
		})
	}
}
