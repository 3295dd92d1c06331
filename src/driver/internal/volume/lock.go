package volume

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/pool"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/store"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/logging"
)

// Locked decorates a manager so that no two operations on one id overlap. An operation that is slower than its caller
// goes on after the caller has left; until it is done, every other call for the id is ErrBusy.
type Locked struct {
	*Manager
	busy    sync.Map // of operation
	running sync.WaitGroup
}

type operation struct{ kind, id string }

// change is the kind of an operation that changes something.
const change = "change"

// NewLocked decorates a manager.
func NewLocked(m *Manager) *Locked { return &Locked{Manager: m} }

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
	return result(ctx, l, id, func(ctx context.Context) (Volume, error) { return l.Manager.Expand(ctx, id, bytes, limit) })
}

// Has reports whether anything of a volume is on this node: its record, its directory, what an interrupted create left,
// or an operation under way; and in which pool, "" while that is not known. pool.ErrAbsent where it is unknown because
// a pool cannot be used, ErrBusy while an earlier question about the id is not answered.
func (l *Locked) Has(ctx context.Context, id string) (in string, found bool, err error) {
	end, err := l.take("has", id)
	if err != nil {
		return "", false, err
	}
	defer end()
	if in, found = l.knows(id); found {
		return in, true, nil
	}
	err = l.search(ctx, id, func(o *pool.Open) (bool, error) {
		in = o.Name
		s, _, err := o.Look(id)
		return err == nil && s.Verdict() != store.Nothing, err
	})
	if err == nil {
		return in, true, nil
	}
	if in, found = l.knows(id); found { // an operation may have begun meanwhile
		return in, true, nil
	}
	if errors.Is(err, store.ErrNotFound) {
		return "", false, nil
	}
	return "", false, err
}

// knows reports whether an operation on an id is under way, or has entered it into the ledger of a pool.
func (l *Locked) knows(id string) (in string, known bool) {
	_, busy := l.busy.Load(operation{change, id})
	in, _, known = l.Pools.Find(id)
	return in, busy || known
}

// Get is Manager.Get without a lock, which an operation that takes its time would have, but for one caller at a time:
// a pool that hangs keeps no more. What is missing only because an operation is under way is not called lost.
func (l *Locked) Get(ctx context.Context, id string) (Volume, Health, error) {
	end, err := l.take("get", id)
	if err != nil {
		return Volume{}, Health{}, err
	}
	defer end()
	v, health, err := l.Manager.Get(ctx, id)
	if _, busy := l.busy.Load(operation{change, id}); busy && err == nil && health.Condition == DataLoss {
		return Volume{}, Health{}, fmt.Errorf("%w: an operation on %s is under way; ask again", ErrBusy, id)
	}
	return v, health, err
}

// Stats is Manager.Stats, for one caller at a time.
func (l *Locked) Stats(ctx context.Context, id, path string) (Stats, error) {
	end, err := l.take("stats", id)
	if err != nil {
		return Stats{}, err
	}
	defer end()
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
func (l *Locked) Adopt(ctx context.Context, id string, bytes int64) (store.Record, error) {
	return result(ctx, l, id, func(ctx context.Context) (store.Record, error) { return l.Manager.Adopt(ctx, id, bytes) })
}

// Discard is Manager.Discard under the id's lock.
func (l *Locked) Discard(ctx context.Context, id, node string) error {
	return l.do(ctx, id, func(ctx context.Context) error { return l.Manager.Discard(ctx, id, node) })
}

// Enforce is Manager.Enforce under the id's lock. It ends with ctx: it can take hours, and be begun anew.
func (l *Locked) Enforce(ctx context.Context, id string, inodes *int64, progress func(files int64)) error {
	end, err := l.take(change, id)
	if err != nil {
		return err
	}
	defer end()
	return l.Manager.Enforce(ctx, id, inodes, progress)
}

// Wait returns when no operation is under way any more.
func (l *Locked) Wait() { l.running.Wait() }

// take gives the end of an operation that begins; ErrBusy where one of that kind is under way on the id.
func (l *Locked) take(kind, id string) (end func(), err error) {
	if _, taken := l.busy.LoadOrStore(operation{kind, id}, nil); taken {
		return nil, fmt.Errorf("%w: an earlier operation on %s has not ended yet; try again", ErrBusy, id)
	}
	l.running.Add(1)
	return func() {
		l.busy.Delete(operation{kind, id})
		l.running.Done()
	}, nil
}

// result is do for an operation with a result, which may be written to after its caller has left.
func result[T any](ctx context.Context, l *Locked, id string, run func(context.Context) (T, error)) (T, error) {
	var r, none T
	err := l.do(ctx, id, func(ctx context.Context) (err error) {
		r, err = run(ctx)
		return err
	})
	if err != nil {
		return none, err
	}
	return r, nil
}

// do runs an operation on an id. Values of ctx stay, its end does not reach the operation.
func (l *Locked) do(ctx context.Context, id string, run func(context.Context) error) error {
	end, err := l.take(change, id)
	if err != nil {
		return err
	}
	done := make(chan error, 1)
	go func() {
		err := l.guarded(context.WithoutCancel(ctx), id, run)
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
func (l *Locked) guarded(ctx context.Context, id string, run func(context.Context) error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			l.Log.Error("an operation panicked", logging.KeyID, id, logging.KeyPanic, fmt.Sprint(p),
				logging.KeyStack, string(debug.Stack()))
			err = fmt.Errorf("%w: the operation on volume %s panicked (%v); the driver's log has the details", errBug, id, p)
		}
	}()
	return run(ctx)
}

var errBug = errors.New("the driver has a bug")
