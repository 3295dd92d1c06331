package csi_test

import (
	"context"
	"fmt"
	"testing"

	pb "github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/csi"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/ledger"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/records"
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
		"no range: as it is": {asked: &pb.NodeExpandVolumeRequest{VolumeId: "pvc-1", VolumePath: at}, call: "pvc-1 1 0"},
		"no room": {
			asked: &pb.NodeExpandVolumeRequest{
				VolumeId: "pvc-1", VolumePath: at,
				CapacityRange: &pb.CapacityRange{RequiredBytes: 2 << 30},
			},
			err: ledger.ErrNoSpace, call: "pvc-1 2147483648 0", code: codes.FailedPrecondition,
		},
		"no id":      {asked: &pb.NodeExpandVolumeRequest{VolumePath: at}, code: codes.InvalidArgument},
		"no path":    {asked: &pb.NodeExpandVolumeRequest{VolumeId: "pvc-1"}, code: codes.InvalidArgument},
		"a bad path": {asked: &pb.NodeExpandVolumeRequest{VolumeId: "pvc-1", VolumePath: "some/path"}, code: codes.NotFound},
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
				return volume.Volume{Record: records.Record{ID: id, Bytes: 7 << 30}}, test.err
			}})
			answer, err := c.NodeExpandVolume(t.Context(), test.asked)
			if status.Code(err) != test.code || call != test.call || (err == nil && answer.GetCapacityBytes() != 7<<30) {
				t.Errorf("%v, %v after asking %q; want code %s after %q", answer, err, call, test.code, test.call)
			}
		})
	}
}

// grower answers for package growth, and counts how often it is told of a new asker.
type grower struct {
	begun  int
	expand func(id string, bytes, limit int64) (int64, error)
}

func (g *grower) Begin() { g.begun++ }

func (g *grower) Expand(_ context.Context, id string, bytes, limit int64) (int64, error) {
	return g.expand(id, bytes, limit)
}

func TestControllerExpandVolume(t *testing.T) {
	judge := &grower{expand: func(id string, bytes, _ int64) (int64, error) {
		if id != "pvc-1" {
			return 0, fmt.Errorf("%w: node one publishes less", volume.ErrOutOfRange)
		}
		return bytes + 1, nil
	}}
	services, err := csi.NewExpander("kubevirt.io.hostpath-provisioner", "0.1.0", judge)
	if err != nil {
		t.Fatal(err)
	}
	conn := dial(t, services)
	capabilities, err := pb.NewControllerClient(conn).ControllerGetCapabilities(t.Context(),
		&pb.ControllerGetCapabilitiesRequest{})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, c := range capabilities.GetCapabilities() {
		got = append(got, c.GetRpc().GetType().String())
	}
	if diff := cmp.Diff([]string{"EXPAND_VOLUME"}, got); diff != "" {
		t.Error(diff)
	}
	ask := func(id string, r *pb.CapacityRange) (*pb.ControllerExpandVolumeResponse, error) {
		return pb.NewControllerClient(conn).ControllerExpandVolume(t.Context(),
			&pb.ControllerExpandVolumeRequest{VolumeId: id, CapacityRange: r})
	}
	if answer, err := ask("pvc-1", &pb.CapacityRange{RequiredBytes: 41}); err != nil || answer.GetCapacityBytes() != 42 ||
		!answer.GetNodeExpansionRequired() {
		t.Errorf("allowed: %v, %v", answer, err)
	}
	for id, want := range map[string]codes.Code{
		"pvc-2": codes.OutOfRange, "": codes.InvalidArgument,
		"../x": codes.InvalidArgument,
	} {
		if _, err := ask(id, &pb.CapacityRange{RequiredBytes: 41}); status.Code(err) != want {
			t.Errorf("%q: %v, want %s", id, err, want)
		}
	}
	if _, err := ask("pvc-1", nil); status.Code(err) != codes.InvalidArgument {
		t.Errorf("no range: %v", err)
	}
	if _, err := pb.NewIdentityClient(conn).Probe(t.Context(), &pb.ProbeRequest{}); err != nil {
		t.Errorf("probe: %v", err)
	}
	if judge.begun != 0 {
		t.Error("a new asker was announced by questions that are asked again and again")
	}
	info, err := pb.NewIdentityClient(conn).GetPluginInfo(t.Context(), &pb.GetPluginInfoRequest{})
	if err != nil || info.GetName() != "kubevirt.io.hostpath-provisioner" || judge.begun != 1 {
		t.Errorf("%v, %v; a new asker was announced %d times, want once, with its question for the name", info, err,
			judge.begun)
	}
	if _, err := csi.NewExpander("", "", nil); err == nil {
		t.Error("services of nothing")
	}
}
