package volume

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/logging"
)

// operation is what is under way on an id; change is the kind of one that changes something.
type operation struct{ kind, id string }

const change = "change"

// Wait stops copies that are made file by file, and returns when no operation is under way any more.
func (m *Manager) Wait() {
	m.eachFill(func(f *fill) { f.stop(ErrBusy) })
	m.running.Wait()
}

// take gives the end of an operation that begins; ErrBusy where one of that kind is under way on the id.
func (m *Manager) take(kind, id string) (end func(), err error) {
	if _, taken := m.busy.LoadOrStore(operation{kind, id}, nil); taken {
		return nil, fmt.Errorf("%w: an earlier operation on %s has not ended yet; try again", ErrBusy, id)
	}
	m.running.Add(1)
	return func() {
		m.busy.Delete(operation{kind, id})
		m.running.Done()
	}, nil
}

// result is exclusive for an operation with a result, which may be written to after its caller has left.
func result[T any](ctx context.Context, m *Manager, id string, run func(context.Context) (T, error)) (T, error) {
	var r, none T
	err := m.exclusive(ctx, id, func(ctx context.Context) (err error) {
		r, err = run(ctx)
		return err
	})
	if err != nil {
		return none, err
	}
	return r, nil
}

// exclusive runs an operation on an id while no other runs; ErrBusy where one does. One that is slower than its caller
// goes on after the caller has left: values of ctx stay, its end does not reach the operation.
func (m *Manager) exclusive(ctx context.Context, id string, run func(context.Context) error) error {
	end, err := m.take(change, id)
	if err != nil {
		return err
	}
	done := make(chan error, 1)
	go func() {
		err := m.guarded(context.WithoutCancel(ctx), id, run)
		end() // before the caller knows: its next call must find the id free
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
func (m *Manager) guarded(ctx context.Context, id string, run func(context.Context) error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			m.Log.Error("an operation panicked", logging.KeyID, id, logging.KeyPanic, fmt.Sprint(p),
				logging.KeyStack, string(debug.Stack()))
			err = fmt.Errorf("%w: the operation on volume %s panicked (%v); the driver's log has more", errBug, id, p)
		}
	}()
	return run(ctx)
}

var errBug = errors.New("the driver has a bug")
