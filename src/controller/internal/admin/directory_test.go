package admin_test

import (
	"context"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi/wire"
)

func (worker) LookDirectory(context.Context, *wire.LookDirectoryRequest) (*wire.LookDirectoryResponse, error) {
	return &wire.LookDirectoryResponse{Node: "victim", Path: "/etc", Exists: true, Problems: []string{"a\x1b[2Jb"}}, nil
}

func (worker) TakeDirectory(_ context.Context, q *wire.TakeDirectoryRequest) (*wire.TakeDirectoryResponse, error) {
	answer := &wire.TakeDirectoryResponse{
		Id: q.GetId(), Pool: "other", Bytes: q.GetBytes(), Driver: "theirs", TopologyKey: "theirs", Node: "victim",
	}
	if q.GetId() == "pvc-2" {
		answer.Bytes--
	}
	return answer, nil
}

func (worker) ReturnDirectory(
	_ context.Context, q *wire.ReturnDirectoryRequest,
) (*wire.ReturnDirectoryResponse, error) {
	return &wire.ReturnDirectoryResponse{Id: "pvc-victim", Path: "/old/" + q.GetId(), Done: true}, nil
}

// TestDirectoriesOfANode: an answer is about what was asked, whatever the node says.
func TestDirectoriesOfANode(t *testing.T) {
	c := &cluster{connections: map[string]*grpc.ClientConn{
		"worker-1": serve(t, func(r grpc.ServiceRegistrar) { wire.RegisterAdminServer(r, worker{}) }),
	}}
	client := c.client(t)
	found, err := client.LookDirectory(t.Context(), &wire.LookDirectoryRequest{
		Node: "worker-1", Pool: "local", Path: "/old/pvc-1",
	})
	if err != nil || found.GetNode() != "worker-1" || found.GetPath() != "/old/pvc-1" || !found.GetExists() ||
		strings.Contains(found.GetProblems()[0], "\x1b") {
		t.Errorf("%+v, %v", found, err)
	}
	q := &wire.TakeDirectoryRequest{Node: "worker-1", Id: "pvc-1", Pool: "local", Path: "/old/pvc-1", Bytes: 5}
	taken, err := client.TakeDirectory(t.Context(), q)
	if err != nil || taken.GetPool() != "local" || taken.GetDriver() != "hpp" || taken.GetNode() != "worker-1" ||
		taken.GetTopologyKey() != "topology/node" || taken.GetShared() {
		t.Errorf("%+v, %v", taken, err)
	}
	q.Id = "pvc-2"
	if _, err = client.TakeDirectory(t.Context(), q); status.Code(err) != codes.Internal {
		t.Errorf("less than was asked for: %v", err)
	}
	back, err := client.ReturnDirectory(t.Context(), &wire.ReturnDirectoryRequest{Node: "worker-1", Id: "pvc-1"})
	if err != nil || back.GetId() != "pvc-1" || !back.GetDone() {
		t.Errorf("%+v, %v", back, err)
	}
	_, err = client.ReturnDirectory(t.Context(), &wire.ReturnDirectoryRequest{Id: "pvc-1"})
	if status.Code(err) != codes.InvalidArgument {
		t.Errorf("without a node: %v", err)
	}
}
