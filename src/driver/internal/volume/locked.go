package volume

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/records"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/logging"
)

// Locked decorates a manager so that no two operations on one id overlap. An operation that is slower than its caller
// goes on after the caller has left; until it is done, every other call for the id is ErrBusy.
type Locked struct {
	*Manager
	mu      sync.Mutex
	busy    map[string]struct{}
	running sync.WaitGroup
}

// NewLocked decorates a manager.
func NewLocked(m *Manager) *Locked { return &Locked{Manager: m, busy: map[string]struct{}{}} }

// Create is Manager.Create under the id's lock.
func (l *Locked) Create(ctx context.Context, s Spec) (Volume, error) {
	return result(ctx, l, s.ID, func(ctx context.Context) (Volume, error) { return l.Manager.Create(ctx, s) })
}

// Delete is Manager.Delete under the id's lock.
func (l *Locked) Delete(ctx context.Context, id string) error {
	return l.do(ctx, id, func(ctx context.Context) error { return l.Manager.Delete(ctx, id) })
}

// Expand is Manager.Expand under the id's lock.
func (l *Locked) Expand(ctx context.Context, id string, bytes, limit int64) (Volume, error) {
	return result(ctx, l, id, func(ctx context.Context) (Volume, error) {
		return l.Manager.Expand(ctx, id, bytes, limit)
	})
}

// Get is Manager.Get without a lock, which an operation that takes its time would have. What is missing only because
// one is under way is not called lost.
func (l *Locked) Get(ctx context.Context, id string) (Volume, Health, error) {
	if !l.take("get " + id) { // no id has a space; a pool that hangs keeps one caller, not all
		return Volume{}, Health{}, busy(id)
	}
	defer l.end("get " + id)
	v, health, err := l.Manager.Get(ctx, id)
	if err == nil && health.Condition == DataLoss && l.isBusy(id) {
		return Volume{}, Health{}, fmt.Errorf("%w: an operation on %s is under way; ask again", ErrBusy, id)
	}
	return v, health, err
}

// Stats is Manager.Stats, for one caller at a time.
func (l *Locked) Stats(ctx context.Context, id, path string) (Stats, error) {
	if !l.take("stats " + id) {
		return Stats{}, busy(id)
	}
	defer l.end("stats " + id)
	return l.Manager.Stats(ctx, id, path)
}

// Publish is Manager.Publish under the id's lock.
func (l *Locked) Publish(ctx context.Context, q PublishRequest) error {
	return l.do(ctx, q.ID, func(ctx context.Context) error { return l.Manager.Publish(ctx, q) })
}

// Unpublish is Manager.Unpublish under the id's lock.
func (l *Locked) Unpublish(ctx context.Context, id, target string) error {
	return l.do(ctx, id, func(ctx context.Context) error { return l.Manager.Unpublish(ctx, id, target) })
}

// Adopt is Manager.Adopt under the id's lock.
func (l *Locked) Adopt(ctx context.Context, id string, bytes int64) (records.Record, error) {
	return result(ctx, l, id, func(ctx context.Context) (records.Record, error) {
		return l.Manager.Adopt(ctx, id, bytes)
	})
}

// Discard is Manager.Discard under the id's lock.
func (l *Locked) Discard(ctx context.Context, id, node string) error {
	return l.do(ctx, id, func(ctx context.Context) error { return l.Manager.Discard(ctx, id, node) })
}

// Enforce is Manager.Enforce under the id's lock. It ends with ctx: it can take hours, and be begun anew.
func (l *Locked) Enforce(ctx context.Context, id string, progress func(files int64)) error {
	if !l.take(id) {
		return busy(id)
	}
	defer l.end(id)
	return l.Manager.Enforce(ctx, id, progress)
}

// Wait returns when no operation is under way any more.
func (l *Locked) Wait() { l.running.Wait() }

// result is do for an operation with a result, which may be written to after its caller has left.
func result[T any](
	ctx context.Context, l *Locked, id string, operation func(context.Context) (T, error),
) (T, error) {
	var r, none T
	err := l.do(ctx, id, func(ctx context.Context) (err error) {
		r, err = operation(ctx)
		return err
	})
	if err != nil {
		return none, err
	}
	return r, nil
}

func busy(id string) error {
	return fmt.Errorf("%w: an earlier operation on %s has not ended yet; try again", ErrBusy, id)
}

// do runs an operation on an id. Values of ctx stay, its end does not reach the operation.
func (l *Locked) do(ctx context.Context, id string, operation func(context.Context) error) error {
	if !l.take(id) {
		return busy(id)
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
			l.Log.Error("an operation panicked", logging.KeyID, id, logging.KeyPanic, fmt.Sprint(p),
				logging.KeyStack, string(debug.Stack()))
			err = fmt.Errorf("%w: the operation on volume %s panicked (%v); the driver's log has the details", errBug, id, p)
		}
	}()
	return operation(ctx)
}

var errBug = errors.New("the driver has a bug")

func (l *Locked) take(id string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, taken := l.busy[id]; taken {
		return false
	}
	l.busy[id] = struct{}{}
	l.running.Add(1)
	return true
}

func (l *Locked) end(key string) {
	l.give(key)
	l.running.Done()
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
