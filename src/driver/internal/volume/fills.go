package volume

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/pool"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/store"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/transfer"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/bytesize"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
)

// failure is what a copy failed with that was made of a source.
type failure struct {
	source string
	err    error
	at     time.Time
}

// remembered is how long a copy that was too large is not tried again: whoever asked for it asks again every minute.
const remembered = time.Hour

// recall gives what an earlier copy of the same source failed with: once, but for one that was too large.
func (m *Manager) recall(r store.Record) error {
	last, ok := m.failed.LoadAndDelete(r.ID)
	f, _ := last.(failure)
	if !ok || f.source != r.Source.String() {
		return nil
	}
	if errors.Is(f.err, transfer.ErrTooLarge) {
		if m.Now().Sub(f.at).Abs() > remembered {
			return nil
		}
		m.failed.Store(r.ID, f)
	}
	return f.err
}

// stopFill stops a copy of a kind that is being made, and waits for that. Its record says how to go on.
func (m *Manager) stopFill(ctx context.Context, kind store.Kind, id string) error {
	f, ok := m.filling(id)
	if !ok || f.record.Kind != kind {
		return nil
	}
	f.stop(ErrBusy)
	select {
	case <-f.ended:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%w: the copy that is made for %s has not stopped yet", ErrBusy, id)
	}
}

func (m *Manager) filling(id string) (*fill, bool) {
	found, _ := m.fills.Load(id)
	f, ok := found.(*fill)
	return f, ok
}

func (m *Manager) eachFill(visit func(*fill)) {
	m.fills.Range(func(_, value any) bool {
		if f, ok := value.(*fill); ok {
			visit(f)
		}
		return true
	})
}

// unread refuses what a copy is being made of, or was until it was interrupted.
func (m *Manager) unread(r store.Record) (err error) {
	m.eachReading(r.ID, func(*reading) {
		err = fmt.Errorf("%w: its data goes to another node; wait, or delete the volume there first", ErrCopied)
	})
	source := store.Source{Kind: r.Kind, ID: r.ID}
	if id := m.Pools.CopyOf(source.String()); id != "" {
		err = fmt.Errorf("%w: %s is made of %s; wait, or delete that first", ErrCopied, id, r.ID)
	}
	return err
}

// startsPod ends the copies of a volume that no pod may write to meanwhile.
func (m *Manager) startsPod(id string) {
	why := fmt.Errorf("%w: a pod that uses %s was started before all was copied; try again once no pod uses it",
		ErrPublished, id)
	m.eachFill(func(f *fill) {
		if f.record.Source.ID == id && !f.bestEffort {
			f.stop(why)
		}
	})
	m.eachReading(id, func(r *reading) { r.stop(why) })
}

// fillWait is how long a request waits for a copy to be whole.
const fillWait = 5 * time.Second

// awaitFill waits for a copy, and gives what it ended with, or ErrFilling while it goes on.
func (m *Manager) awaitFill(ctx context.Context, id string) error {
	f, ok := m.filling(id)
	if !ok { // it has just ended
		return nil
	}
	timer := time.NewTimer(fillWait)
	defer timer.Stop()
	select {
	case <-f.ended:
		_ = m.recall(f.record) // here it is said
		return f.err
	case <-timer.C:
	case <-ctx.Done():
	}
	return fmt.Errorf("%w: volume %s: %s", ErrFilling, id, m.progress(id))
}

// progress says how far a copy has come.
func (m *Manager) progress(id string) string {
	if is := m.copied(id); is != "" {
		return is
	}
	return "its copy is not being made now: that goes on when it is asked for again"
}

// copied says how far a copy has come that is being made, "" of any other volume.
func (m *Manager) copied(id string) string {
	f, ok := m.filling(id)
	if !ok {
		return ""
	}
	p := f.Progress()
	return fmt.Sprintf("%s of about %s, and %d files, are copied", bytesize.Format(p.Bytes),
		bytesize.Format(max(f.total, p.Bytes)), p.Files)
}

// unfinished is copied of a copy that is being made, nodeapi.NotWhole of another one that is not whole, "" of any other
// volume.
func (m *Manager) unfinished(id string) string {
	is := m.copied(id)
	if _, v, ok := m.Pools.Find(id); is == "" && ok && v.Filling != "" {
		is = nodeapi.NotWhole
	}
	return is
}

// Copying gives how many copies are being made file by file, how much of them there is, and how much about there will
// be, in bytes.
func (m *Manager) Copying() (count int, copied, expected int64) {
	m.eachFill(func(f *fill) {
		p := f.Progress()
		count, copied, expected = count+1, copied+p.Bytes, expected+max(f.total, p.Bytes)
	})
	return count, copied, expected
}

// writableAt gives a target at which pods may write to a volume, "" where there is none.
func (m *Manager) writableAt(id string) (at string, err error) {
	for _, target := range m.targets(id) {
		mount, err := m.Mounter.Inspect(target)
		if err != nil {
			return "", fmt.Errorf("see whether volume %s is mounted at %s: %w", id, target, err)
		}
		if mount.Mounted && !mount.ReadOnly {
			return target, nil
		}
	}
	return "", nil
}

// goOn goes on with a copy that an earlier request has begun.
func (how maker) goOn(ctx context.Context, o *pool.Open, is, asked store.Record) (Volume, error) {
	interrupted := is.OnDelete == store.Purge && asked.OnDelete != store.Purge // an Abandon, by a crash
	if interrupted {
		is.OnDelete = asked.OnDelete
	}
	err := differs(is, asked)
	if err == nil && interrupted {
		err = store.Replace(o.Disk, is)
	}
	if err != nil {
		return Volume{}, err
	}
	is, err = how.again(ctx, o, is, asked)
	if err != nil {
		return Volume{}, fmt.Errorf("create %s in pool %s: %w", asked.ID, o.Name, err)
	}
	is.Pool = o.Name
	return answer(o, is), nil
}
