package volume

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/disk"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/hostdir"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/pool"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/recovery"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/store"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/logging"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
)

// ReturnDirectory moves a volume back to where TakeDirectory has found it. No pod may use it and no PersistentVolume
// name it. Where files count to the volume's ID, they are first taken out of it, in the background: whoever asks again
// is told how far that is. Of a volume that is not there nothing is left to do, and it has no path.
func (m *Manager) ReturnDirectory(ctx context.Context, id string) (back nodeapi.ReturnedDirectory, err error) {
	back.ID = id
	if t, ok := m.tagged(id); ok {
		if t.returning {
			back.Files = t.files.Load()
			return back, nil
		}
		if err := t.end(ctx, id); err != nil {
			return back, err
		}
	}
	return result(ctx, m, id, func(ctx context.Context) (nodeapi.ReturnedDirectory, error) {
		if err := m.requireNoPV(ctx, id, ""); err != nil {
			return back, err
		}
		err := m.search(ctx, id, func(o *pool.Open) (bool, error) { return m.giveBack(o, &back) })
		if errors.Is(err, store.ErrNotFound) {
			back.Done, err = true, nil
		}
		return back, err
	})
}

func (m *Manager) giveBack(o *pool.Open, back *nodeapi.ReturnedDirectory) (bool, error) {
	s, r, err := lookTaken(o, back.ID)
	verdict := s.Verdict()
	if err != nil || verdict == store.Nothing {
		return false, err
	}
	switch back.Path = r.TakenFrom; {
	case back.Path == "" && verdict == store.DropStaged:
		return false, nil
	case back.Path == "":
		return true, fmt.Errorf("%w: %s was not taken from a directory of the node", ErrUnsupported, back.ID)
	case verdict == store.DropStaged:
		back.Done = true
		return true, o.DropTaken(back.ID)
	case verdict != store.Healthy && verdict != store.Untracked:
		return true, occupied(o, back.ID, verdict)
	}
	r.Pool = o.Name
	if r.QuotaID != 0 && o.Backend.Enforces() && r.Backend == o.Backend.Name {
		return true, m.untagFirst(o, r, verdict)
	}
	back.Done, err = true, m.moveBack(o, r, s.Record)
	return true, err
}

// untagFirst notes that the files of a volume are to be taken out of its ID.
func (m *Manager) untagFirst(o *pool.Open, r store.Record, verdict store.Verdict) error {
	if verdict == store.Untracked { // of a take that was interrupted
		if err := o.FinishTake(r.ID); err != nil {
			return err
		}
	}
	if _, err := m.unneeded(o, r); err != nil {
		return err
	}
	r.Enforcing, r.Returning = false, true
	if err := store.Replace(o.Disk, r); err != nil {
		return err
	}
	o.Ledger.Put(r.ID, recovery.Volume(r))
	m.askTagging()
	return nil
}

// unneeded refuses a volume that somebody reads, uses, or moves to another node.
func (m *Manager) unneeded(o *pool.Open, r store.Record) (disk.Info, error) {
	info, err := dataOf(o, r)
	return info, cmp.Or(err, leaving(r), m.unread(r), m.unused(r.ID, info))
}

func (m *Manager) moveBack(o *pool.Open, r store.Record, placed bool) error {
	info, err := m.unneeded(o, r)
	if err != nil {
		return err
	}
	b, err := m.between(o, r.TakenFrom)
	if err != nil {
		return err
	}
	defer b.close()
	if _, err := b.Stat(b.outside); !errors.Is(err, fs.ErrNotExist) {
		return cmp.Or(err, fmt.Errorf("%w: there is something at %s already: move it away first", hostdir.ErrRefused,
			r.TakenFrom))
	}
	if info.GID != r.GID || store.POSIXMode(info.Mode) != r.Mode {
		err = o.Disk.Own(r.ID, r.UID, r.GID, store.FileMode(r.Mode))
	}
	if err == nil {
		err = o.Return(r.ID, placed, func() error { return b.move(path.Join(b.csi, r.ID), b.outside) })
	}
	if err != nil {
		return err
	}
	o.Ledger.Drop(r.ID)
	o.MarkTracked(r.ID)
	o.Log.Info("returned a volume to the directory that it was", logging.KeyID, r.ID, logging.KeyPath, r.TakenFrom)
	return nil
}
