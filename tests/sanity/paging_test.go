package sanity_test

import (
	"fmt"
	"slices"
	"testing"

	pb "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

// TestPagingWhileVolumesChange lists volumes page by page while those of the
// page before are deleted and others are made: each that stays is listed once.
func TestPagingWhileVolumesChange(t *testing.T) {
	d := start(t, buildDriver(t), directory)
	conn, err := grpc.NewClient("unix://"+d.socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
	})
	c := pb.NewControllerClient(conn)
	for i := range 7 {
		makeVolume(t, c, fmt.Sprintf("pvc-%d", i))
	}
	first, token := page(t, c, 3, "")
	if want := []string{"pvc-0", "pvc-1", "pvc-2"}; !slices.Equal(first, want) || token == "" {
		t.Fatalf("first page: %v, token %q; want %v and a token", first, token, want)
	}
	for _, id := range first {
		if _, err := c.DeleteVolume(t.Context(), &pb.DeleteVolumeRequest{VolumeId: id}); err != nil {
			t.Fatal(err)
		}
	}
	makeVolume(t, c, "pvc-0") // before the token: not listed any more
	makeVolume(t, c, "pvc-9") // after it
	rest, token := page(t, c, 4, token)
	last, end := page(t, c, 4, token)
	if got, want := slices.Concat(rest, last), []string{
		"pvc-3", "pvc-4", "pvc-5", "pvc-6", "pvc-9",
	}; !slices.Equal(got, want) || end != "" {
		t.Errorf("further pages: %v, then token %q; want %v and no token", got, end, want)
	}
}

func makeVolume(t *testing.T, c pb.ControllerClient, name string) {
	t.Helper()
	if _, err := c.CreateVolume(t.Context(), creation(name)); err != nil {
		t.Fatal(err)
	}
}

func creation(name string) *pb.CreateVolumeRequest {
	return &pb.CreateVolumeRequest{
		Name:          name,
		CapacityRange: &pb.CapacityRange{RequiredBytes: volumeBytes},
		VolumeCapabilities: []*pb.VolumeCapability{{
			AccessType: &pb.VolumeCapability_Mount{Mount: &pb.VolumeCapability_MountVolume{}},
			AccessMode: &pb.VolumeCapability_AccessMode{Mode: pb.VolumeCapability_AccessMode_SINGLE_NODE_WRITER},
		}},
	}
}

func page(t *testing.T, c pb.ControllerClient, limit int32, token string) (ids []string, next string) {
	t.Helper()
	answer, err := c.ListVolumes(t.Context(), &pb.ListVolumesRequest{MaxEntries: limit, StartingToken: token})
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range answer.GetEntries() {
		ids = append(ids, entry.GetVolume().GetVolumeId())
	}
	return ids, answer.GetNextToken()
}
