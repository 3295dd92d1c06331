// Package works keeps what takes longer than anybody may wait: it goes on without whoever began it, and can be asked
// about. It is in memory, so it ends with the process; whatever is begun here can be begun again.
package works

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
)

var (
	// ErrUnknown is an id that no work has.
	ErrUnknown = errors.New("no such work")
	// ErrFull is for more work than may be under way.
	ErrFull = errors.New("too much work is under way")
	// ErrStopping is for work that is asked for while the process ends.
	ErrStopping = errors.New("this controller is stopping")
	// errCancelled is why somebody's work ends.
	errCancelled = errors.New("it was cancelled; what was done stays")
)

const (
	// maxKept is how many are kept, and keep how long after their end.
	maxKept, keep = 100, time.Hour
)

// Run does some work, and says each step that it has done.
type Run func(ctx context.Context, say func(v nodeapi.VolumeWork, message string)) error

// Room has all work of a process.
type Room struct {
	now     func() time.Time
	running sync.WaitGroup

	mu      sync.Mutex
	stopped bool
	all     []*work // the oldest first
}

type work struct {
	nodeapi.Tally
	key string
	end context.CancelCauseFunc
}

// New returns an empty room.
func New(now func() time.Time) *Room { return &Room{now: now} }

// Run waits for ctx to end, and then for all work, which it ends.
func (r *Room) Run(ctx context.Context) {
	<-ctx.Done()
	r.mu.Lock()
	r.stopped = true
	for _, w := range r.all {
		w.end(ErrStopping)
	}
	r.mu.Unlock()
	r.running.Wait()
}

// Start begins work, whose key says what it is. Where the same is under way it gives the id of that, and running.
// ErrFull, ErrStopping.
func (r *Room) Start(key string, is nodeapi.Work, run Run) (id string, running bool, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.forget()
	if i := slices.IndexFunc(r.all, func(w *work) bool { return w.key == key && w.Ended.IsZero() }); i >= 0 {
		return r.all[i].ID, true, nil
	}
	if r.stopped {
		return "", false, fmt.Errorf("%w: ask again", ErrStopping)
	}
	if len(r.all) >= maxKept && !r.dropOldest() {
		return "", false, fmt.Errorf("%w: %d; wait for some to end, or cancel it", ErrFull, maxKept)
	}
	is.ID, is.Started = strings.ToLower(rand.Text()[:8]), r.now()
	ctx, end := context.WithCancelCause(context.Background())
	w := &work{Tally: nodeapi.Tally{Work: is}, key: key, end: end}
	r.all = append(r.all, w)
	r.running.Go(func() { r.do(ctx, w, run) })
	return is.ID, false, nil
}

func (r *Room) do(ctx context.Context, w *work, run Run) {
	err := run(ctx, func(v nodeapi.VolumeWork, message string) {
		r.mu.Lock()
		defer r.mu.Unlock()
		w.Take(v, message)
	})
	if ctx.Err() != nil && err != nil {
		err = context.Cause(ctx)
	}
	w.end(nil)
	r.mu.Lock()
	defer r.mu.Unlock()
	if w.Ended = r.now(); err != nil {
		w.Error = err.Error()
	}
}

// forget drops what has ended long ago.
func (r *Room) forget() {
	r.all = slices.DeleteFunc(r.all, func(w *work) bool { return !w.Ended.IsZero() && r.now().Sub(w.Ended) > keep })
}

// dropOldest drops the oldest that has ended, and reports whether there is one.
func (r *Room) dropOldest() bool {
	i := slices.IndexFunc(r.all, func(w *work) bool { return !w.Ended.IsZero() })
	if i < 0 {
		return false
	}
	r.all = slices.Delete(r.all, i, i+1)
	return true
}

// List gives all work, the newest first and without its volumes.
func (r *Room) List() []nodeapi.Work {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.forget()
	all := make([]nodeapi.Work, 0, len(r.all))
	for _, w := range slices.Backward(r.all) {
		is := w.Clone()
		is.Volumes = nil
		all = append(all, is)
	}
	return all
}

// Get gives work with its volumes. ErrUnknown.
func (r *Room) Get(id string) (is nodeapi.Work, err error) {
	err = r.find(id, func(w *work) { is = w.Clone() })
	return is, err
}

// Cancel ends work, which may have ended already. ErrUnknown.
func (r *Room) Cancel(id string) error {
	return r.find(id, func(w *work) { w.end(errCancelled) })
}

func (r *Room) find(id string, do func(*work)) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.forget()
	i := slices.IndexFunc(r.all, func(w *work) bool { return w.ID == id })
	if i < 0 {
		return fmt.Errorf("%w: %.64q; it is kept for an hour after its end, in the controller's pod in which it was "+
			"begun and until that restarts; run the command again, which goes on", ErrUnknown, id)
	}
	do(r.all[i])
	return nil
}
