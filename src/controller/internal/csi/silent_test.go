package csi_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/controller/internal/csi/csitest"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/link/linktest"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/waittest"
)

// silentCopies asks for 16 copies to node a whose source is silent, the next one a second after the last. goOn has the
// first one's source give a batch, and ended is how many are not read any more.
func (r relayed) silentCopies() (goOn func(), ended *atomic.Int32) {
	var count atomic.Int32
	wait := make(chan struct{})
	ended = &atomic.Int32{}
	r.b.Answers(func(ctx context.Context, call string) error {
		switch {
		case call == "list":
			return nil
		case call == "read 0" && count.Add(1) == 1:
			select {
			case <-wait:
				return nil
			case <-ctx.Done():
			}
		}
		<-ctx.Done()
		ended.Add(1)
		return ctx.Err()
	})
	ctx, leave := context.WithCancel(r.t.Context())
	answered := make(chan error)
	for i := range 16 {
		uid := fmt.Sprint("silent-", i)
		r.Set(func() { r.Claims[uid] = "a" })
		go func() {
			_, err := r.Restore(ctx, uid, csitest.OfSnapshot(r.snapshot), "")
			answered <- err
		}()
		waittest.Until(r.t, "it is read", func() bool { return int(count.Load()) == i+1 })
		r.Pass(time.Second)
	}
	leave()
	for range 16 {
		<-answered
	}
	return func() {
		close(wait)
		waittest.Until(r.t, "a batch is written", func() bool { return len(r.a.Filled("pvc-silent-0")) == 1 })
	}, ended
}

// TestSilentCopiesGiveWay: where all places of a node are taken, the copy whose nodes have been silent longest ends.
func TestSilentCopiesGiveWay(t *testing.T) {
	r := startRelayed(t)
	goOn, ended := r.silentCopies()
	honest := csitest.NewNode("c", 0)
	honest.Put(nodeapi.VolumeStatus{ID: "w", Pool: "local", Bytes: csitest.GiB})
	honest.Batches = r.b.Batches
	r.Hub.Connect(t, &honest.Node)
	s, err := r.Snapshot(t, "2", "w")
	csitest.WantCode(t, err, codes.OK, "")
	of := csitest.OfSnapshot(s.GetSnapshotId())

	r.Pass(4 * time.Minute)
	_, err = r.Restore(t.Context(), "1", of, "")
	csitest.WantCode(t, err, codes.Aborted, "it waits: node a is in 16 copies")
	goOn()
	r.Pass(time.Minute)
	if n := ended.Load(); n > 0 {
		t.Errorf("%d copies have ended", n)
	}
	if _, err = r.Restore(t.Context(), "1", of, ""); err != nil && strings.Contains(err.Error(), "it waits") {
		t.Fatal(err)
	}
	at, err := r.copied(of, "")
	if csitest.WantCode(t, err, codes.OK, ""); at != "a" {
		t.Errorf("it is on node %q", at)
	}
	waittest.Until(t, "one is not read any more", func() bool { return ended.Load() == 1 })
	const why = "node b was silent for 5m15s, and another copy has taken this one's place"
	linktest.Logged(t, r.Hub.Log, why)
	for line := range strings.Lines(r.Hub.Log.String()) {
		if strings.Contains(line, why) && !strings.Contains(line, "pvc-silent-1 ") {
			t.Errorf("another one than the longest silent has ended: %s", line)
		}
	}
	if n := ended.Load(); n != 1 {
		t.Errorf("%d copies have ended", n)
	}
}

// readsOnce has the first reading of the second batch wait until it is cancelled.
func (r relayed) readsOnce() (began, cancelled chan struct{}) {
	var count atomic.Int32
	began, cancelled = make(chan struct{}), make(chan struct{})
	r.b.Answers(func(ctx context.Context, call string) error {
		if call != "read 1" || count.Add(1) > 1 {
			return nil
		}
		close(began)
		<-ctx.Done()
		close(cancelled)
		return ctx.Err()
	})
	return began, cancelled
}

func isClosed(c chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// TestTheTargetEndsBesideASilentSource: nothing is read for a target that takes no more.
func TestTheTargetEndsBesideASilentSource(t *testing.T) {
	r := startRelayed(t)
	began, cancelled := r.readsOnce()
	r.a.Answers(func(_ context.Context, call string) error {
		if call != "fill 0" {
			return nil
		}
		<-began
		return status.Error(codes.Unavailable, "no disk")
	})
	_, err := r.Restore(t.Context(), "1", csitest.OfSnapshot(r.snapshot), "")
	csitest.WantCode(t, err, codes.Aborted, "")
	waittest.Until(t, "the source is not read any more", func() bool { return isClosed(cancelled) })
	linktest.Logged(t, r.Hub.Log, "fill volume pvc-1 on node a: no disk")
	r.a.Answers(nil)
	_, err = r.copied(csitest.OfSnapshot(r.snapshot), "")
	csitest.WantCode(t, err, codes.OK, "")
}

// TestAReplacedRelayEnds: it is asked for another source, and the first one is not read any more.
func TestAReplacedRelayEnds(t *testing.T) {
	r := startRelayed(t)
	other, err := r.Snapshot(t, "2", "v")
	csitest.WantCode(t, err, codes.OK, "")
	began, cancelled := r.readsOnce()
	answered := make(chan error, 1)
	go func() { _, err := r.Restore(t.Context(), "1", csitest.OfSnapshot(r.snapshot), ""); answered <- err }()
	<-began
	r.snapshot = other.GetSnapshotId()
	waittest.Until(t, "the first batch is written", func() bool { return len(r.a.Filled("pvc-1")) == 1 })
	_, err = r.copied(csitest.OfSnapshot(r.snapshot), "")
	csitest.WantCode(t, err, codes.OK, "")
	waittest.Until(t, "the first is not read any more", func() bool { return isClosed(cancelled) })
	<-answered
	linktest.Logged(t, r.Hub.Log, "another has taken its place")
}
