package admin_test

import (
	"bytes"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/admin"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// shows compares a table with lines, whose columns are one or more spaces apart.
func shows(t *testing.T, write func(*bytes.Buffer) error, want ...string) {
	t.Helper()
	var out bytes.Buffer
	if err := write(&out); err != nil {
		t.Fatal(err)
	}
	var got []string
	for line := range strings.Lines(out.String()) {
		if fields := strings.Fields(line); len(fields) > 0 {
			got = append(got, strings.Join(fields, " "))
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestNodes(t *testing.T) {
	now := time.Date(2026, 11, 22, 8, 0, 0, 0, time.UTC)
	got := nodeapi.Status{Driver: "hpp", Version: "0.1.0", Nodes: []nodeapi.NodeStatus{
		{
			Name: "worker-1", State: "connected", Version: "0.2.0", Since: now.Add(-time.Hour),
			Seen: now.Add(-time.Second),
			Pools: []nodeapi.PoolStatus{
				{
					Name: "local", State: nodeapi.StatePresent, Backend: "btrfs", Enforcement: "strict",
					Size: 100 << 30,
					Free: 60 << 30, Allocatable: 50 << 30, Promised: 1536, Volumes: 3,
				},
				{Name: "slow", State: nodeapi.StateAbsent, Message: "MarkerMissing: mount it"},
			},
		},
		{Name: "worker-2", State: "not connected", Message: "its driver does not reach the controller"},
	}}
	shows(t, func(out *bytes.Buffer) error { return admin.WriteTable(out, got, now) },
		"hpp 0.1.0, controller",
		"NODE STATE VERSION SEEN POOL PRESENCE BACKEND ENFORCEMENT SIZE FREE ALLOCATABLE PROMISED VOLUMES",
		"worker-1 connected 0.2.0 1s ago local present btrfs strict 100Gi 60Gi 50Gi 1.5Ki 3",
		"worker-1 connected 0.2.0 1s ago slow absent - - - - - - -",
		"worker-2 not connected - never - - - - - - - - -",
		"worker-1: slow: MarkerMissing: mount it",
		"worker-2: its driver does not reach the controller")
}

func TestVolumes(t *testing.T) {
	got := []nodeapi.VolumeStatus{
		{ID: "pvc-2", Node: "worker-2", Pool: "local", Bytes: 1 << 30, Used: -1, State: "orphan"},
		{
			ID: "pvc-3", Node: "worker-1", Pool: "local", Claim: "shop/data", PV: "pvc-3", Bytes: 10 << 30,
			Held: 4 << 30, Used: 512 << 20,
			Enforcement: "strict",
		},
		{ID: "pvc-1", Node: "worker-1", Pool: "local", Bytes: 1 << 30, State: "node not connected"},
	}
	shows(t, func(out *bytes.Buffer) error { return admin.WriteVolumes(out, got) },
		"ID NODE POOL CLAIM SIZE HELD USED ENFORCEMENT STATE",
		"pvc-2 worker-2 local - 1Gi - - - orphan",
		"pvc-3 worker-1 local shop/data 10Gi 4Gi 512Mi strict -",
		"pvc-1 worker-1 local - 1Gi - 0 - node not connected")
}

func TestDeleted(t *testing.T) {
	now := time.Date(2026, 11, 24, 8, 0, 0, 0, time.UTC)
	got := []nodeapi.DeletedVolume{
		{Node: "worker-0", State: "node worker-0 is not connected"},
		{
			Entry: "pvc-1.5", ID: "pvc-1", Node: "worker-1", Pool: "local", Claim: "shop/data", Bytes: 1 << 30,
			Deleted: now.Add(-50 * time.Hour), Due: now.Add(22 * time.Hour),
		},
		{Entry: "pvc-2.6", ID: "pvc-2", Node: "worker-1", Pool: "local", Bytes: 4096, Deleted: now, Due: now},
		{Entry: "pvc-3.7", ID: "pvc-3", Node: "worker-2", Pool: "slow", Bytes: 5 << 20, Deleted: now.Add(-time.Minute)},
	}
	shows(t, func(out *bytes.Buffer) error { return admin.WriteDeleted(out, got, now) },
		"ENTRY NODE POOL CLAIM SIZE DELETED PURGED",
		"pvc-1.5 worker-1 local shop/data 1Gi 2d2h ago in 22h",
		"pvc-2.6 worker-1 local - 4Ki 0s ago now",
		"pvc-3.7 worker-2 slow - 5Mi 60s ago never",
		"node worker-0 is not connected")
}

// TestNoDriver: whoever may not open the socket, or finds none, is told what to look at.
func TestNoDriver(t *testing.T) {
	_, err := admin.Volumes(t.Context(), t.TempDir())
	if err == nil || !strings.Contains(err.Error(), "admin.sock") || !strings.Contains(err.Error(), "is it running") {
		t.Errorf("got %v", err)
	}
}

// late answers that somebody has given up waiting.
type late struct {
	wire.UnimplementedAdminServer
}

func (late) Volumes(*wire.ListVolumesRequest, grpc.ServerStreamingServer[wire.ListedVolume]) error {
	return status.Error(codes.Canceled, "context canceled")
}

// TestNoAnswerInTime is no refusal: what was asked may be done.
func TestNoAnswerInTime(t *testing.T) {
	stateDir := t.TempDir()
	path, _ := strings.CutPrefix(admin.Endpoint(stateDir), "unix://")
	listener, err := new(net.ListenConfig).Listen(t.Context(), "unix", path)
	if err != nil {
		t.Fatal(err)
	}
	server, done := grpc.NewServer(), make(chan struct{})
	wire.RegisterAdminServer(server, late{})
	go func() { defer close(done); _ = server.Serve(listener) }()
	t.Cleanup(func() { server.Stop(); <-done })
	_, err = admin.Volumes(t.Context(), stateDir)
	if err == nil || strings.Contains(err.Error(), "refused") ||
		!strings.Contains(err.Error(), "may be done all the same") {
		t.Errorf("got %v", err)
	}
}
