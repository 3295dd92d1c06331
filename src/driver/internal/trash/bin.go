// Package trash is where deleted volumes wait: a directory <id>.<n> for each in .hpp/trash, holding the volume's data and,
// once the delete is complete, its record. n is the time of the delete in milliseconds since 1970.
package trash

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/poolfs"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/store"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/volume"
)

const (
	dataName   = "data"
	recordName = "record.json"
)

// Bin implements volume.Bin.
type Bin struct {
	// Now is the clock for the names of entries.
	Now func() time.Time
}

// Discard moves a volume's data and then its record into a new entry. Destinations are synced before sources, so that a
// crash can never forget both. An error leaves a state that Recover or a repeated Discard completes.
func (b Bin) Discard(disk poolfs.FS, r volume.Record, keepsOrder bool) error {
	between := syncAll
	if keepsOrder {
		between = func(poolfs.FS, ...string) error { return nil }
	}
	entry, err := b.newEntry(disk, r.ID)
	if err != nil {
		return err
	}
	if err := between(disk, poolfs.TrashDir); err != nil {
		return errors.Join(err, disk.Remove(entry))
	}
	if err := disk.Rename(r.ID, path.Join(entry, dataName)); err != nil {
		return errors.Join(fmt.Errorf("move volume %s into the trash: %w", r.ID, err), disk.Remove(entry))
	}
	if err := between(disk, entry, "."); err != nil {
		return err
	}
	return moveRecord(disk, entry, r.ID)
}

// Finish completes a delete that was interrupted after the data had been moved.
func (b Bin) Finish(disk poolfs.FS, name, id string) error {
	entry := path.Join(poolfs.TrashDir, name)
	if err := syncAll(disk, entry, "."); err != nil { // the rename may not be durable yet
		return err
	}
	twice, err := sameFile(disk, store.Path(id), path.Join(entry, recordName))
	if err != nil {
		return err
	}
	if twice { // the move was cut in half: only the old name is left to remove
		return store.Files{}.Remove(disk, id)
	}
	return moveRecord(disk, entry, id)
}

// sameFile tells whether two names are one file.
func sameFile(disk poolfs.FS, a, b string) (bool, error) {
	first, err := disk.Stat(a)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	second, err := disk.Stat(b)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil && first.Dev == second.Dev && first.Ino == second.Ino, err
}

// newEntry makes an entry of a name that no other has.
func (b Bin) newEntry(disk poolfs.FS, id string) (string, error) {
	for n := b.Now().UnixMilli(); ; n++ {
		entry := path.Join(poolfs.TrashDir, id+"."+strconv.FormatInt(n, 10))
		err := disk.Mkdir(entry, 0o700)
		if errors.Is(err, fs.ErrExist) {
			continue
		}
		if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
			err = useSpare(disk, entry, err)
		}
		if err != nil {
			return "", fmt.Errorf("make a trash entry for volume %s: %w", id, err)
		}
		return entry, nil
	}
}

// spare is an empty directory that becomes a trash entry when the filesystem is too full to make one: without it, nobody could
// delete what fills the disk. It is no entry: its name starts with a dot.
const spare = poolfs.TrashDir + "/.spare"

func useSpare(disk poolfs.FS, entry string, full error) error {
	if err := disk.Rename(spare, entry); err != nil {
		return errors.Join(full, fmt.Errorf("use the spare directory instead: %w", err))
	}
	return nil
}

// EnsureSpare makes the spare directory again, durably, where it was used and there is room for it.
func EnsureSpare(disk poolfs.FS) error {
	err := disk.Mkdir(spare, 0o700)
	if errors.Is(err, fs.ErrExist) || errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("keep a spare directory in the trash: %w", err)
	}
	return syncAll(disk, poolfs.TrashDir)
}

func moveRecord(disk poolfs.FS, entry, id string) error {
	if err := disk.Rename(store.Path(id), path.Join(entry, recordName)); err != nil {
		return fmt.Errorf("move the record of volume %s into the trash: %w", id, err)
	}
	return syncAll(disk, entry, poolfs.VolumesDir)
}

func syncAll(disk poolfs.FS, dirs ...string) error {
	for _, dir := range dirs {
		if err := disk.Sync(dir); err != nil {
			return fmt.Errorf("make changes in csi/%s durable: %w", dir, err)
		}
	}
	return nil
}

// entryName is the name of an entry, taken apart.
type entryName struct {
	name, id string
	deleted  time.Time
}

// names lists the trash. Names that are not <id>.<n> are not the driver's and passed over.
func (b Bin) names(disk poolfs.FS) ([]entryName, error) {
	content, err := disk.ReadDir(poolfs.TrashDir)
	if err != nil {
		return nil, fmt.Errorf("list the trash: %w", err)
	}
	var entries []entryName
	for _, c := range content {
		if id, deleted, ok := split(c.Name); ok && c.Dir {
			entries = append(entries, entryName{name: c.Name, id: id, deleted: deleted})
		}
	}
	return entries, nil
}

// Entries lists the trash, of one volume or with an empty id of all, and looks into each entry.
func (b Bin) Entries(disk poolfs.FS, id string) ([]volume.BinEntry, error) {
	names, err := b.names(disk)
	if err != nil {
		return nil, err
	}
	entries := make([]volume.BinEntry, 0, len(names))
	for _, n := range names {
		if id != "" && n.id != id {
			continue
		}
		e, err := look(disk, n.name, n.id)
		if errors.Is(err, fs.ErrNotExist) { // purged meanwhile
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("look into trash entry %s: %w", n.name, err)
		}
		entries = append(entries, e)
	}
	return entries, nil
}

// look finds out what one entry is.
func look(disk poolfs.FS, name, id string) (volume.BinEntry, error) {
	entry := path.Join(poolfs.TrashDir, name)
	content, err := disk.ReadDir(entry)
	if err != nil {
		return volume.BinEntry{}, err
	}
	has := map[string]bool{}
	for _, c := range content {
		has[c.Name] = true
	}
	e := volume.BinEntry{Name: name, ID: id, Empty: len(content) == 0}
	if !has[recordName] {
		e.Unfinished = has[dataName]
		return e, nil
	}
	e.Unfinished, err = sameFile(disk, store.Path(id), path.Join(entry, recordName))
	return e, err
}

// RemoveEmpty removes an entry that holds nothing.
func (Bin) RemoveEmpty(disk poolfs.FS, e volume.BinEntry) error {
	if err := disk.Remove(path.Join(poolfs.TrashDir, e.Name)); err != nil {
		return fmt.Errorf("remove empty trash entry %s: %w", e.Name, err)
	}
	return nil
}

// split takes an entry's name apart into id and the time of the delete.
func split(name string) (id string, deleted time.Time, ok bool) {
	i := strings.LastIndexByte(name, '.')
	if i < 0 || volume.ValidateID(name[:i]) != nil {
		return "", time.Time{}, false
	}
	n, err := strconv.ParseInt(name[i+1:], 10, 64)
	if err != nil || n < 0 {
		return "", time.Time{}, false
	}
	return name[:i], time.UnixMilli(n), true
}
