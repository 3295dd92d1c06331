package admin_test

import (
	"context"
	"errors"
	"io"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi/wire"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/waittest"
)

// slow is a node that enforces until it may go on, and with an inode limit until it is cancelled.
type slow struct {
	wire.UnimplementedAdminServer
	goOn chan error
}

func (s slow) Enforce(q *wire.EnforceRequest, out grpc.ServerStreamingServer[wire.Progress]) error {
	for _, id := range q.GetIds() {
		if err := out.Send(&wire.Progress{Id: id, Files: 3}); err != nil {
			return err
		}
	}
	if q.Inodes != nil {
		<-out.Context().Done()
		return out.Context().Err()
	}
	return <-s.goOn
}

func (slow) Measure(_ *wire.MeasureRequest, out grpc.ServerStreamingServer[wire.Progress]) error {
	for _, p := range []*wire.Progress{
		{Id: "pvc-1", Files: 3, Bytes: 4096, Done: true}, {Id: "pvc-2", Files: -1, Error: "gone\x1b[2J"},
	} {
		if err := out.Send(p); err != nil {
			return err
		}
	}
	return nil
}

func begin(ctx context.Context, client wire.AdminClient, q *wire.EnforceRequest) (*wire.StartWorkResponse, error) {
	return client.StartWork(ctx, &wire.StartWorkRequest{Work: &wire.StartWorkRequest_Enforce{Enforce: q}})
}

// work asks for work, all where id is "".
func work(ctx context.Context, client wire.AdminClient, id string) (all []nodeapi.Work, err error) {
	stream, err := client.Works(ctx, &wire.WorksRequest{Id: id})
	for err == nil {
		var w *wire.Work
		if w, err = stream.Recv(); err == nil {
			all = append(all, wire.ToWork(w))
		}
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return all, err
}

// until asks for work until it is as a test wants it.
func until(t *testing.T, client wire.AdminClient, id string, is func(nodeapi.Work) bool) nodeapi.Work {
	t.Helper()
	var now nodeapi.Work
	waittest.Until(t, "work "+id+" is so", func() bool {
		all, err := work(t.Context(), client, id)
		if err != nil || len(all) != 1 {
			t.Fatalf("%v, %v", all, err)
		}
		now = all[0]
		return is(now)
	})
	return now
}

func ended(w nodeapi.Work) bool { return !w.Ended.IsZero() }

// TestWork: it goes on without whoever began it, is not begun twice, and can be cancelled.
func TestWork(t *testing.T) {
	node := slow{goOn: make(chan error)}
	client := (&cluster{connections: map[string]*grpc.ClientConn{
		"worker-1": serve(t, func(r grpc.ServiceRegistrar) { wire.RegisterAdminServer(r, node) }),
	}}).client(t)
	q := &wire.EnforceRequest{Node: "worker-1", Ids: []string{"a", "b", "c", "d", "e"}}
	first, err := begin(t.Context(), client, q)
	if err != nil || first.GetRunning() {
		t.Fatalf("%v, %v", first, err)
	}
	q.Ids = []string{"e", "d", "c", "b", "a"}
	again, err := begin(t.Context(), client, q)
	if err != nil || !again.GetRunning() || again.GetId() != first.GetId() {
		t.Errorf("the same again: %v, %v", again, err)
	}
	q.Inodes = new(int64)
	other, err := begin(t.Context(), client, q)
	if err != nil || other.GetId() == first.GetId() {
		t.Fatalf("with inodes: %v, %v", other, err)
	}
	got := until(t, client, first.GetId(), func(w nodeapi.Work) bool { return w.Files == 15 })
	if got.Verb != "enforce" || got.Node != "worker-1" || got.What != "a, b, c and 2 more" || ended(got) ||
		got.Message != "e: 3 files counted" {
		t.Errorf("%+v", got)
	}
	if _, err := client.CancelWork(t.Context(), &wire.CancelWorkRequest{Id: other.GetId()}); err != nil {
		t.Error(err)
	}
	if got := until(t, client, other.GetId(), ended); got.Error != "it was cancelled; what was done stays" {
		t.Errorf("cancelled: %+v", got)
	}
	node.goOn <- status.Error(codes.FailedPrecondition, "the pool is\x1b gone")
	if got := until(t, client, first.GetId(), ended); got.Error != "node worker-1: the pool is  gone" {
		t.Errorf("at the end: %+v", got)
	}
	if all, err := work(t.Context(), client, ""); err != nil || len(all) != 2 || all[0].ID != other.GetId() {
		t.Errorf("all: %v, %v", all, err)
	}
}

// TestMeasured: what a node says of itself is kept without what could garble a terminal.
func TestMeasured(t *testing.T) {
	client := (&cluster{connections: map[string]*grpc.ClientConn{
		"worker-1": serve(t, func(r grpc.ServiceRegistrar) { wire.RegisterAdminServer(r, slow{}) }),
	}}).client(t)
	q := &wire.MeasureRequest{Node: "worker-1", Pool: "local"}
	begun, err := client.StartWork(t.Context(),
		&wire.StartWorkRequest{Work: &wire.StartWorkRequest_Measure{Measure: q}})
	if err != nil {
		t.Fatal(err)
	}
	got := until(t, client, begun.GetId(), ended)
	got.ID, got.Started, got.Ended = "", time.Time{}, time.Time{}
	want := nodeapi.Work{
		Verb: "measure", Node: "worker-1", What: "all in pool local", Files: 3, Bytes: 4096, Done: 1,
		Failed: 1, Errors: []string{"pvc-2: gone [2J"}, Message: "pvc-2: gone [2J",
		Volumes: []nodeapi.VolumeWork{
			{ID: "pvc-1", Files: 3, Bytes: 4096, Done: true}, {ID: "pvc-2", Error: "gone [2J"},
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// TestWorkRefused: what cannot be begun is said at once.
func TestWorkRefused(t *testing.T) {
	client := (&cluster{}).client(t)
	for _, test := range []struct {
		q    *wire.EnforceRequest
		want codes.Code
	}{
		{&wire.EnforceRequest{}, codes.InvalidArgument},
		{&wire.EnforceRequest{Node: "worker-9"}, codes.Unavailable},
		{&wire.EnforceRequest{Node: "worker-9", Ids: make([]string, 1001)}, codes.InvalidArgument},
	} {
		if got, err := begin(t.Context(), client, test.q); status.Code(err) != test.want {
			t.Errorf("%v: %v, %v; want %v", test.q, got, err, test.want)
		}
	}
	if _, err := client.StartWork(t.Context(), &wire.StartWorkRequest{}); status.Code(err) != codes.InvalidArgument {
		t.Errorf("nothing: %v", err)
	}
	if _, err := client.CancelWork(t.Context(), &wire.CancelWorkRequest{Id: "x"}); status.Code(err) != codes.NotFound {
		t.Errorf("cancel: %v", err)
	}
	if _, err := work(t.Context(), client, "x"); status.Code(err) != codes.NotFound {
		t.Errorf("show: %v", err)
	}
}
