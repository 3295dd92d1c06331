package rounds

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"
)

// informer is followed, and changes when the test says so.
type informer struct {
	cache.SharedInformer
	handler cache.ResourceEventHandler
}

func (i *informer) AddEventHandler(h cache.ResourceEventHandler) (cache.ResourceEventHandlerRegistration, error) {
	i.handler = h
	return nil, nil
}

func (i *informer) HasSynced() bool { return true }

// TestRounds: one at the start, one for changes that come together, one for each later change, and one after a while
// when not all was done.
func TestRounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		followed := &informer{}
		r, err := On(followed)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		// Nothing but time orders a round after a pause and the test, and to the race detector time orders nothing.
		var rounds atomic.Int32
		var notAll atomic.Bool
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			r.Run(ctx, func(context.Context) bool { rounds.Add(1); return !notAll.Load() })
		}()
		expect := func(what string, want int32) {
			t.Helper()
			synctest.Wait()
			if got := rounds.Load(); got != want {
				t.Errorf("%s: %d rounds, want %d", what, got, want)
			}
		}
		time.Sleep(time.Hour)
		expect("at the start", 1)
		for range 5 {
			followed.handler.OnAdd(&corev1.PersistentVolume{}, false)
			followed.handler.OnUpdate(nil, nil)
		}
		time.Sleep(time.Hour)
		expect("changes", 2)
		notAll.Store(true)
		followed.handler.OnUpdate(nil, nil)
		time.Sleep(settle)
		expect("a change", 3)
		time.Sleep(3 * (retry + settle))
		expect("not all was done", 6)
		followed.handler.OnDelete(nil)
		cancel()
		<-ended
	})
}
