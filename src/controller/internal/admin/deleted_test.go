package admin_test

import (
	"errors"
	"io"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi/wire"
)

// TestDeleted: the nodes are asked, what can be no deleted volume is left out, and a node that does not answer is said.
func TestDeleted(t *testing.T) {
	c := &cluster{
		nodes: []nodeapi.NodeStatus{{Name: "away"}, {Name: "old"}, {Name: "worker-1"}},
		connections: map[string]*grpc.ClientConn{
			"worker-1": serve(t, func(r grpc.ServiceRegistrar) { wire.RegisterAdminServer(r, worker{}) }),
			"old":      serve(t, func(grpc.ServiceRegistrar) {}),
		},
	}
	stream, err := c.client(t).Deleted(t.Context(), &wire.DeletedRequest{})
	var got []string
	for err == nil {
		var v *wire.DeletedVolume
		if v, err = stream.Recv(); err == nil {
			got = append(got, v.GetNode()+": "+v.GetEntry()+v.GetState())
		}
	}
	if !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
	want := []string{
		"away: node away is not connected",
		"old: node old: its driver is of an older version, which takes no commands from the controller; run the " +
			"command in its pod",
		"worker-1: pvc-1.5",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
