package csi_test

import (
	"bytes"
	"context"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	pb "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/controller/internal/csi/csitest"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi/wire"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/waittest"
)

// relayed are a controller and two nodes: the pod of claim 1 is to run on a, and b has a snapshot.
type relayed struct {
	csitest.Controller
	t            *testing.T
	a, b         *csitest.Node
	stopA, stopB func()
	snapshot     string
}

func startRelayed(t *testing.T) relayed {
	t.Helper()
	t.Parallel()
	r := relayed{t: t, Controller: csitest.Start(t), a: csitest.NewNode("a", 0), b: csitest.NewNode("b", 0)}
	r.CSI.SetRelayWait(2 * time.Minute)
	r.Claims["1"] = "a"
	r.b.Put(nodeapi.VolumeStatus{ID: "v", Pool: "local", Bytes: csitest.GiB})
	r.b.Batches = []*wire.Batch{
		{Entries: bytes.Repeat([]byte("large"), 1<<19), Next: []byte("1"), Crc32C: 1, Files: 7, Bytes: 5 << 19},
		{Entries: []byte("small"), Next: bytes.Repeat([]byte("deep"), 1<<16), Crc32C: 2, Files: -1, Bytes: -1},
		{Crc32C: 3, Last: true}, // none of this makes sense, and it is not for the controller to say so
	}
	r.stopA, r.stopB = r.Hub.Connect(t, &r.a.Node), r.Hub.Connect(t, &r.b.Node)
	s, err := r.Snapshot(t, "1", "v")
	csitest.WantCode(t, err, codes.OK, "")
	r.snapshot = s.GetSnapshotId()
	r.b.Asked()
	return r
}

// copied asks for a copy until its data is there, as csi-provisioner does.
func (r relayed) copied(of *pb.VolumeContentSource, to string, allowed ...string) (at string, err error) {
	r.t.Helper()
	for {
		at, err = r.Restore(r.t.Context(), "1", of, to, allowed...)
		if status.Code(err) != codes.Aborted || r.t.Context().Err() != nil {
			return at, err
		}
	}
}

// restored wants a restore to be answered with a code and a text; one that is done is on node a and has all batches, in
// their order, each once.
func (r relayed) restored(want codes.Code, text string) {
	r.t.Helper()
	at, err := r.Restore(r.t.Context(), "1", csitest.OfSnapshot(r.snapshot), "")
	csitest.WantCode(r.t, err, want, text)
	same := func(a, b *wire.Batch) bool { return proto.Equal(a, b) }
	if filled := r.a.Filled("pvc-1"); want == codes.OK && (at != "a" || !slices.EqualFunc(filled, r.b.Batches, same)) {
		r.t.Errorf("on node %q, filled with %d batches of %d, or with others", at, len(filled), len(r.b.Batches))
	}
}

// TestRelay: what the source reads is what the target writes, once.
func TestRelay(t *testing.T) {
	r := startRelayed(t)
	r.restored(codes.OK, "")
	r.restored(codes.OK, "")
	if a, b := r.a.Asked(), r.b.Asked(); b != "list, read 0, read 1, read 2, list" ||
		a != "create pvc-1, fill 0, fill 1, fill 2, create pvc-1, create pvc-1" {
		t.Errorf("node a was asked for %s, node b for %s", a, b)
	}
}

// older is the session of a driver that knows nothing of copies.
type older struct{ grpc.ServerStream }

func (s older) SendMsg(message any) error {
	if update, ok := message.(*wire.Update); ok && update.GetHello() != nil {
		update.GetHello().Features = []string{wire.FeatureVolumes}
	}
	return s.ServerStream.SendMsg(message)
}

func (r relayed) reconnectOlder(n *csitest.Node, stop func()) {
	n.Options = []grpc.ServerOption{grpc.StreamInterceptor(
		func(service any, s grpc.ServerStream, _ *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
			return handle(service, older{s})
		})}
	r.Reconnect(r.t, n, stop)
}

// leaves has a node go away.
func (r relayed) leaves(node string, stop func()) {
	r.t.Helper()
	stop()
	waittest.Until(r.t, "node "+node+" is away", func() bool { return r.Hub.Get(node) == nil })
}

// TestRestoreTo: where a volume is made of a snapshot that node b has.
func TestRestoreTo(t *testing.T) {
	t.Parallel()
	claimed := func(node string) func(relayed) { return func(r relayed) { r.Claims["1"] = node } }
	begun := nodeapi.VolumeStatus{ID: "pvc-1", Pool: "local"}
	for name, c := range map[string]struct {
		to      string
		prepare func(relayed)
		allowed []string
		at      string
		code    codes.Code
		text    string
	}{
		"pod":                      {to: nodeapi.RestoreToPod, allowed: []string{"a"}, at: "a"},
		"source":                   {to: nodeapi.RestoreToSource, at: "b"},
		"Immediate":                {prepare: claimed(""), at: "b"},
		"the pod runs there":       {prepare: claimed("b"), at: "b"},
		"begun at the snapshot":    {prepare: func(r relayed) { r.b.Put(begun) }, at: "b"},
		"an older pod's node":      {prepare: func(r relayed) { r.reconnectOlder(r.a, r.stopA) }, at: "b"},
		"an older snapshot's node": {prepare: func(r relayed) { r.reconnectOlder(r.b, r.stopB) }, at: "b"},
		"the snapshot's node is away": {
			prepare: func(r relayed) { r.leaves("b", r.stopB) },
			code:    codes.Unavailable, text: "node b is not connected",
		},
		"the pod's node is away": {
			prepare: func(r relayed) { r.leaves("a", r.stopA) },
			code:    codes.Unavailable, text: "node a is not connected",
		},
		"the claim's node is none of the class": {
			prepare: claimed("c"), allowed: []string{"a", "b"},
			code: codes.InvalidArgument, text: "leave: a, b; remove the annotation",
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := startRelayed(t)
			if c.prepare != nil {
				c.prepare(r)
			}
			at, err := r.copied(csitest.OfSnapshot(r.snapshot), c.to, c.allowed...)
			csitest.WantCode(t, err, c.code, c.text)
			if at != c.at || len(r.a.Filled("pvc-1")) > 0 != (at == "a") {
				t.Errorf("on node %q, and %d batches on node a", at, len(r.a.Filled("pvc-1")))
			}
		})
	}
}

// TestCloneTo: where a volume is made of one that node b has.
func TestCloneTo(t *testing.T) {
	published := nodeapi.VolumeStatus{ID: "v", Pool: "local", Bytes: csitest.GiB, Published: true}
	begun := nodeapi.VolumeStatus{ID: "pvc-1", Pool: "local"}
	for name, c := range map[string]struct {
		to      string
		prepare func(relayed)
		at      string
	}{
		"pod":                   {at: "a"},
		"source":                {to: nodeapi.RestoreToSource, at: "b"},
		"a pod uses it":         {prepare: func(r relayed) { r.b.Put(published) }, at: "b"},
		"begun at the source":   {prepare: func(r relayed) { r.b.Put(begun) }, at: "b"},
		"begun, then it's used": {prepare: func(r relayed) { r.a.Put(begun); r.b.Put(published) }, at: "a"},
	} {
		t.Run(name, func(t *testing.T) {
			r := startRelayed(t)
			if c.prepare != nil {
				c.prepare(r)
			}
			at, err := r.copied(csitest.OfVolume("v"), c.to)
			csitest.WantCode(t, err, codes.OK, "")
			if at != c.at || len(r.a.Filled("pvc-1")) > 0 != (at == "a") {
				t.Errorf("on node %q, and %d batches on node a", at, len(r.a.Filled("pvc-1")))
			}
		})
	}
}

// TestTheSourceIsCordoned: no copy is made on node b that would send a pod there that was scheduled on another.
func TestTheSourceIsCordoned(t *testing.T) {
	t.Parallel()
	published := nodeapi.VolumeStatus{ID: "v", Pool: "local", Bytes: csitest.GiB, Published: true}
	begun := nodeapi.VolumeStatus{ID: "pvc-1", Pool: "local"}
	const refused = "node b is cordoned, and volume pvc-1 would be made there"
	for name, c := range map[string]struct {
		to      string
		clone   bool
		prepare func(relayed)
		at      string
		code    codes.Code
		text    string
	}{
		"pod":             {at: "a"},
		"source":          {to: nodeapi.RestoreToSource, code: codes.FailedPrecondition, text: refused},
		"clone":           {to: nodeapi.RestoreToSource, clone: true, code: codes.FailedPrecondition, text: refused},
		"clone for a pod": {clone: true, at: "a"},
		"a pod uses it": {
			clone: true, prepare: func(r relayed) { r.b.Put(published) }, code: codes.FailedPrecondition,
			text: "kubectl uncordon b, or use a StorageClass with restoreTo: pod; instead of a clone",
		},
		"the pod's driver is older": {
			prepare: func(r relayed) { r.reconnectOlder(r.a, r.stopA) }, code: codes.FailedPrecondition, text: refused,
		},
		"the pod runs there": {prepare: func(r relayed) { r.Claims["1"] = "b" }, at: "b"},
		"Immediate":          {prepare: func(r relayed) { r.Claims["1"] = "" }, at: "b"},
		"begun":              {to: nodeapi.RestoreToSource, prepare: func(r relayed) { r.b.Put(begun) }, at: "b"},
		"another is cordoned": {
			to: nodeapi.RestoreToSource, prepare: func(r relayed) { r.Cordons = []string{"a"} }, at: "b",
		},
		"the API is silent": {
			to: nodeapi.RestoreToSource, prepare: func(r relayed) { r.Unsure = true },
			code: codes.Unavailable, text: "see whether node b is cordoned: ",
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := startRelayed(t)
			if r.Cordons = []string{"b"}; c.prepare != nil {
				c.prepare(r)
			}
			of := csitest.OfSnapshot(r.snapshot)
			if c.clone {
				of = csitest.OfVolume("v")
			}
			at, err := r.copied(of, c.to)
			if csitest.WantCode(t, err, c.code, c.text); at != c.at {
				t.Errorf("on node %q", at)
			}
			if asked := r.b.Asked(); c.code != codes.OK && strings.Contains(asked, "create") {
				t.Errorf("node b was asked for %s", asked)
			}
		})
	}
}

// TestARelayEnds before all is there: who asks is told why, csi-provisioner is to ask again, and then it goes on.
func TestARelayEnds(t *testing.T) {
	t.Parallel()
	type script func(context.Context, relayed) error
	says := func(code codes.Code, text string) script {
		return func(context.Context, relayed) error { return status.Error(code, text) }
	}
	const onA = "1 batches are copied; its data has not all come: fill volume pvc-1 on node a: "
	for name, c := range map[string]struct {
		reads, fills script // the second batch
		back         func(relayed)
		code         codes.Code
		text         string
	}{
		"the source fails": {
			reads: says(codes.Unavailable, "no more"),
			code:  codes.Aborted, text: onA + "read " + nodeapi.SnapshotID("1", "b") + " on node b: no more",
		},
		"the target fails": {fills: says(codes.Unavailable, "no disk"), code: codes.Aborted, text: onA + "no disk"},
		"the source leaves": {
			reads: func(ctx context.Context, r relayed) error { go r.stopB(); <-ctx.Done(); return ctx.Err() },
			back:  func(r relayed) { r.Reconnect(r.t, r.b, r.stopB) },
			code:  codes.Aborted, text: " on node b: ",
		},
		"the target leaves": {
			fills: func(ctx context.Context, r relayed) error { go r.stopA(); <-ctx.Done(); return ctx.Err() },
			back:  func(r relayed) { r.Reconnect(r.t, r.a, r.stopA) },
			code:  codes.Unavailable, text: "node a",
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := startRelayed(t)
			answer := func(ctx context.Context, call string) error {
				switch {
				case call == "fill 1" && c.fills != nil:
					return c.fills(ctx, r)
				case call == "read 1" && c.reads != nil:
					// What is on its way would be lost.
					waittest.Until(t, "some has come", func() bool { return len(r.a.Filled("pvc-1")) > 0 })
					return c.reads(ctx, r)
				}
				return nil
			}
			r.a.Answers(answer)
			r.b.Answers(answer)
			r.restored(c.code, c.text)
			r.a.Answers(nil)
			r.b.Answers(nil)
			r.b.Asked()
			if c.back != nil {
				c.back(r)
			}
			r.restored(codes.OK, "")
			if asked := r.b.Asked(); asked != "list, read 1, read 2" {
				t.Errorf("node b was asked for %s", asked)
			}
		})
	}
}

// TestASourceThatCannotBeCopied ends the copy on the other node, which begins anew.
func TestASourceThatCannotBeCopied(t *testing.T) {
	r := startRelayed(t)
	r.b.Answers(func(_ context.Context, call string) error {
		if call == "read 1" {
			return status.Error(codes.FailedPrecondition, "a pod uses it")
		}
		return nil
	})
	r.restored(codes.FailedPrecondition, "node b: a pod uses it")
	if n := len(r.a.Filled("pvc-1")); n > 0 {
		t.Errorf("%d batches are left", n)
	}
	r.b.Answers(nil)
	r.restored(codes.OK, "")
}

// halfway asks for a restore, and gives what is answered. One batch has come, and the next one waits for goOn.
func (r relayed) halfway(ctx context.Context) (answered chan error, goOn func()) {
	var count atomic.Int32
	wait := make(chan struct{})
	r.b.Answers(func(_ context.Context, call string) error {
		if call == "read 1" && count.Add(1) == 1 {
			<-wait
		}
		return nil
	})
	answered = make(chan error, 1)
	go func() { _, err := r.Restore(ctx, "1", csitest.OfSnapshot(r.snapshot), ""); answered <- err }()
	waittest.Until(r.t, "the first batch is written", func() bool { return len(r.a.Filled("pvc-1")) == 1 })
	return answered, func() { close(wait) }
}

// TestWhoAskedLeaves: the data goes on coming, and who asks again waits for the same.
func TestWhoAskedLeaves(t *testing.T) {
	r := startRelayed(t)
	r.CSI.SetRelayWait(5 * time.Second)
	ctx, leave := context.WithCancel(t.Context())
	answered, goOn := r.halfway(ctx)
	leave()
	csitest.WantCode(t, <-answered, codes.Canceled, "")
	r.restored(codes.Aborted, "1 batches are copied") // it does not come in time
	goOn()
	r.restored(codes.OK, "")
	if reads := strings.Count(r.b.Asked(), "read"); reads != 3 {
		t.Errorf("%d batches were read", reads)
	}
}

// TestTheNewestRelayWins: another controller leads, and goes on with what the first one has begun.
func TestTheNewestRelayWins(t *testing.T) {
	r := startRelayed(t)
	answered, goOn := r.halfway(t.Context())
	next := r
	next.Controller = r.Serve(t, r.a, r.b)
	next.restored(codes.OK, "")
	goOn()
	if err := <-answered; err != nil && status.Code(err) != codes.Aborted { // it may have waited for too long
		t.Error(err)
	}
	r.restored(codes.OK, "")
}
