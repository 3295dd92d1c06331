package volume

import (
	"context"
	"fmt"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/pool"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/recovery"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/store"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/kernel/copytree"
)

// reading is a source whose data goes to another node.
type reading struct {
	id   string
	stop context.CancelCauseFunc
}

// Read gives the data of a source from a position on in batches, for a copy on another node: of a snapshot, or of a
// volume that no pod may write to. Meanwhile it cannot be deleted; a pod that starts ends the reading of a volume. One
// that is being moved is read for that move alone. No pool is open while a batch is sent.
func (m *Manager) Read(ctx context.Context, source store.Source, from []byte, send func(copytree.Batch) error) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	in, end, err := m.startReading(ctx, source, stop)
	if err != nil {
		return err
	}
	defer end()
	reader := &copytree.Reader{}
	for last := false; !last; {
		b, err := m.readBatch(ctx, in, &source, reader, from)
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		if err == nil && source.Move != "" && b.Skipped > 0 { // they would be gone with the source
			err = fmt.Errorf("%w: subvolumes or mounts are inside, which are not copied", ErrUnsupported)
		}
		if err == nil {
			err = send(b)
		}
		if err != nil {
			return fmt.Errorf("read %s: %w", &source, err)
		}
		from, last = b.Next, b.Last
	}
	return nil
}

// startReading finds the pool of a source, and keeps that from being deleted until the end.
func (m *Manager) startReading(
	ctx context.Context, s store.Source, stop context.CancelCauseFunc,
) (in string, end func(), err error) {
	unlock, err := m.take(change, s.ID)
	if err != nil {
		return "", nil, err
	}
	defer unlock()
	err = m.findKind(ctx, s.Kind, s.ID, func(o *pool.Open, r store.Record) error {
		in = o.Name
		_, err := dataOf(o, r)
		if err == nil {
			err = readableFor(r, s.Move)
		}
		if err == nil {
			err = (&copying{m: m, source: r}).unwritten()
		}
		return err
	})
	if err != nil {
		return "", nil, err
	}
	is := &reading{s.ID, stop}
	m.readings.Store(is, nil)
	return in, func() { m.readings.Delete(is) }, nil
}

func (m *Manager) eachReading(id string, visit func(*reading)) {
	m.readings.Range(func(key, _ any) bool {
		if is, ok := key.(*reading); ok && is.id == id {
			visit(is)
		}
		return true
	})
}

// Source of the batches of a copy: it begins with that behind a position.
type Source func(ctx context.Context, from []byte) (next func(context.Context) (copytree.Batch, error), err error)

// Fill writes a copy whose source is on another node, until it is whole. One that was being filled ends: the newest
// wins.
func (m *Manager) Fill(ctx context.Context, id string, source Source) error {
	if err := m.stopFill(ctx, store.OfVolume, id); err != nil {
		return err
	}
	f, err := result(ctx, m, id, func(ctx context.Context) (*fill, error) { return m.startRemote(ctx, id, source) })
	if err != nil {
		return err
	}
	select {
	case <-f.ended:
		return f.err
	case <-ctx.Done():
		f.stop(ErrBusy)
		return context.Cause(ctx)
	}
}

func (m *Manager) startRemote(ctx context.Context, id string, source Source) (f *fill, err error) {
	err = m.find(ctx, id, func(o *pool.Open, r store.Record) error {
		if !r.Filling() {
			return fmt.Errorf("%w: %s is whole", ErrExists, id)
		}
		if _, untouched := m.begun.LoadAndDelete(id); !r.Source.Constant() && !untouched {
			return fmt.Errorf("%w: the copy %s of a volume begins anew when it is asked for again", ErrBusy, id)
		}
		f = &fill{record: r, in: o.Name, total: r.Bytes}
		f.Most = recovery.Volume(r).Limit().Bytes
		f.Next = fromStream(source)
		return m.startFill(ctx, f)
	})
	return f, err
}

// fromStream takes batches one after the other as they come.
func fromStream(source Source) func(context.Context, []byte, bool) (copytree.Batch, error) {
	var next func(context.Context) (copytree.Batch, error)
	return func(ctx context.Context, from []byte, _ bool) (b copytree.Batch, err error) {
		if next == nil {
			if next, err = source(ctx, from); err != nil {
				return b, err
			}
		}
		return next(ctx)
	}
}
