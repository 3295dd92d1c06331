package store

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"path"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/disk"
)

// ErrUndeletable refuses to bring back what is in the trash and cannot be a volume again.
var ErrUndeletable = errors.New("that cannot be undeleted")

// LookAtTrash looks into an entry of the trash, in a shared pool of this node's own; ErrNotFound where there is none.
func LookAtTrash(d disk.FS, name string) (e TrashEntry, err error) {
	id, deleted, ok := ParseEntryName(name)
	if ok {
		e = TrashEntry{Name: name, ID: id, Deleted: deleted}
		err = inspect(d, &e)
	}
	if !ok || errors.Is(err, fs.ErrNotExist) {
		return e, fmt.Errorf("%w: no trash entry %s", ErrNotFound, name)
	}
	if err != nil {
		return e, fmt.Errorf("look into trash entry %s: %w", name, err)
	}
	return e, nil
}

// ReadDeleted gives the record of a deleted volume that can be brought back, else ErrUndeletable.
func ReadDeleted(d disk.FS, e TrashEntry) (Record, error) {
	r, err := ReadTrashed(d, e.Name)
	_, data, dataErr := Directory(d, path.Join(disk.TrashDir, e.Name, DataName))
	switch {
	case e.Purging:
		return r, fmt.Errorf("%w: the purge of trash entry %s has begun", ErrUndeletable, e.Name)
	case errors.Is(err, fs.ErrNotExist):
		return r, fmt.Errorf("%w: trash entry %s has no record: its delete is under way", ErrUndeletable, e.Name)
	case err != nil || dataErr != nil:
		return r, errors.Join(err, dataErr)
	case r.ID != e.ID:
		return r, fmt.Errorf("%w: that of trash entry %s is for volume %q", ErrBroken, e.Name, r.ID)
	case !data:
		return r, fmt.Errorf("%w: the data of trash entry %s is gone", ErrUndeletable, e.Name)
	}
	return r, r.mayReturn()
}

// mayReturn refuses a record of what would not be a volume again.
func (r Record) mayReturn() error {
	switch {
	case r.Kind != OfVolume:
		return fmt.Errorf("%w: %s is no volume", ErrUndeletable, r.ID)
	case r.Ephemeral:
		return fmt.Errorf("%w: %s is an inline volume, which ends with its pod", ErrUndeletable, r.ID)
	case r.Source != nil && !r.Source.Complete:
		return fmt.Errorf("%w: %s is a copy that was never whole", ErrUndeletable, r.ID)
	}
	return nil
}

// Undelete moves a volume back from its trash entry: the record, then the data, each durable before the next. So a
// crash in between leaves what one in the middle of a delete does, and recovery finishes that: the volume is in the
// trash as before. So it is after an error, unless back reports that the volume is there, durably or not. Repeated, it
// goes on from there.
func (p Pool) Undelete(e TrashEntry) (back bool, err error) {
	d, entry := p.Disk, path.Join(disk.TrashDir, e.Name)
	if _, back, err = Directory(d, e.ID); err != nil {
		return false, err
	}
	if !back {
		if err := takeBack(d, e); err != nil {
			return false, asConcurrent(d, err)
		}
	}
	return true, disk.SyncAll(d, ".", disk.VolumesDir, entry)
}

func takeBack(d disk.FS, e TrashEntry) error {
	entry := path.Join(disk.TrashDir, e.Name)
	err := d.Rename(path.Join(entry, RecordName), Path(e.ID))
	if err != nil && !errors.Is(err, fs.ErrNotExist) { // else it is back already
		return fmt.Errorf("move the record of volume %s back: %w", e.ID, err)
	}
	if err = disk.SyncAll(d, disk.VolumesDir, entry); err == nil {
		err = moveData(d, path.Join(entry, DataName), e.ID)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("move volume %s out of the trash: %w", e.ID, err), finishDelete(d, e.Name, e.ID))
	}
	return nil
}

// RemoveEmptied removes the entry of a volume that was brought back.
func RemoveEmptied(d disk.FS, e TrashEntry) error {
	if err := RemoveEmpty(d, e.Name); err != nil {
		return err
	}
	return disk.SyncAll(d, disk.TrashDir)
}

// RemoveEmpty removes an entry that has nothing in it. Where the spare directory was used it becomes that: there may be
// no room to make another one.
func RemoveEmpty(d disk.FS, name string) error {
	entry := path.Join(disk.TrashDir, name)
	content, err := d.ReadDir(entry)
	if err == nil && len(content) == 0 && d.Rename(entry, spare) == nil {
		return nil
	}
	if err = cmp.Or(err, d.Remove(entry)); err != nil {
		return fmt.Errorf("remove empty trash entry %s: %w", name, err)
	}
	return nil
}
