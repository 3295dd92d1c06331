package csi_test

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/controller/internal/csi/csitest"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
)

// TestTheClaimIsGone: what was begun for it is deleted, on whichever node, and nothing is copied.
func TestTheClaimIsGone(t *testing.T) {
	t.Parallel()
	begun := nodeapi.VolumeStatus{ID: "pvc-1", Pool: "local"}
	for name, c := range map[string]struct {
		prepare func(relayed)
		code    codes.Code
		text    string
		left    bool
	}{
		"nothing is begun":      {prepare: func(relayed) {}},
		"begun for the pod":     {prepare: func(r relayed) { r.a.Put(begun) }},
		"begun at the snapshot": {prepare: func(r relayed) { r.b.Put(begun) }},
		"its node is away": {
			prepare: func(r relayed) { r.a.Put(begun); r.leaves("a", r.stopA) },
			code:    codes.Unavailable, text: "not connected", left: true,
		},
		"the API is silent": {
			prepare: func(r relayed) { r.a.Put(begun); r.Silent = true },
			code:    codes.Unavailable, text: "did not answer", left: true,
		},
	} {
		for to, allowed := range map[string][]string{"": {"a"}, nodeapi.RestoreToSource: nil} {
			t.Run(name+" "+to, func(t *testing.T) {
				r := startRelayed(t)
				c.prepare(r)
				delete(r.Claims, "1")
				_, err := r.Restore(t.Context(), "1", csitest.OfSnapshot(r.snapshot), to, allowed...)
				csitest.WantCode(t, err, cmp.Or(c.code, codes.InvalidArgument), cmp.Or(c.text, "claim"))
				if left := r.a.Has("pvc-1") || r.b.Has("pvc-1"); left != c.left || len(r.a.Filled("pvc-1")) > 0 {
					t.Errorf("left is %v, and %d batches came", left, len(r.a.Filled("pvc-1")))
				}
			})
		}
	}
}

// TestTheClaimIsGoneAndAVolumeIsThere: what a PersistentVolume names is not deleted.
func TestTheClaimIsGoneAndAVolumeIsThere(t *testing.T) {
	r := startRelayed(t)
	r.a.Put(nodeapi.VolumeStatus{ID: "pvc-1", Pool: "local"})
	r.PVs = append(r.PVs, csitest.Named("pvc-1", "a"))
	delete(r.Claims, "1")
	_, err := r.Restore(t.Context(), "1", csitest.OfSnapshot(r.snapshot), "", "a")
	csitest.WantCode(t, err, codes.InvalidArgument, "claim default/claim is gone")
	if !r.a.Has("pvc-1") {
		t.Error("it is deleted")
	}
}

// TestManyCopies: a node is in so many at once, and the next one waits for its turn.
func TestManyCopies(t *testing.T) {
	r := startRelayed(t)
	r.CSI.SetRelayWait(time.Second)
	wait := make(chan struct{})
	r.b.Answers(func(_ context.Context, call string) error {
		if strings.HasPrefix(call, "read") {
			<-wait
		}
		return nil
	})
	const most = 16
	for i := range most + 1 {
		r.Claims[fmt.Sprint(i)] = "a"
	}
	restore := func(i int) error {
		_, err := r.Restore(t.Context(), fmt.Sprint(i), csitest.OfSnapshot(r.snapshot), "", "a")
		return err
	}
	answers := make(chan error, most+1)
	for i := range most + 1 {
		go func() { answers <- restore(i) }()
	}
	turnedAway := 0
	for range most + 1 {
		err := <-answers // of the others once they have waited in vain
		csitest.WantCode(t, err, codes.Aborted, "")
		if strings.Contains(fmt.Sprint(err), "this one waits for its turn") {
			turnedAway++
		}
	}
	if turnedAway != 1 {
		t.Errorf("%d of %d copies wait for their turn", turnedAway, most+1)
	}
	close(wait)
	for i := range most + 1 {
		err := restore(i)
		for status.Code(err) == codes.Aborted && t.Context().Err() == nil {
			err = restore(i)
		}
		csitest.WantCode(t, err, codes.OK, "")
	}
}
