package store

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/disk"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/quota"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
)

// DataName and RecordName are what an entry of the trash has. PurgingName is what the data is called once its purge has
// begun: from then on nobody gets it back.
const (
	DataName    = "data"
	RecordName  = "record.json"
	PurgingName = "purging"
)

// TrashEntry is one directory in the trash, where deleted volumes wait: <id>.<n> in .hpp/trash, with the volume's data
// and, once the delete is complete, its record. n is the time of the delete in milliseconds since 1970.
type TrashEntry struct {
	Name, ID string
	Deleted  time.Time
	// Unfinished reports that the delete was interrupted after its data had been moved: the record is not here, or
	// after a crash that cut its move in half in both places.
	Unfinished bool
	Recorded   bool // the record is here
	Purging    bool // its purge has begun
	Empty      bool // nothing in it could be anybody's data
}

// Discard moves a volume's data and then its record into the trash. An error leaves a state that recovery or a repeated
// Discard completes.
func (p Pool) Discard(r Record, now time.Time) error {
	ordered := disk.Journaled(p.Disk)
	if !ordered && r.QuotaID != 0 {
		state, err := p.Limits.Check(r.ID, r.QuotaID)
		ordered = err == nil && state.Ordered
	}
	return asConcurrent(p.Disk, discard(p.Disk, r, r.ID, ordered, now))
}

// discard makes a new entry and moves the directory of a name and the record there. Destinations are synced before
// sources, so that a crash can never forget both; where the filesystem keeps that order, only at the end.
func discard(d disk.FS, r Record, name string, ordered bool, now time.Time) error {
	between := disk.SyncAll
	if ordered {
		between = func(disk.FS, ...string) error { return nil }
	}
	entry, err := newEntry(d, r.ID, now)
	if err != nil {
		return err
	}
	if err := between(d, disk.TrashDir); err != nil {
		return errors.Join(err, d.Remove(entry))
	}
	if err := moveData(d, name, path.Join(entry, DataName)); err != nil {
		return errors.Join(fmt.Errorf("move volume %s into the trash: %w", r.ID, err), d.Remove(entry))
	}
	if err := between(d, entry, path.Dir(name)); err != nil {
		return err
	}
	return moveRecord(d, entry, r.ID)
}

// moveData moves a volume's directory, which a pod may have made impossible to move: by its flags, or on btrfs by
// making the subvolume read-only.
func moveData(d disk.FS, from, to string) error {
	err := d.Rename(from, to)
	if !errors.Is(err, syscall.EPERM) && !errors.Is(err, syscall.EROFS) {
		return err
	}
	if unlocked := d.Unlock(from); unlocked != nil {
		return errors.Join(err, unlocked)
	}
	return d.Rename(from, to)
}

// finishDelete completes a delete that was interrupted after the data had been moved.
func finishDelete(d disk.FS, name, id string) error {
	entry := path.Join(disk.TrashDir, name)
	if err := disk.SyncAll(d, entry, "."); err != nil { // the rename may not be durable yet
		return err
	}
	both, err := sameFile(d, Path(id), path.Join(entry, RecordName))
	if err != nil {
		return err
	}
	if both { // the move was cut in half: only the old name is left to remove
		return Remove(d, id)
	}
	return moveRecord(d, entry, id)
}

// SyncDeletes makes the deletes of a volume durable, their new names before the old ones are gone.
func SyncDeletes(d disk.FS, id string) error {
	entries, err := ListTrash(d)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.ID != id {
			continue
		}
		if err := disk.SyncAll(d, path.Join(disk.TrashDir, e.Name)); err != nil {
			return err
		}
	}
	return disk.SyncAll(d, disk.VolumesDir)
}

// sameFile reports whether two names are one file.
func sameFile(d disk.FS, a, b string) (bool, error) {
	first, errA := d.Stat(a)
	second, errB := d.Stat(b)
	err := cmp.Or(errA, errB)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil && first.Same(second), err
}

func newEntry(d disk.FS, id string, now time.Time) (string, error) {
	for n := now.UnixMilli(); ; n++ {
		entry := path.Join(disk.TrashDir, id+"."+strconv.FormatInt(n, 10))
		err := d.Mkdir(entry, 0o700)
		if errors.Is(err, fs.ErrExist) {
			continue
		}
		if isFull(err) {
			err = useSpare(d, entry, err)
		}
		if err != nil {
			return "", fmt.Errorf("make a trash entry for volume %s: %w", id, err)
		}
		return entry, nil
	}
}

func isFull(err error) bool { return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) }

// spare is an empty directory that becomes a trash entry when the filesystem is too full to make one: without it,
// nobody could delete what fills the disk. It is no entry: its name starts with a dot.
const spare = disk.TrashDir + "/" + SpareName

// SpareName is its name in the trash.
const SpareName = ".spare"

func useSpare(d disk.FS, entry string, full error) error {
	if err := d.Rename(spare, entry); err != nil {
		return errors.Join(full, fmt.Errorf("use the spare directory instead: %w", err))
	}
	return nil
}

// EnsureSpare makes the spare directory again, durably, where it was used and there is room for it.
func EnsureSpare(d disk.FS) error {
	err := d.Mkdir(spare, 0o700)
	if errors.Is(err, fs.ErrExist) || isFull(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("keep a spare directory in the trash: %w", err)
	}
	return disk.SyncAll(d, disk.TrashDir)
}

func moveRecord(d disk.FS, entry, id string) error {
	if err := d.Rename(Path(id), path.Join(entry, RecordName)); err != nil {
		return fmt.Errorf("move the record of volume %s into the trash: %w", id, err)
	}
	return syncMoved(d, entry, disk.VolumesDir)
}

// BeginPurge makes an entry's data one that is being purged, durably, so that none is brought back of which a part is
// gone. Where that was done before, or a crash has cut it in half, it makes it durable.
func BeginPurge(d disk.FS, name string) error {
	entry := path.Join(disk.TrashDir, name)
	err := moveData(d, path.Join(entry, DataName), path.Join(entry, PurgingName))
	if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("begin to purge trash entry %s: %w", name, err)
	}
	return disk.SyncAll(d, entry)
}

// ListTrash gives the entries by their names alone. Names that are not <id>.<n> are not the driver's and passed over.
func ListTrash(d disk.Reader) ([]TrashEntry, error) {
	content, err := d.ReadDir(disk.TrashDir)
	if err != nil {
		return nil, fmt.Errorf("list the trash: %w", err)
	}
	var entries []TrashEntry
	for _, c := range content {
		if id, deleted, ok := ParseEntryName(c.Name); ok && c.Dir {
			entries = append(entries, TrashEntry{Name: c.Name, ID: id, Deleted: deleted})
		}
	}
	return entries, nil
}

// TrashEntries lists the trash, of one volume or with an empty id of all, and looks into each entry. One that cannot be
// read is in troubles, and is nobody else's trouble.
func TrashEntries(d disk.FS, id string) (entries []TrashEntry, troubles []error, err error) {
	all, err := ListTrash(d)
	if err != nil {
		return nil, nil, err
	}
	for _, e := range all {
		if id != "" && e.ID != id {
			continue
		}
		err := inspect(d, &e)
		switch {
		case errors.Is(err, fs.ErrNotExist): // purged meanwhile
		case err != nil:
			troubles = append(troubles, fmt.Errorf("look into trash entry %s: %w", e.Name, err))
		default:
			entries = append(entries, e)
		}
	}
	return entries, troubles, nil
}

func inspect(d disk.FS, e *TrashEntry) error {
	entry := path.Join(disk.TrashDir, e.Name)
	content, err := d.ReadDir(entry)
	if err != nil {
		return err
	}
	has := map[string]bool{}
	for _, c := range content {
		has[c.Name] = true
	}
	e.Empty = len(content) == 0
	e.Unfinished, e.Recorded, e.Purging = has[DataName], has[RecordName], has[PurgingName]
	if e.Recorded {
		e.Unfinished, err = sameFile(d, Path(e.ID), path.Join(entry, RecordName))
	}
	return err
}

// ReadTrashed reads the record of an entry; fs.ErrNotExist where it has none.
func ReadTrashed(d disk.FS, name string) (Record, error) {
	data, err := d.ReadFile(path.Join(disk.TrashDir, name, RecordName))
	if err != nil {
		return Record{}, fmt.Errorf("read the record of trash entry %s: %w", name, err)
	}
	r, err := Decode(data)
	if err != nil {
		return Record{}, fmt.Errorf("trash entry %s stays: its record cannot be used: %w", name, err)
	}
	return r, nil
}

// ParseEntryName takes an entry's name apart into id and the time of the delete.
func ParseEntryName(name string) (id string, deleted time.Time, ok bool) {
	i := strings.LastIndexByte(name, '.')
	if i < 0 || nodeapi.ValidateID(name[:i]) != nil {
		return "", time.Time{}, false
	}
	n, err := strconv.ParseInt(name[i+1:], 10, 64)
	if err != nil || n < 0 {
		return "", time.Time{}, false
	}
	return name[:i], time.UnixMilli(n), true
}

// PinsInTrash are what deleted copies keep charged to others. What an entry that cannot be read keeps is not known.
func PinsInTrash(d disk.FS) (pins []quota.Pin, err error) {
	entries, err := ListTrash(d)
	for _, e := range entries {
		r, err := ReadTrashed(d, e.Name)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		pins = append(pins, r.Pins...)
	}
	return pins, err
}
