package volume

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/ledger"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/pool"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/quota"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/store"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/transfer"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/kernel/copytree"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/kernel/openat"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/logging"
)

// fill is a copy that is being made file by file.
type fill struct {
	transfer.Job
	record   store.Record
	in, from string // the pools of the copy and of its source
	total    int64  // what the source uses, in bytes
	// bestEffort has pods write to the source meanwhile.
	bestEffort bool

	stop  context.CancelCauseFunc
	ended chan struct{}
	err   error // once it has ended
	// written was opened before anything was written: the kernel says once to each who has a file open that data could
	// not be written, and nothing of it to who opens one later.
	written *os.File
}

// startFill goes on with a copy whose record is placed. It needs the lock of its id.
func (m *Manager) startFill(ctx context.Context, f *fill) error {
	place, err := transfer.Decode(f.record.Source.From)
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancelCause(context.WithoutCancel(ctx))
	f.stop, f.ended = stop, make(chan struct{})
	f.Write = m.writing(f)
	f.Save = func(ctx context.Context, p transfer.Place) error { return m.saveFill(ctx, f, p) }
	if _, running := m.fills.LoadOrStore(f.record.ID, f); running {
		stop(nil)
		return fmt.Errorf("%w: another copy of that id is being made", ErrBusy)
	}
	m.running.Go(func() {
		defer close(f.ended)
		defer m.fills.Delete(f.record.ID)
		defer stop(nil)
		f.err = m.guarded(ctx, f.record.ID, func(ctx context.Context) error { return m.fill(ctx, f, place) })
	})
	return nil
}

// fillsAtOnce is how many copies of what is on this node are made at once; the others wait. Each takes a MB of memory.
const fillsAtOnce = 16

// takeSlot waits until a copy may be made, or its context ends. The controller bounds what comes from other nodes.
func (m *Manager) takeSlot(ctx context.Context, f *fill) (end func(), err error) {
	if f.from == "" {
		return func() {}, nil
	}
	select {
	case m.slots <- struct{}{}:
		return func() { <-m.slots }, nil
	case <-ctx.Done():
		return func() {}, context.Cause(ctx)
	}
}

// fill copies, and makes the copy one that is whole. After an error that will not pass by itself it is abandoned.
func (m *Manager) fill(ctx context.Context, f *fill, place transfer.Place) error {
	end, err := m.takeSlot(ctx, f)
	defer end()
	if err == nil {
		err = m.watch(ctx, f)
	}
	if err == nil {
		defer func() { _ = f.written.Close() }() // it was open for reading
		err = f.Run(ctx, place)
	}
	if err == nil {
		err = m.completeFill(ctx, f)
	}
	if err == nil {
		return nil
	}
	if ctx.Err() != nil && !errors.Is(err, store.ErrUnsynced) { // in the middle of a batch
		err = context.Cause(ctx)
	}
	err = fmt.Errorf("copy %s: %w", f.record.Source, err)
	m.Log.Warn("a copy has ended before it was whole", logging.KeyID, f.record.ID, logging.KeyError, err)
	if passes(err) {
		// An update of the driver does not throw hours away, nor what an interrupted copy uses already.
		if p := f.Progress(); p.Links != "" && f.record.Source.Constant() {
			err = errors.Join(err, m.saveFill(context.WithoutCancel(ctx), f, p))
		}
		return err
	}
	m.failed.Store(f.record.ID, failure{f.record.Source.String(), err, m.Now()})
	return errors.Join(err, m.abandonFill(ctx, f))
}

// watch opens the directory of a copy, to learn of all that cannot be written from now on.
func (m *Manager) watch(ctx context.Context, f *fill) error {
	return m.Pools.Use(ctx, f.in, func(o *pool.Open) error {
		return inDirectory(o, store.Staged(f.record.ID), func(dir *os.File) (err error) {
			f.written, err = openat.Reopen(dir, unix.O_RDONLY|unix.O_DIRECTORY)
			return err
		})
	})
}

// passes reports whether a copy can be gone on with after an error.
func passes(err error) bool {
	return !errors.Is(err, store.ErrUnsynced) && isAny(err, pool.ErrAbsent, ErrBusy, ledger.ErrBusy,
		store.ErrConcurrent, context.Canceled, context.DeadlineExceeded)
}

// reading reads the source of a copy, which is on this node.
func (m *Manager) reading(f *fill) func(context.Context, []byte, bool) (copytree.Batch, error) {
	reader := &copytree.Reader{BestEffort: f.bestEffort}
	return func(ctx context.Context, from []byte, clone bool) (b copytree.Batch, err error) {
		reader.Clone = clone
		return m.readBatch(ctx, f.from, f.record.Source, reader, from)
	}
}

// readBatch reads the batch of a source in a pool that is behind a position, and waits until copies may have read that
// much.
func (m *Manager) readBatch(
	ctx context.Context, in string, s *store.Source, reader *copytree.Reader, from []byte,
) (b copytree.Batch, err error) {
	err = m.Pools.Use(ctx, in, func(o *pool.Open) error {
		return inSource(o, s, func(dir *os.File) (err error) {
			b, err = reader.Next(ctx, dir, from, transfer.BatchSize)
			return err
		})
	})
	if err == nil {
		err = m.pace.WaitN(ctx, min(len(b.Entries), m.pace.Burst()))
	}
	return b, err
}

func (m *Manager) writing(f *fill) func(context.Context, func(from, to *os.File) error) error {
	return func(ctx context.Context, work func(from, to *os.File) error) error {
		return m.Pools.Use(ctx, f.in, func(o *pool.Open) error {
			return inDirectory(o, store.Staged(f.record.ID), func(to *os.File) error {
				if f.from != f.in {
					return work(nil, to)
				}
				return inSource(o, f.record.Source, func(from *os.File) error { return work(from, to) })
			})
		})
	}
}

// inSource runs work on the directory of a source, which must be there.
func inSource(o *pool.Open, s *store.Source, work func(*os.File) error) error {
	r, err := store.ReadKind(o.Disk, s.ID, s.Kind)
	if err == nil {
		_, err = dataOf(o, r)
	}
	if err != nil {
		return err
	}
	return inDirectory(o, s.ID, work)
}

func inDirectory(o *pool.Open, name string, work func(*os.File) error) error {
	dir, err := o.Disk.Open(name)
	if err != nil {
		return err
	}
	defer func() { _ = dir.Close() }() // closing a directory says nothing about the work done through it
	if dir.File == nil {
		return quota.ErrUnsupported
	}
	return work(dir.File)
}

// changeFill runs do on the record of a copy that is not whole, with the lock of its id.
func (m *Manager) changeFill(
	ctx context.Context, f *fill, do func(o *pool.Open, r store.Record) error,
) error {
	end, err := m.await(ctx, f.record.ID)
	if err != nil {
		return err
	}
	defer end()
	return m.Pools.Use(ctx, f.in, func(o *pool.Open) error {
		r, err := store.Read(o.Disk, f.record.ID)
		if err == nil && !r.Filling() {
			err = fmt.Errorf("%w: somebody else changed the record of %s", ErrBusy, f.record.ID)
		}
		if err != nil {
			return err
		}
		return inDirectory(o, store.Staged(r.ID), func(*os.File) error { return do(o, r) })
	})
}

// await waits until no other operation is under way on an id.
func (m *Manager) await(ctx context.Context, id string) (end func(), err error) {
	for {
		if end, err = m.take(change, id); err == nil {
			return end, nil
		}
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

func (m *Manager) saveFill(ctx context.Context, f *fill, p transfer.Place) error {
	return m.changeFill(ctx, f, func(o *pool.Open, r store.Record) (err error) {
		if r.Source.From, err = p.Encode(); err != nil {
			return err
		}
		return o.NoteProgress(r, f.written)
	})
}

func (m *Manager) completeFill(ctx context.Context, f *fill) error {
	return m.changeFill(ctx, f, func(o *pool.Open, r store.Record) error {
		p := f.Progress()
		switch usage, err := usageOfOne(o, r.QuotaID); {
		case r.Kind != store.OfSnapshot:
			r.Held = 0
		case r.QuotaID == 0:
			r.Held = p.Bytes
		case err == nil: // else it keeps what it was promised
			r.Held = max(Block, usage) // 0 is no limit
		}
		r.Source.Skipped = int(p.Skipped)
		made, err := o.Complete(r, f.written)
		switch {
		case errors.Is(err, store.ErrUnsynced):
			return err
		case err != nil: // recovery, or who asks for it again, sees how far that came
			return fmt.Errorf("%w: %w", ErrBusy, err)
		}
		enter(o, made)
		o.Log.Info("a copy is whole", logging.KeyID, r.ID, logging.KeyBytes, p.Bytes, logging.KeyFiles, p.Files,
			logging.KeySkipped, p.Skipped, logging.KeyChanged, p.Changed)
		return nil
	})
}

func (m *Manager) abandonFill(ctx context.Context, f *fill) error {
	return m.changeFill(context.WithoutCancel(ctx), f, func(o *pool.Open, r store.Record) error {
		return abandon(o, r, m.Now())
	})
}

func abandon(o *pool.Open, r store.Record, now time.Time) error {
	if err := o.Abandon(r, now); err != nil {
		return fmt.Errorf("abandon the copy %s: %w", r.ID, err)
	}
	o.Ledger.Drop(r.ID)
	return nil
}

// slack is how much a copy may use beyond its source, in bytes, for what the filesystem needs itself.
func slack(bytes int64) int64 { return (bytes/100 + 1<<20) / Block * Block }

// used is what a source uses in bytes, or has room for where nobody knows that.
func used(o *pool.Open, r store.Record) int64 {
	if v, ok := o.Ledger.Get(r.ID); ok && v.Counted {
		if bytes, err := usageOfOne(o, r.QuotaID); err == nil {
			return bytes
		}
	}
	return r.Bytes
}
