package works_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/controller/internal/works"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
)

// room is one that runs until the end of the test.
func room(t *testing.T) (r *works.Room, stop func()) {
	t.Helper()
	r = works.New(time.Now)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); r.Run(ctx) }()
	stop = func() { cancel(); <-done }
	t.Cleanup(stop)
	return r, stop
}

func forever(ctx context.Context, _ func(nodeapi.VolumeWork, string)) error {
	<-ctx.Done()
	return ctx.Err()
}

func nothing(context.Context, func(nodeapi.VolumeWork, string)) error { return nil }

func start(t *testing.T, r *works.Room, key string, run works.Run) string {
	t.Helper()
	id, running, err := r.Start(key, nodeapi.Work{Verb: nodeapi.VerbEnforce, Node: "worker-1", What: key}, run)
	if err != nil || running || id == "" {
		t.Fatalf("start %s: %q, %v, %v", key, id, running, err)
	}
	return id
}

// TestLife: work says what it has done while it goes on, and for an hour after.
func TestLife(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, _ := room(t)
		goOn := make(chan error)
		id := start(t, r, "a", func(_ context.Context, say func(nodeapi.VolumeWork, string)) error {
			say(nodeapi.VolumeWork{ID: "pvc-1", Files: 5, Done: true}, "pvc-1 is done")
			return <-goOn
		})
		synctest.Wait()
		begun := time.Now()
		want := nodeapi.Work{
			ID: id, Verb: nodeapi.VerbEnforce, Node: "worker-1", What: "a", Started: begun, Files: 5, Done: 1,
			Message: "pvc-1 is done", Volumes: []nodeapi.VolumeWork{{ID: "pvc-1", Files: 5, Done: true}},
		}
		got, err := r.Get(id)
		if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); err != nil || diff != "" {
			t.Errorf("%v: %s", err, diff)
		}
		again, running, err := r.Start("a", nodeapi.Work{}, nil)
		if again != id || !running || err != nil {
			t.Errorf("the same again: %q, %v, %v; want %q", again, running, err, id)
		}
		time.Sleep(time.Minute)
		goOn <- errors.New("the disk is gone")
		synctest.Wait()
		want.Ended, want.Error, want.Volumes = begun.Add(time.Minute), "the disk is gone", nil
		newer := start(t, r, "b", nothing)
		synctest.Wait()
		all := r.List()
		if len(all) != 2 || all[0].ID != newer {
			t.Fatalf("%v, want %s first", all, newer)
		}
		if diff := cmp.Diff(want, all[1], cmpopts.EquateEmpty()); diff != "" {
			t.Error(diff)
		}
		start(t, r, "a", nothing) // what has ended can be begun again
		time.Sleep(61 * time.Minute)
		if all := r.List(); len(all) != 0 {
			t.Errorf("after an hour there are %v", all)
		}
		if _, err := r.Get(id); !errors.Is(err, works.ErrUnknown) {
			t.Errorf("after an hour: %v", err)
		}
	})
}

func TestCancel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, stop := room(t)
		first, second := start(t, r, "a", forever), start(t, r, "b", forever)
		if err := r.Cancel("c"); !errors.Is(err, works.ErrUnknown) {
			t.Errorf("cancel what is not there: %v", err)
		}
		if err := r.Cancel(first); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		if got, err := r.Get(first); err != nil || got.Ended.IsZero() ||
			got.Error != "it was cancelled; what was done stays" {
			t.Errorf("cancelled: %+v, %v", got, err)
		}
		if got, err := r.Get(second); err != nil || !got.Ended.IsZero() {
			t.Errorf("the other one: %+v, %v", got, err)
		}
		stop()
		if got, err := r.Get(second); err != nil || got.Error != "this controller is stopping" {
			t.Errorf("at the end: %+v, %v", got, err)
		}
		if _, _, err := r.Start("c", nodeapi.Work{}, forever); !errors.Is(err, works.ErrStopping) {
			t.Errorf("start at the end: %v", err)
		}
	})
}

// TestFull: the oldest that has ended makes room, and nothing that is under way does.
func TestFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, _ := room(t)
		start(t, r, "goes on", forever)
		old := start(t, r, "old", nothing)
		synctest.Wait()
		for range 99 {
			start(t, r, time.Now().String(), forever)
			time.Sleep(time.Millisecond)
		}
		if _, err := r.Get(old); !errors.Is(err, works.ErrUnknown) {
			t.Errorf("the oldest: %v", err)
		}
		if _, _, err := r.Start("more", nodeapi.Work{}, forever); !errors.Is(err, works.ErrFull) {
			t.Errorf("more than 100: %v", err)
		}
	})
}
