// Package store keeps a pool's volume records on its own disk, one JSON file a volume, each written so that a crash leaves
// the old state or the new one.
package store

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/poolfs"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/volume"
)

const suffix = ".json"

// Files implements volume.Records over the files of .hpp/volumes.
type Files struct{}

// Path is where a volume's record lies, relative to csi/.
func Path(id string) string { return path.Join(poolfs.VolumesDir, id+suffix) }

// Prepare makes a record durable where nobody looks for records, and Place puts it among them, durably after a sync of their directory.
func (Files) Prepare(disk poolfs.FS, r volume.Record) error {
	data, err := encode(r)
	if err != nil {
		return err
	}
	if err := poolfs.PrepareFile(disk, Path(r.ID), data); err != nil {
		return fmt.Errorf("record volume %s: %w", r.ID, err)
	}
	return nil
}

// Place is the second half of Prepare. It never replaces a record (fs.ErrExist).
func (Files) Place(disk poolfs.FS, id string) error {
	if err := poolfs.PlaceFile(disk, Path(id)); err != nil {
		return fmt.Errorf("record volume %s: %w", id, err)
	}
	return nil
}

// Forget removes what Prepare left without Place; nothing there is no error.
func (Files) Forget(disk poolfs.FS, id string) error { return poolfs.ForgetFile(disk, Path(id)) }

func encode(r volume.Record) ([]byte, error) {
	data, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("encode the record of volume %s: %w", r.ID, err)
	}
	return append(data, '\n'), nil
}

// Add makes a record durable. It never replaces one (fs.ErrExist). On error no record is left.
func (Files) Add(disk poolfs.FS, r volume.Record) error {
	data, err := encode(r)
	if err != nil {
		return err
	}
	if err := poolfs.CreateFile(disk, Path(r.ID), data); err != nil {
		return fmt.Errorf("record volume %s: %w", r.ID, err)
	}
	return nil
}

// Replace makes a record durable in the place of an older one. After an error either may be there, and the new one not durable.
func (Files) Replace(disk poolfs.FS, r volume.Record) error {
	data, err := encode(r)
	if err != nil {
		return err
	}
	if err := poolfs.ReplaceFile(disk, Path(r.ID), data); err != nil {
		return fmt.Errorf("record volume %s: %w", r.ID, err)
	}
	return nil
}

// Read returns a record; volume.ErrNotFound where there is none, volume.ErrBroken where it cannot be used: truncated, for
// another id, or of a version that this driver does not know.
func (Files) Read(disk poolfs.FS, id string) (volume.Record, error) {
	data, err := disk.ReadFile(Path(id))
	if errors.Is(err, fs.ErrNotExist) {
		return volume.Record{}, volume.ErrNotFound
	}
	if err != nil {
		return volume.Record{}, fmt.Errorf("read the record of volume %s: %w", id, err)
	}
	r, err := Decode(data)
	if err == nil && r.ID != id {
		err = fmt.Errorf("it is for volume %q", r.ID)
	}
	if err != nil {
		return volume.Record{}, fmt.Errorf("%w: csi/%s: %w; its data is untouched, restore the file to use the volume again",
			volume.ErrBroken, Path(id), err)
	}
	return r, nil
}

// Decode parses and checks the content of a record file.
func Decode(data []byte) (volume.Record, error) {
	var r volume.Record
	if err := json.Unmarshal(data, &r); err != nil {
		return volume.Record{}, fmt.Errorf("not a complete record: %w", err)
	}
	switch {
	case r.Version < 1 || r.Version > volume.RecordVersion:
		return volume.Record{}, fmt.Errorf("version %d is not known to this driver, which reads up to %d", r.Version, volume.RecordVersion)
	case volume.ValidateID(r.ID) != nil:
		return volume.Record{}, volume.ValidateID(r.ID)
	case r.Bytes < 0:
		return volume.Record{}, fmt.Errorf("bytes is %d, must not be negative", r.Bytes)
	}
	return r, nil
}

// Remove removes a record durably; none there is no error.
func (Files) Remove(disk poolfs.FS, id string) error {
	err := disk.Remove(Path(id))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove the record of volume %s: %w", id, err)
	}
	if err := disk.Sync(poolfs.VolumesDir); err != nil {
		return fmt.Errorf("make the removal of volume %s's record durable: %w", id, err)
	}
	return nil
}

// List gives the ids of all record files, usable or not; temporary files and foreign names are passed over.
func (Files) List(disk poolfs.FS) ([]string, error) {
	return idsOf(disk, func(name string) (string, bool) { return name, true })
}

// Unplaced gives the ids of all temporary files.
func (Files) Unplaced(disk poolfs.FS) ([]string, error) { return idsOf(disk, poolfs.PreparedFor) }

// idsOf gives the ids of those files that are records by the name that recordName makes of theirs.
func idsOf(disk poolfs.FS, recordName func(file string) (string, bool)) ([]string, error) {
	entries, err := disk.ReadDir(poolfs.VolumesDir)
	if err != nil {
		return nil, fmt.Errorf("list the records: %w", err)
	}
	var ids []string
	for _, e := range entries {
		name, ok := recordName(e.Name)
		id, isRecord := strings.CutSuffix(name, suffix)
		if ok && isRecord && !e.Dir && volume.ValidateID(id) == nil {
			ids = append(ids, id)
		}
	}
	return ids, nil
}
