package admin_test

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/controller/internal/admin"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/controller/internal/works"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// serve serves something on a connection in memory, until the end of the test.
func serve(t *testing.T, register func(grpc.ServiceRegistrar)) *grpc.ClientConn {
	t.Helper()
	server, listener, done := grpc.NewServer(), bufconn.Listen(1<<16), make(chan struct{})
	register(server)
	go func() { defer close(done); _ = server.Serve(listener) }()
	conn, err := grpc.NewClient("passthrough:///in-memory", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			return listener.DialContext(ctx)
		}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(); server.Stop(); <-done })
	return conn
}

// cluster is what the controller knows.
type cluster struct {
	nodes       []nodeapi.NodeStatus
	volumes     []nodeapi.VolumeStatus
	err         error
	connections map[string]*grpc.ClientConn
}

func (c *cluster) Nodes() []nodeapi.NodeStatus { return c.nodes }

func (c *cluster) Volumes(context.Context) ([]nodeapi.VolumeStatus, error) { return c.volumes, c.err }

func (c *cluster) Connection(node string) (grpc.ClientConnInterface, error) {
	if conn := c.connections[node]; conn != nil {
		return conn, nil
	}
	return nil, status.Errorf(codes.Unavailable, "node %s is not connected", node)
}

func (c *cluster) Everywhere(pool string) bool { return pool == "everybodys" }

func (c *cluster) client(t *testing.T) wire.AdminClient {
	t.Helper()
	room := works.New(time.Now)
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); room.Run(ctx) }()
	t.Cleanup(func() { stop(); <-done })
	return wire.NewAdminClient(serve(t, admin.New(admin.Config{
		Driver: "hpp", Version: "0.1.0", TopologyKey: "topology/node", Nodes: c, Works: room,
	}).Register))
}

func TestStatus(t *testing.T) {
	c := &cluster{nodes: []nodeapi.NodeStatus{
		{Name: "worker-1", State: "connected", Pools: []nodeapi.PoolStatus{{Name: "local", Size: 7}}},
		{Name: "worker-2", State: "not connected", Message: "away"},
	}}
	got, err := c.client(t).Status(t.Context(), &wire.StatusRequest{})
	if err != nil {
		t.Fatal(err)
	}
	want := nodeapi.Status{Driver: "hpp", Version: "0.1.0", Nodes: c.nodes}
	if diff := cmp.Diff(want, wire.ToStatus(got), cmpopts.EquateEmpty()); diff != "" {
		t.Error(diff)
	}
}

func TestVolumes(t *testing.T) {
	c := &cluster{volumes: []nodeapi.VolumeStatus{
		{ID: "pvc-2", Node: "worker-2", Pool: "local", State: "orphan"},
		{ID: "pvc-3", Node: "worker-1", Pool: "local", PV: "pvc-3"},
		{ID: "pvc-1", Node: "worker-1", Pool: "local"},
	}}
	client := c.client(t)
	list := func() (ids []string, err error) {
		stream, err := client.Volumes(t.Context(), &wire.ListVolumesRequest{})
		for err == nil {
			var v *wire.ListedVolume
			if v, err = stream.Recv(); err == nil {
				ids = append(ids, v.GetNode()+" "+v.GetVolume().GetId()+", "+v.GetPv()+v.GetState())
			}
		}
		if errors.Is(err, io.EOF) {
			err = nil
		}
		return ids, err
	}
	got, err := list()
	want := []string{"worker-1 pvc-1, ", "worker-1 pvc-3, pvc-3", "worker-2 pvc-2, orphan"}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("%v: %s", err, diff)
	}
	c.err = errors.New("no node answers")
	if _, err = list(); status.Convert(err).Message() != "no node answers" {
		t.Errorf("got %v", err)
	}
}

// worker is a node that says what it is asked.
type worker struct {
	wire.UnimplementedAdminServer
}

func (worker) Adopt(_ context.Context, q *wire.AdoptRequest) (*wire.AdoptResponse, error) {
	v := &wire.Volume{Id: q.GetId(), Pool: "local", Bytes: 5, ClaimNamespace: "shop", ClaimName: "data"}
	switch q.GetId() {
	case "shared":
		v.Pool = "everybodys"
	case "other":
		v.Id = "pvc-victim"
	case "pool":
		v.Pool = "a\nb"
	case "claim":
		v.ClaimName = "a\nkind: ClusterRoleBinding"
	}
	return &wire.AdoptResponse{Volume: v, Shared: true, Driver: "theirs", TopologyKey: "theirs", Node: "victim"}, nil
}

func (worker) Undelete(_ context.Context, q *wire.UndeleteRequest) (*wire.AdoptResponse, error) {
	id, _, _ := strings.Cut(q.GetEntry(), ".")
	return worker{}.Adopt(context.Background(), &wire.AdoptRequest{Id: id})
}

func (worker) Deleted(_ *wire.DeletedRequest, out grpc.ServerStreamingServer[wire.DeletedVolume]) error {
	for _, v := range []*wire.DeletedVolume{
		{Entry: "pvc-1.5", Volume: &wire.Volume{Id: "pvc-1", Pool: "local", Bytes: 5}, Node: "victim", State: "owned"},
		{Entry: "pvc-1.5", Volume: &wire.Volume{Id: "pvc-2", Pool: "local", Bytes: 5}},
		{Entry: "a\nb.5", Volume: &wire.Volume{Id: "a\nb", Pool: "local", Bytes: 5}},
		{Entry: "pvc-1.5", Volume: &wire.Volume{Id: "pvc-1", Pool: "a\nb", Bytes: 5}},
		{Entry: "pvc-1.5", Volume: &wire.Volume{
			Id: "pvc-1", Pool: "local", Bytes: 5, ClaimNamespace: "a", ClaimName: "a\x1b",
		}},
		{State: "\x1b"},
		{},
	} {
		if err := out.Send(v); err != nil {
			return err
		}
	}
	return nil
}

func (worker) Discard(context.Context, *wire.DiscardRequest) (*wire.DiscardResponse, error) {
	return nil, status.Error(codes.NotFound, "no such\x1b[2Jvolume\n")
}

func (worker) ForgetPool(context.Context, *wire.ForgetPoolRequest) (*wire.ForgetPoolResponse, error) {
	return &wire.ForgetPoolResponse{Known: true}, nil
}

func (worker) TakePool(_ context.Context, q *wire.TakePoolRequest) (*wire.TakePoolResponse, error) {
	return nil, status.Error(codes.FailedPrecondition, "it belongs to others than "+q.GetFrom())
}

func (worker) Enforce(q *wire.EnforceRequest, out grpc.ServerStreamingServer[wire.Progress]) error {
	for _, id := range q.GetIds() {
		if err := out.Send(&wire.Progress{Id: id, Done: true}); err != nil {
			return err
		}
	}
	if q.GetPool() != "" {
		return status.Error(codes.NotFound, "no such pool")
	}
	return nil
}

// holder is a node that has one volume, and another in part, and knows of a third.
type holder struct {
	wire.UnimplementedAdminServer
}

func (holder) Moving(_ context.Context, q *wire.MovingRequest) (*wire.MovingVolume, error) {
	switch q.GetId() {
	case "pvc-1":
		return &wire.MovingVolume{Id: "pvc-1"}, nil
	case "pvc-copy":
		return &wire.MovingVolume{Id: "pvc-copy", Filling: true}, nil
	case "pvc-lost":
		return &wire.MovingVolume{Id: "pvc-lost", Lost: true}, nil
	case "pvc-pool":
		return nil, status.Error(codes.Unavailable, "pool local cannot be used")
	}
	return nil, status.Error(codes.NotFound, "no such volume")
}

// TestANodeDoesIt: what concerns a node's pools is passed on to it, and its answer comes back, with its name in a
// refusal.
func TestANodeDoesIt(t *testing.T) {
	c := &cluster{connections: map[string]*grpc.ClientConn{
		"worker-1": serve(t, func(r grpc.ServiceRegistrar) { wire.RegisterAdminServer(r, worker{}) }),
		"worker-2": serve(t, func(r grpc.ServiceRegistrar) { wire.RegisterAdminServer(r, holder{}) }),
		"old":      serve(t, func(grpc.ServiceRegistrar) {}),
	}}
	client := c.client(t)
	enforce := func(node, pool string, ids ...string) string {
		var said strings.Builder
		stream, err := client.Enforce(t.Context(), &wire.EnforceRequest{Node: node, Pool: pool, Ids: ids})
		for err == nil {
			var p *wire.Progress
			if p, err = stream.Recv(); err == nil {
				said.WriteString(p.GetId() + " ")
			}
		}
		if errors.Is(err, io.EOF) {
			return said.String()
		}
		return said.String() + err.Error()
	}
	word := func(answer string, err error) string {
		if err != nil {
			return err.Error()
		}
		return answer
	}
	adopt := func(node string) string {
		answer, err := client.Adopt(t.Context(), &wire.AdoptRequest{Node: node, Id: "pvc-1"})
		return word(answer.GetVolume().GetId()+" on "+answer.GetNode(), err)
	}
	discard := func(id, other string) string {
		_, err := client.Discard(t.Context(), &wire.DiscardRequest{Node: "worker-1", Id: id, PvOn: other})
		return word("", err)
	}
	forget := func() string {
		answer, err := client.ForgetPool(t.Context(), &wire.ForgetPoolRequest{Node: "worker-1", Pool: "local"})
		return word(map[bool]string{true: "known"}[answer.GetKnown()], err)
	}
	take := func() string {
		_, err := client.TakePool(t.Context(), &wire.TakePoolRequest{Node: "worker-1", Pool: "nfs", From: "us"})
		return word("", err)
	}
	const refused = "rpc error: code = "
	const partial = refused + "FailedPrecondition desc = node worker-2 does not have the volume, or not all of it: " +
		"what node worker-1 has may be all there is; replace the PersistentVolume, see docs/how-to/move-a-disk.md"
	want := []string{
		"pvc-1 on worker-1",
		refused + "InvalidArgument desc = node: the controller has no pools; name the node with --node",
		refused + "Unavailable desc = node worker-9 is not connected",
		refused + "FailedPrecondition desc = node old: its driver is of an older version, which takes no commands " +
			"from the controller; run the command in its pod",
		refused + "NotFound desc = node worker-1: no such [2Jvolume ",
		refused + "NotFound desc = node worker-1: no such [2Jvolume ",
		partial, partial, partial,
		refused + "Unavailable desc = node worker-2: pool local cannot be used",
		refused + "Unavailable desc = node worker-9 is not connected",
		"known",
		refused + "FailedPrecondition desc = node worker-1: it belongs to others than us",
		"a b ",
		refused + "NotFound desc = node worker-1: no such pool",
		"a " + refused + "NotFound desc = node worker-1: no such pool",
	}
	got := []string{
		adopt("worker-1"), adopt(""), adopt("worker-9"), adopt("old"), discard("pvc-1", ""),
		discard("pvc-1", "worker-2"), discard("pvc-2", "worker-2"),
		discard("pvc-copy", "worker-2"), discard("pvc-lost", "worker-2"), discard("pvc-pool", "worker-2"),
		discard("pvc-1", "worker-9"), forget(), take(),
		enforce("worker-1", "", "a", "b"), enforce("worker-1", "local"), enforce("worker-1", "local", "a"),
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// TestANodeDecidesNoPersistentVolume: what an administrator creates from a node's answer is about the volume that was
// asked for, on that node, of this driver.
func TestANodeDecidesNoPersistentVolume(t *testing.T) {
	c := &cluster{connections: map[string]*grpc.ClientConn{
		"worker-1": serve(t, func(r grpc.ServiceRegistrar) { wire.RegisterAdminServer(r, worker{}) }),
	}}
	client := c.client(t)
	for id, shared := range map[string]bool{"pvc-1": false, "shared": true} {
		got, err := client.Adopt(t.Context(), &wire.AdoptRequest{Node: "worker-1", Id: id})
		if err != nil || got.GetShared() != shared || got.GetDriver() != "hpp" ||
			got.GetTopologyKey() != "topology/node" || got.GetNode() != "worker-1" || got.GetVolume().GetId() != id {
			t.Errorf("%s: %v, %v", id, got, err)
		}
	}
	got, err := client.Undelete(t.Context(), &wire.UndeleteRequest{Node: "worker-1", Entry: "pvc-1.5"})
	if err != nil || got.GetDriver() != "hpp" || got.GetNode() != "worker-1" || got.GetVolume().GetId() != "pvc-1" {
		t.Errorf("undelete: %v, %v", got, err)
	}
	for _, id := range []string{"other", "pool", "claim"} {
		got, err := client.Adopt(t.Context(), &wire.AdoptRequest{Node: "worker-1", Id: id})
		if status.Code(err) != codes.Internal {
			t.Errorf("%s: %v, %v", id, got, err)
		}
		got, err = client.Undelete(t.Context(), &wire.UndeleteRequest{Node: "worker-1", Entry: id + ".5"})
		if status.Code(err) != codes.Internal {
			t.Errorf("undelete %s: %v, %v", id, got, err)
		}
	}
}
