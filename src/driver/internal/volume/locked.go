package volume

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/logging"
)

// Locked decorates a manager so that no two operations on one id overlap. An operation that is slower than its caller goes
// on after the caller has left; until it is done, every other call for the id is ErrBusy.
type Locked struct {
	*Manager
	mu      sync.Mutex
	busy    map[string]context.CancelFunc // what ends a long count under way on that id, or nil
	running sync.WaitGroup
}

// NewLocked decorates a manager.
func NewLocked(m *Manager) *Locked {
	return &Locked{Manager: m, busy: map[string]context.CancelFunc{}}
}

// Create is Manager.Create under the id's lock.
func (l *Locked) Create(ctx context.Context, s Spec) (Volume, error) {
	var v Volume
	err := l.do(ctx, s.ID, func(ctx context.Context) (err error) {
		v, err = l.Manager.Create(ctx, s)
		return err
	})
	if err != nil {
		return Volume{}, err // v may still be written to by the operation that goes on
	}
	return v, nil
}

// Delete is Manager.Delete under the id's lock.
func (l *Locked) Delete(ctx context.Context, id string) error {
	return l.do(ctx, id, func(ctx context.Context) error { return l.Manager.Delete(ctx, id) })
}

// Expand is Manager.Expand under the id's lock.
func (l *Locked) Expand(ctx context.Context, id string, bytes, limit int64) (Volume, error) {
	var v Volume
	err := l.do(ctx, id, func(ctx context.Context) (err error) {
		v, err = l.Manager.Expand(ctx, id, bytes, limit)
		return err
	})
	if err != nil {
		return Volume{}, err // as in Create
	}
	return v, nil
}

// Get is Manager.Get without a lock, which an operation that takes its time would hold. What is missing only because one is under
// way is not called lost.
func (l *Locked) Get(ctx context.Context, id string) (Volume, Health, error) {
	v, health, err := l.Manager.Get(ctx, id)
	if err == nil && health.Condition == DataLoss && l.isBusy(id) {
		return Volume{}, Health{}, fmt.Errorf("%w: an operation on %s is under way; ask again", ErrBusy, id)
	}
	return v, health, err
}

// Publish is Manager.Publish under the id's lock.
func (l *Locked) Publish(ctx context.Context, q PublishRequest) error {
	return l.do(ctx, q.ID, func(ctx context.Context) error {
		ctx, stop := context.WithCancel(ctx)
		defer stop()
		l.mu.Lock()
		l.busy[q.ID] = stop
		l.mu.Unlock()
		return l.Manager.Publish(ctx, q)
	})
}

// Unpublish is Manager.Unpublish under the id's lock. Where a count of the volume's content has that, the count ends, so that the pod does too
// when it is asked again.
func (l *Locked) Unpublish(ctx context.Context, id, target string) error {
	err := l.do(ctx, id, func(ctx context.Context) error { return l.Manager.Unpublish(ctx, id, target) })
	if errors.Is(err, ErrBusy) {
		l.stopCount(id)
	}
	return err
}

func (l *Locked) stopCount(id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if stop := l.busy[id]; stop != nil {
		stop()
	}
}

// Wait returns when no operation is under way any more.
func (l *Locked) Wait() { l.running.Wait() }

// do runs an operation on an id. Values of ctx stay, its end does not reach the operation.
func (l *Locked) do(ctx context.Context, id string, operation func(context.Context) error) error {
	if !l.take(id) {
		return fmt.Errorf("%w: an earlier operation on %s has not ended yet; try again", ErrBusy, id)
	}
	done := make(chan error, 1)
	go func() {
		defer l.running.Done()
		err := l.guarded(context.WithoutCancel(ctx), id, operation)
		l.give(id) // before the caller knows: its next call must find the id free
		done <- err
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return fmt.Errorf("the operation on volume %s goes on: %w", id, context.Cause(ctx))
	}
}

// guarded turns a panic into an error: nobody else could recover it in a goroutine of its own.
func (l *Locked) guarded(ctx context.Context, id string, operation func(context.Context) error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			l.Log.Error("an operation panicked", logging.KeyID, id, logging.KeyPanic, fmt.Sprint(p), logging.KeyStack, string(debug.Stack()))
			err = fmt.Errorf("the driver has a bug: the operation on volume %s panicked (%v); its log has the details", id, p)
		}
	}()
	return operation(ctx)
}

func (l *Locked) take(id string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, taken := l.busy[id]; taken {
		return false
	}
	l.busy[id] = nil
	l.running.Add(1)
	return true
}

func (l *Locked) isBusy(id string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, busy := l.busy[id]
	return busy
}

func (l *Locked) give(id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.busy, id)
}
