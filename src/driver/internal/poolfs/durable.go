package poolfs

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
)

// CreateFile makes a file that a crash leaves whole or not at all: temporary file, fsync, rename, fsync of the directory.
// It never replaces one (fs.ErrExist). On error no file of that name is left.
func CreateFile(disk FS, name string, data []byte) error {
	if err := writeTemp(disk, name, data); err != nil {
		return err
	}
	if err := disk.Rename(temp(name), name); err != nil {
		return errors.Join(fmt.Errorf("put %s in place: %w", name, err), disk.Remove(temp(name)))
	}
	if err := disk.Sync(path.Dir(name)); err != nil {
		return errors.Join(fmt.Errorf("make %s durable: %w", name, err), disk.Remove(name))
	}
	return nil
}

// ReplaceFile is CreateFile for a name that may exist: a crash leaves the old content or the new.
func ReplaceFile(disk FS, name string, data []byte) error {
	if err := writeTemp(disk, name, data); err != nil {
		return err
	}
	if err := disk.Replace(temp(name), name); err != nil {
		return errors.Join(fmt.Errorf("put %s in place: %w", name, err), disk.Remove(temp(name)))
	}
	if err := disk.Sync(path.Dir(name)); err != nil {
		return fmt.Errorf("make %s durable: %w", name, err)
	}
	return nil
}

func writeTemp(disk FS, name string, data []byte) error {
	if err := disk.Remove(temp(name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("clear what an interrupted write of %s left: %w", name, err)
	}
	if err := disk.WriteFile(temp(name), data, 0o600); err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	return nil
}

// temp is the temporary name of a file, which nothing else in its directory has: names of volumes never start with a dot.
func temp(name string) string { return path.Join(path.Dir(name), "."+path.Base(name)+".tmp") }
